"""The state of every random generator a run may use, in values that load without pickled code."""

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from trainauto.core.hashing import splitmix64


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_rank(seed: int, rank: int) -> None:
    """Seed a rank's generators: the first as :func:`seed_everything`, the others each in its own way.

    Weights are drawn before, from the same seed on all; what is drawn in training (dropout) is to differ.
    """
    seed_everything(seed if rank == 0 else splitmix64(splitmix64(seed) ^ rank) >> 1)


def packed_state() -> bytes:
    """Return :func:`random_state` as bytes, to send it to another rank."""
    file = io.BytesIO()
    torch.save(random_state(), file)
    return file.getvalue()


def unpacked_state(packed: bytes) -> dict[str, Any]:
    """Return what :func:`packed_state` packed."""
    state: dict[str, Any] = torch.load(io.BytesIO(packed), "cpu", weights_only=True)
    return state


def random_state() -> dict[str, Any]:
    """Return the state of all generators."""
    return {**_host_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def _host_state() -> dict[str, Any]:
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (
            str(name),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ),
        "torch": torch.get_rng_state(),
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Take back :func:`random_state`. CUDA states are left out where the number of cards differs."""
    _set_host_state(state)
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():  # pragma: no cuda
        torch.cuda.set_rng_state_all(state["cuda"])


def _set_host_state(state: Mapping[str, Any]) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"].cpu())  # a checkpoint may be loaded to a card


def random_state_on(devices: Sequence[torch.device]) -> dict[str, Any]:
    """Return the state of the generators of Python, NumPy, torch on the CPU, and these devices besides it."""
    states = [[device.type, torch.get_device_module(device).get_rng_state(*_argument(device))] for device in devices]
    return {**_host_state(), "devices": states}


def set_random_state_on(devices: Sequence[torch.device], state: Mapping[str, Any]) -> str:
    """Take back :func:`random_state_on`; say in words which devices it was of, where these are others.

    Their generators then stay as they are.
    """
    _set_host_state(state)
    theirs, ours = [kind for kind, _ in state["devices"]], [device.type for device in devices]
    if theirs != ours:
        return f"{_listed(theirs)}, not {_listed(ours)}"
    for device, (_, generator) in zip(devices, state["devices"], strict=True):
        torch.get_device_module(device).set_rng_state(generator.cpu(), *_argument(device))
    return ""


@contextmanager
def kept_random_state(devices: Sequence[torch.device]) -> Iterator[None]:
    """Have the generators of :func:`random_state_on` be at the end as they were."""
    state = random_state_on(devices)
    try:
        yield
    finally:
        set_random_state_on(devices, state)


def _argument(device: torch.device) -> tuple[torch.device, ...]:
    """Return what names a device to its module; Apple's has one device, and takes none."""
    return () if device.type == "mps" else (device,)


def _listed(kinds: Sequence[str]) -> str:
    return f"{len(kinds)} x {kinds[0]}" if kinds else "the CPU alone"
