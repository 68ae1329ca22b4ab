"""What ``python -m trainauto export`` does: it writes a trained network in the format of other programs."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import skimage
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

import trainauto
from trainauto.commands.common_arguments import check_free, named_network
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_atomically
from trainauto.core.units import KIB, MIB, size_text
from trainauto.data.image_io import read_image
from trainauto.inference.load_network import AVERAGES, WEIGHTS, LoadedNetwork

PHOTOGRAPHS = ("astronaut.png", "coffee.png", "chelsea.png")
"""Of those that ship inside scikit-image: what ONNX files are compared on."""


def export(parsed: argparse.Namespace, chosen: str, size_px: tuple[int, int] | None) -> str:
    """Write the network that the arguments name; return what there is to say of it.

    Args:
        parsed: arguments of the command.
        chosen: format.
        size_px: height and width of an ONNX file for one size.

    Raises:
        InputError: no such network, or the file cannot be written.
        ExportError: ONNX cannot express the network, or does not compute the same.
    """
    found = named_network(parsed, torch.device("cpu"))
    out: Path = parsed.out or Path(_usual_name(found, chosen))
    if parsed.out is None:
        check_free(out, overwrite=parsed.overwrite)
    says: list[str] = []

    def write(temporary: Path) -> None:
        if chosen == "onnx":
            says.extend(_write_onnx(found, temporary, half=parsed.half, size_px=size_px))
        elif chosen == "pth":
            says.extend(_write_pth(found, temporary, half=parsed.half))
        else:
            says.extend(_write_safetensors(found, temporary, half=parsed.half))

    try:
        write_atomically(out, write)
    except OSError as error:
        what = f"cannot write {out}: {error.strerror or error}"
        raise InputError(Problem(what, advice="Name another file or folder.")) from error
    of_step = f" of step {found.step}" if found.step is not None else ""
    heading = f"{out}: {found.loaded.options.network_g.type} x{found.scale}, {_kind(found)}{of_step}"
    return "\n".join([f"{heading}, {_file_size(out)}", *(f"  {line}" for line in says)])


def _file_size(file: Path) -> str:
    size = file.stat().st_size
    return size_text(size) if size >= MIB else f"{size / KIB:.1f} KiB"


def facts_of(found: LoadedNetwork) -> dict[str, str]:
    """Return what a file says of the network in it: text by name, arguments as JSON."""
    chosen = found.loaded.options.network_g
    facts = {
        "name": found.name,
        "architecture": chosen.type,
        "arguments": json.dumps(chosen.arguments),
        "scale": str(found.scale),
        "weights": _kind(found),
        "trainauto_version": trainauto.__version__,
    }
    return facts | ({"step": str(found.step)} if found.step is not None else {})


def _write_safetensors(found: LoadedNetwork, file: Path, *, half: bool) -> list[str]:
    facts = facts_of(found)
    state = _state_of(found.network.state_dict(), half=half)
    # By way of memory: safetensors' own writer makes files that only their owner can read.
    file.write_bytes(to_bytes(state, metadata={"format": "pt", **facts}))
    return wrap(f"metadata: {', '.join(facts)}", 78, subsequent_indent="  ")


def _write_pth(found: LoadedNetwork, file: Path, *, half: bool) -> list[str]:
    """Write ``params`` and, where there are averages, ``params_ema``: what BasicSR and Real-ESRGAN read."""
    own = found.network.state_dict()
    states: dict[str, Mapping[str, Tensor]] = {"params": own}
    if found.is_average:
        beside = found.weights_file.with_name(WEIGHTS)
        is_pair = found.step is not None and found.weights_file.name == AVERAGES and beside.is_file()
        stepped = load_file(beside) if is_pair else own
        states = {"params": {name: stepped[name] for name in own}, "params_ema": own}  # safetensors sorts by name
    plain = {key: _state_of(state, half=half) for key, state in states.items()}
    with file.open("wb") as opened:  # by a name, torch would write the temporary one into the archive
        torch.save(plain, opened)
    return [f"entries: {', '.join(plain)}; they load with torch.load(..., weights_only=True)"]


def _write_onnx(found: LoadedNetwork, file: Path, *, half: bool, size_px: tuple[int, int] | None) -> list[str]:
    import onnxruntime

    from trainauto.models.onnx_file import INPUT, OPSET, OUTPUT, write_onnx

    written = write_onnx(
        found.network,
        file,
        _photographs(found.channels),
        scale=found.scale,
        half=half,
        size_px=size_px,
        facts=facts_of(found),
    )
    differences = (f"{one.largest:.2g} on {'x'.join(map(str, one.shape))}" for one in written.differences)
    return [
        f"ONNX opset {OPSET}, {written.dtype}, values from 0 to 1",
        f"input  {INPUT:<9} ({', '.join(map(str, written.takes))})",
        f"output {OUTPUT:<9} ({', '.join(map(str, written.gives))})",
        f"onnxruntime {onnxruntime.__version__} against torch, on photographs: differs by at most",
        f"{', '.join(differences)} (limit {written.limit:.1g})",
    ]


def _state_of(state: Mapping[str, Tensor], *, half: bool) -> dict[str, Tensor]:
    return {
        name: (tensor.half() if half and tensor.is_floating_point() else tensor).contiguous().clone()
        for name, tensor in state.items()
    }


def _photographs(channels: int) -> list[NDArray[np.float32]]:
    """Return photographs as (channels, H, W) from 0 to 1; channels beyond colour repeat it."""
    folder = Path(skimage.__file__).parent / "data"
    found: list[NDArray[np.float32]] = []
    for name in PHOTOGRAPHS:
        pixels: NDArray[Any] = read_image(str(folder / name), 1 if channels == 1 else 3)
        planes = pixels.transpose(2, 0, 1).astype(np.float32) / 255
        found.append(np.resize(planes, (channels, *planes.shape[1:])))
    return found


def _kind(found: LoadedNetwork) -> str:
    return "averaged weights" if found.is_average else "weights"


def _usual_name(found: LoadedNetwork, chosen: str) -> str:
    step = f"_{found.step}" if found.step is not None else ""
    return f"{found.name}_x{found.scale}{step}.{chosen}"
