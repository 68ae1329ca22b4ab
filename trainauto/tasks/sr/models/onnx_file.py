"""A network as an ONNX file for images of any size, checked with onnxruntime against torch."""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import onnxscript
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainauto.core.errors import TrainautoError
from trainauto.core.plan import SizeRequirements

OPSET = 18
"""What torch's exporter writes by itself from 2.11 to 2.13: no conversion, and every runtime since 2023 reads it."""

INPUT, OUTPUT = "image", "enlarged"

LIMIT = 1e-4
"""Largest difference between onnxruntime and torch in float32, for images from 0 to 1: a fortieth of an 8-bit step."""

LIMIT_HALF = 2 / 255
"""The same for float16 against torch in float32: rounding that may just be seen in 8 bits."""

_USUAL_SIZES_PX = ((2, 60, 84), (1, 45, 53))
"""Batch, height and width of what is compared; odd sides, since networks pad them."""


class ExportError(TrainautoError):
    """A network cannot be written as ONNX, or the file does not do what the network does. Nothing is left behind."""


@dataclass(frozen=True)
class Difference:
    """What one comparison with torch gave.

    Attributes:
        shape: of the input, (N, C, H, W).
        largest: largest absolute difference of a value, for images from 0 to 1.
    """

    shape: tuple[int, ...]
    largest: float


@dataclass(frozen=True)
class Written:
    """What an ONNX file takes and gives.

    Attributes:
        takes: shape of the input, names where any size will do.
        gives: shape of the output.
        dtype: of both.
        differences: one a comparison.
        limit: what they had to stay within.
    """

    takes: tuple[int | str, ...]
    gives: tuple[int | str, ...]
    dtype: str
    differences: tuple[Difference, ...]
    limit: float


def write_onnx(
    network: nn.Module,
    file: Path,
    photographs: Sequence[NDArray[np.float32]],
    *,
    scale: int,
    half: bool = False,
    size_px: tuple[int, int] | None = None,
    facts: Mapping[str, str] | None = None,
) -> Written:
    """Write a network as ONNX and compare it with torch on photographs.

    Args:
        network: in evaluation mode, on the CPU; maps (N, C, h, w) to (N, C', h * scale, w * scale).
        file: where to; it is there afterwards only if the check holds.
        photographs: two or more, each (C, H, W) from 0 to 1, larger than what is compared.
        scale: enlargement factor.
        half: write float16, input and output included.
        size_px: height and width where the file is to be for one size and one image only; any otherwise.
        facts: what the file says of itself.

    Raises:
        ExportError: torch cannot export it, or the file differs from the network.
    """
    exported = with_merged_convolutions(network)
    exported = exported.half() if half else exported
    shapes = shapes_compared(network, photographs[0].shape[0], size_px)
    with _quiet():
        program = _program(exported, shapes[0], half=half, any_size=size_px is None)
        program.model.metadata_props.update(facts or {})
        program.save(file, external_data=False)
        limit = LIMIT_HALF if half else LIMIT
        try:
            differences, channels = _compared(network, file, photographs, shapes, half=half)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
    worst = max(difference.largest for difference in differences)
    if not worst <= limit:  # NaN is no difference that could be let pass
        file.unlink(missing_ok=True)
        size = "x".join(map(str, max(differences, key=lambda difference: difference.largest).shape))
        message = f"the ONNX file differs from the network by {worst:.3g} on {size}, where {limit:.1g} is the limit"
        advice = "\n  float16 is too coarse for this network: leave --half out." if half else ""
        if size_px is None:
            advice += "\n  --size HxW writes a file for one size, for networks that write sizes into what they compute."
        raise ExportError(f"{message}; it is not kept.{advice}")
    sides = size_px or ("height", "width")
    takes = (1 if size_px else "batch", photographs[0].shape[0], *sides)
    gives = (takes[0], channels, *(s * scale if isinstance(s, int) else f"{scale}*{s}" for s in sides))
    return Written(takes, gives, "float16" if half else "float32", differences, limit)


def with_merged_convolutions(network: nn.Module) -> nn.Module:
    """Return a copy in which a plain convolution stands for each module that equals one, as those of SPAN do.

    Such a module has ``merged()``, which returns weight (C_out, C_in / groups, k, k) and bias (C_out,), and ``groups``
    where they are not 1. It may have an activation ``act`` behind it. Files become smaller (SPAN's a fifth) and half
    precision rounds the merged weights once; export takes a third of the time.
    """
    network = copy.deepcopy(network)
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            merged = getattr(child, "merged", None)
            if callable(merged):
                with torch.no_grad():
                    weight, bias = merged()
                conv, act = _convolution(weight, bias, getattr(child, "groups", 1)), getattr(child, "act", None)
                setattr(parent, name, conv if act is None else nn.Sequential(conv, act))
    return network


