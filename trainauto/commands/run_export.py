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
from trainauto.core.files import OTHERS_ARE_DONE_S, remove_leftovers, write_atomically
from trainauto.core.units import KIB, MIB, size_text
from trainauto.inference.load_network import AVERAGED, AVERAGES, WEIGHTS, LoadedNetwork
from trainauto.models.usable_weights import check_values
from trainauto.tasks.sr.archs import SPAN, RRDBNet, SRVGGNetCompact, SwinIR
from trainauto.tasks.sr.data.image_io import read_image
from trainauto.tasks.sr.spandrel_archs.network import AnySize

PHOTOGRAPHS = ("astronaut.png", "coffee.png", "chelsea.png")
"""Of those that ship inside scikit-image: what ONNX files are compared on."""

KNOWN_TO_SPANDREL = (RRDBNet, SPAN, SRVGGNetCompact, SwinIR)
"""Networks of ours that spandrel has, too."""


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
    trained = named_network(parsed, torch.device("cpu"))
    out: Path = parsed.out or Path(_usual_name(trained, chosen))
    if parsed.out is None:
        check_free(out, overwrite=parsed.overwrite)
    says: list[str] = []

    def write(temporary: Path) -> None:
        if chosen == "onnx":
            says.extend(_write_onnx(trained, temporary, half=parsed.half, size_px=size_px))
        elif chosen == "pth":
            says.extend(_write_pth(trained, temporary, half=parsed.half))
        else:
            says.extend(_write_safetensors(trained, temporary, half=parsed.half))

    remove_leftovers(out.parent, older_than_s=OTHERS_ARE_DONE_S)
    try:
        write_atomically(out, write)
    except OSError as error:
        message = f"cannot write {out}: {error.strerror or error}"
        raise InputError(Problem(message, advice="Name another file or folder.")) from error
    if chosen != "onnx" and isinstance(trained.network, RRDBNet) and trained.scale == 3:
        words = (
            "spandrel (chaiNNer, ComfyUI) takes this file for scale 2, for names and shapes are the same: write ONNX"
        )
        says.extend(wrap(f"{words} for such programs.", 78, subsequent_indent="  "))
    of_step = f" of step {trained.step}" if trained.step is not None else ""
    heading = f"{out}: {trained.loaded.options.network_g.type} x{trained.scale}, {_kind(trained)}{of_step}"
    run = [f"run {trained.run.name}"] if trained.run is not None else []
    unknown = _unknown_elsewhere(trained) if chosen != "onnx" else []
    return "\n".join([f"{heading}, {_file_size(out)}", *(f"  {line}" for line in (*run, *says, *unknown))])


def _unknown_elsewhere(trained: LoadedNetwork) -> list[str]:
    """Return what is said of a network that programs which read weights by spandrel do not know."""
    if type(trained.network) in KNOWN_TO_SPANDREL or isinstance(trained.network, AnySize):  # DWT is built upon SwinIR
        return []
    module = type(trained.network).__module__
    words = "spandrel (chaiNNer, ComfyUI) does not know this network"
    if module.partition(".")[0] != "trainauto":
        words = f"{module} defines this network: spandrel, and programs that read weights by it, do not know it"
    return wrap(f"{words}; ONNX needs no definition (--format onnx)", 78, subsequent_indent="  ")


def _file_size(file: Path) -> str:
    size = file.stat().st_size
    return size_text(size) if size >= MIB else f"{size / KIB:.1f} KiB"


def facts_of(trained: LoadedNetwork) -> dict[str, str]:
    """Return what a file says of the network in it: text by name, arguments as JSON."""
    chosen = trained.loaded.options.network_g
    facts = {
        "name": trained.name,
        "architecture": chosen.type,
        "arguments": json.dumps(chosen.arguments),
        "scale": str(trained.scale),
        "weights": _kind(trained),
        "trainauto_version": trainauto.__version__,
    }
    return facts | ({"step": str(trained.step)} if trained.step is not None else {})


def _write_safetensors(trained: LoadedNetwork, file: Path, *, half: bool) -> list[str]:
    facts = facts_of(trained)
    state = _state_of(trained.network.state_dict(), half=half)
    # By way of memory: safetensors' own writer makes files that only their owner can read.
    file.write_bytes(to_bytes(state, metadata={"format": "pt", **facts}))
    return wrap(f"metadata: {', '.join(facts)}", 78, subsequent_indent="  ")


def _write_pth(trained: LoadedNetwork, file: Path, *, half: bool) -> list[str]:
    """Write ``params`` and, where there are averages, ``params_ema``: what BasicSR and Real-ESRGAN read."""
    own = trained.network.state_dict()
    states: dict[str, Mapping[str, Tensor]] = {"params": own}
    if trained.is_average:
        beside = trained.weights_file.with_name(WEIGHTS)
        is_pair = trained.step is not None and trained.weights_file.name == AVERAGES and beside.is_file()
        stepped = load_file(beside) if is_pair else own
        check_values(beside, stepped, own)
        states = {"params": {name: stepped[name] for name in own}, "params_ema": own}  # safetensors sorts by name
    plain = {key: _state_of(state, half=half) for key, state in states.items()}
    with file.open("wb") as opened:  # by a name, torch would write the temporary one into the archive
        torch.save(plain, opened)
    return [f"entries: {', '.join(plain)}; they load with torch.load(..., weights_only=True)"]


def _write_onnx(trained: LoadedNetwork, file: Path, *, half: bool, size_px: tuple[int, int] | None) -> list[str]:
    import onnxruntime

    from trainauto.tasks.sr.models.onnx_file import INPUT, OPSET, OUTPUT, write_onnx

    written = write_onnx(
        trained.network,
        file,
        _photographs(trained.channels),
        scale=trained.scale,
        half=half,
        size_px=size_px,
        facts=facts_of(trained),
    )
    differences = (
        f"{difference.largest:.2g} on {'x'.join(map(str, difference.shape))}" for difference in written.differences
    )
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
    photographs: list[NDArray[np.float32]] = []
    for name in PHOTOGRAPHS:
        pixels: NDArray[Any] = read_image(str(folder / name), 1 if channels == 1 else 3)
        planes = pixels.transpose(2, 0, 1).astype(np.float32) / 255
        photographs.append(np.resize(planes, (channels, *planes.shape[1:])))
    return photographs


def _kind(trained: LoadedNetwork) -> str:
    return AVERAGED if trained.is_average else "weights"


def _usual_name(trained: LoadedNetwork, chosen: str) -> str:
    step = f"_{trained.step}" if trained.step is not None else ""
    return f"{trained.name}_x{trained.scale}{step}.{chosen}"
