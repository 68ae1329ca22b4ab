"""``export``: write a trained network as a file that other programs read."""

import argparse
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from trainauto.commands.common_arguments import (
    Commands,
    check_free,
    check_network,
    refuse_given,
    takes_network,
    task_of_run,
)
from trainauto.core.errors import InputError, Problem, nearest

if TYPE_CHECKING:
    from trainauto.options.finetune_options import FinetuneOptions
    from trainauto.options.load import LoadedOptions
    from trainauto.storage.run_directory import RunDirectory

FORMATS = ("safetensors", "pth", "onnx")
NEEDED = {"safetensors": (), "pth": (), "onnx": ("onnx", "onnxscript", "onnxruntime")}
"""Packages that a format needs beside what trainauto always has."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "export",
        help="write a trained model for other programs",
        description="Write a trained network for other programs, with its averaged weights if there are any. Image "
        "networks become safetensors, .pth or ONNX, models of other tasks a folder.",
    )
    takes_network(parser)
    parser.add_argument(
        "out",
        nargs="?",
        type=Path,
        metavar="OUT",
        help="file or folder to write; default NAME_xSCALE_STEP.FORMAT in this folder, for other tasks NAME_STEP",
    )
    parser.add_argument("--format", choices=FORMATS, help="default: by the suffix of OUT, else safetensors")
    parser.add_argument("--half", action="store_true", help="float16 instead of float32")
    parser.add_argument("--size", metavar="HxW", help="onnx: for images of this size only, e.g. 256x256; default any")
    parser.add_argument("--merge", action="store_true", help="merge adapters into a whole model")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing OUT: a file, or a folder that only holds an export",
    )
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if (
        (parsed.opt or parsed.weights) is not None
        and parsed.run is not None
        and parsed.out is None
        and not parsed.run.is_dir()
    ):
        parsed.run, parsed.out = None, parsed.run  # beside these there is no RUN, so that the first place is OUT's
    check_network(parsed)
    if parsed.run is None or (found := task_of_run(parsed.run)) is None:
        print(export_network(parsed))
        return 0
    task, directory, loaded = found
    print(task.export(directory, loaded, parsed))
    return 0


def export_network(parsed: argparse.Namespace) -> str:
    """Write a network that enlarges images, of a run or a file of weights; return what there is to say of it."""
    if parsed.merge:
        raise InputError(Problem("--merge is for adapters of fine-tuned models", advice="Leave it out."))
    chosen = _chosen_format(parsed.format, parsed.out)
    size_px = _size_px(parsed.size, chosen)
    if parsed.out is not None:
        check_free(parsed.out, overwrite=parsed.overwrite)
    if missing := [name for name in NEEDED[chosen] if importlib.util.find_spec(name) is None]:
        lack = f"{', '.join(missing[:-1])} and {missing[-1]}, which are" if missing[1:] else f"{missing[0]}, which is"
        message = f"{chosen} files need {lack} not installed"
        raise InputError(Problem(message, advice="pip install 'trainauto[export]'"))

    from trainauto.commands.run_export import export

    if chosen == "onnx":
        print("exporting and comparing; a large network takes minutes", flush=True)
    return export(parsed, chosen, size_px)


def export_adapters(
    parsed: argparse.Namespace, directory: "RunDirectory", loaded: "LoadedOptions[FinetuneOptions]"
) -> str:
    """Write a fine-tuned model, or its adapters; return what there is to say of it."""
    why = "is for networks that enlarge images; a fine-tuned model becomes a folder"
    of_images = {"--format": parsed.format, "--size": parsed.size}
    refuse_given(of_images, why, "export RUN FOLDER, with --merge for a whole model.")

    from trainauto.commands.run_export_finetuned import export_finetuned

    which, flags = (
        parsed.checkpoint or "best",
        {name: getattr(parsed, name) for name in ("merge", "half", "overwrite")},
    )
    return export_finetuned(directory, loaded, which, parsed.out, **flags)


def _chosen_format(named: str | None, out: Path | None) -> str:
    suffix = out.suffix.lower().removeprefix(".") if out is not None else ""
    if named is None and out is not None and suffix not in FORMATS:
        message = f"{out}: '.{suffix}' is no format" if suffix else f"{out} has no suffix that would tell its format"
        raise InputError(Problem(message, advice=f"{nearest(suffix, FORMATS)} --format says it, too."))
    if named is not None and suffix in FORMATS and suffix != named:
        raise InputError(Problem(f"{out} and --format {named} contradict each other", advice="Leave one out."))
    return named or suffix or FORMATS[0]


def _size_px(text: str | None, chosen: str) -> tuple[int, int] | None:
    if text is None:
        return None
    if chosen != "onnx":
        raise InputError(Problem(f"--size is for onnx; {chosen} holds weights only", advice="Leave it out."))
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text.lower())
    if match is None:
        raise InputError(Problem(f"--size {text} is no size", advice="Height and width in pixels, e.g. 256x256."))
    return int(match[1]), int(match[2])