def _convolution(weight: Tensor, bias: Tensor, groups: int) -> nn.Conv2d:
    made, given, height, width = weight.shape
    conv = nn.Conv2d(given * groups, made, (height, width), padding=(height // 2, width // 2), groups=groups)
    conv.weight, conv.bias = nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)
    return conv.eval()


def _program(network: nn.Module, shape: tuple[int, ...], *, half: bool, any_size: bool) -> Any:
    example = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    try:
        return torch.onnx.export(
            network,
            (example.half() if half else example,),
            dynamo=True,  # the older exporter writes sizes into SwinIR and refuses SPAN
            opset_version=OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: "batch", 2: "height", 3: "width"},) if any_size else None,
            custom_translation_table={torch.ops.aten.remainder.Scalar: _remainder},
            verbose=False,
        )
    except Exception as error:  # the exporter's own errors, and whatever the network raises
        advice = "\n  --size HxW writes a file for one size." if any_size else ""
        raise ExportError(f"torch cannot export this network: {_root_of(error)}{advice}") from error


def _remainder(self: Any, other: Any) -> Any:
    """Translate ``tensor % number``; torch's own translation fails where the number follows from an image's size."""
    op = onnxscript.opset18
    return op.Mod(self, op.CastLike(other, self))


def _root_of(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def shapes_compared(network: nn.Module, channels: int, size_px: tuple[int, int] | None) -> list[tuple[int, ...]]:
    """Return the shapes (N, C, H, W) to compare; the export is traced with the first."""
    if size_px is not None:
        return [(1, channels, *size_px), (1, channels, *size_px)]
    shapes: list[tuple[int, ...]] = [(batch, channels, *sides) for batch, *sides in _USUAL_SIZES_PX]
    needs = getattr(network, "size_requirements", SizeRequirements())
    try:
        with torch.no_grad():
            network(torch.zeros(shapes[1]))
    except RuntimeError:  # one that does not pad
        return [(*shape[:2], *(_fitting(side, needs) for side in shape[2:])) for shape in shapes]
    return shapes


def _fitting(side_px: int, needs: SizeRequirements) -> int:
    return max(-(-side_px // needs.multiple), -(-needs.minimum // needs.multiple)) * needs.multiple


def _compared(
    network: nn.Module,
    file: Path,
    photographs: Sequence[NDArray[np.float32]],
    shapes: Sequence[tuple[int, ...]],
    *,
    half: bool,
) -> tuple[tuple[Difference, ...], int]:
    """Run both on cuts of photographs; return the differences and the channels of the output."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    settings.log_severity_level = 4  # what is wrong is raised, and would be printed besides
    outputs = []
    try:
        session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
        for number, shape in enumerate(shapes):
            image = _cuts(photographs, number, shape)
            with torch.no_grad():
                expected = network(image).numpy()
            fed = image.half().numpy() if half else image.numpy()
            (output,) = session.run([OUTPUT], {INPUT: fed})
            outputs.append((shape, expected, output))
    except Exception as error:  # onnxruntime's errors have no base of their own
        raise ExportError(f"onnxruntime cannot run the file: {_root_of(error)}") from error
    for shape, expected, output in outputs:
        if output.shape != expected.shape:
            raise ExportError(f"the ONNX file makes {output.shape} of {shape}, the network {expected.shape}")
    differences = (
        Difference(shape, float(np.abs(output.astype(np.float32) - expected).max()))
        for shape, expected, output in outputs
    )
    return tuple(differences), int(outputs[0][1].shape[1])


def _cuts(photographs: Sequence[NDArray[np.float32]], first: int, shape: tuple[int, ...]) -> Tensor:
    """Return cuts of photographs as (N, C, H, W); small photographs are repeated."""
    batch, _, height, width = shape
    cuts = []
    for number in range(batch):
        image = photographs[(first + number) % len(photographs)]
        repeats = (1, -(-height // image.shape[1]), -(-width // image.shape[2]))
        image = np.tile(image, repeats)
        top, left = (image.shape[1] - height) // 2, (image.shape[2] - width) // 2
        cuts.append(image[:, top : top + height, left : left + width])
    return torch.from_numpy(np.ascontiguousarray(np.stack(cuts), np.float32))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what the exporter says of its own insides: deprecations, packages it could use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
