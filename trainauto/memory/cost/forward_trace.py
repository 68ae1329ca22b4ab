"""What a forward pass takes, known before it runs: the network's own, without gradients, on fake tensors."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from trainauto.core.errors import TrainautoError
from trainauto.memory.cost.traced_fit import Prior, fit_prior
from trainauto.memory.tracing.fake_tensors import as_fake, fake_world
from trainauto.memory.tracing.host_reads import AnsweredReads, place_of_error
from trainauto.memory.tracing.trace import TraceError, trace

Forward = Callable[[nn.Module, Tensor], Tensor]
"""Runs a network on an image of pixels, with what is done to them before and after."""


def forward_prior(
    forward: Forward,
    network: nn.Module,
    channels: int,
    sides_px: Sequence[int],
    *,
    device: torch.device,
    window_px: int = 1,
) -> Prior:
    """Return the bytes that a forward pass takes beside the weights, by the side of a square image.

    Args:
        forward: what is to be run.
        network: a real one; it is left as it is.
        channels: of the images, which are uint8 (1, channels, side, side).
        sides_px: sides to trace, at least three where memory may grow with their fourth power.
        device: where the network is.
        window_px: the network pads sides to multiples of this.

    Raises:
        TraceError: the network cannot be traced.
    """
    try:
        with fake_world() as mode, AnsweredReads(), torch.no_grad():
            fake = as_fake(network, mode)
            points = {(1, side): _phases(forward, fake, channels, side, device) for side in sides_px}
    except TrainautoError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}, at {place_of_error(error)}"
        raise TraceError(f"the network cannot be copied to fake tensors: {reason}") from error
    return fit_prior(points, window_px)


def _phases(forward: Forward, network: nn.Module, channels: int, side: int, device: torch.device) -> dict[str, float]:
    def step() -> None:
        with torch.no_grad():
            forward(network, torch.empty(1, channels, side, side, dtype=torch.uint8, device=device))

    # Once is enough: without an optimizer, one pass leaves what it found.
    traced = trace(step, steps=1, held=[network], device_type=device.type)
    return {phase: float(peak - traced.persistent_bytes) for phase, peak in traced.phase_peaks_bytes.items()}
