"""What ``python -m trainauto upscale`` does: picture after picture, each whole or not there at all."""

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from trainauto.builders.data import trains_on_luma
from trainauto.commands.common_arguments import named_network
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import OTHERS_ARE_DONE_S, remove_leftovers
from trainauto.core.process import without_memory_limit
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible, visible_lines
from trainauto.inference.load_network import GREY_ALONE, LoadedNetwork
from trainauto.inference.upscale import TileFigures, Upscaler, limited_meter
from trainauto.memory.tracing.fake_tensors import warm_up
from trainauto.tasks.sr.data.image_files import IMAGE_SUFFIXES, images_below, others_in_words
from trainauto.tasks.sr.data.large_images import ImageWriter, read_picture
from trainauto.tasks.sr.data.png_chunks import colour_space, mark_in


@dataclass(frozen=True)
class Job:
    """A picture to be enlarged, the file it goes to, and its name for people."""

    source: Path
    target: Path
    name: str


@dataclass
class Tally:
    """What has been done.

    Attributes:
        pictures: enlarged ones.
        pixels: of the input.
        skipped: pictures that were there already.
        unmarked: those of them that do not say which network made them.
        failed: pictures that could not be enlarged.
        seconds: for all of it, decoding and writing included.
    """

    pictures: int = 0
    pixels: int = 0
    skipped: int = 0
    unmarked: int = 0
    failed: int = 0
    seconds: float = 0.0


def upscale(parsed: argparse.Namespace, budget_bytes: int | None) -> int:
    """Enlarge what the arguments name; return 0, or 2 where a picture could not be enlarged.

    Raises:
        InputError: nothing can be enlarged.
    """
    console = Console(stderr=parsed.json, highlight=False, markup=False, soft_wrap=True)
    jobs = planned(parsed.input, parsed.output)
    for folder in {job.target.parent for job in jobs}:
        remove_leftovers(folder, older_than_s=OTHERS_ARE_DONE_S)
    if parsed.input.is_dir() and (others := others_in_words(parsed.input)):
        console.print(f"files in {visible(str(parsed.input))} that are no pictures of a kind that is read: {others}")
    device = _device(parsed.device)
    warm_up()  # what traces load is there before memory is counted
    meter = limited_meter(device, budget_bytes)
    with without_memory_limit():
        trained = named_network(parsed, device)
        _refuse_luma(trained)
        mark = _mark_of(trained)
        check_existing(jobs, mark, overwrite=parsed.overwrite)
        upscaler = Upscaler(trained, meter, tile_px=parsed.tile, overlap_px=parsed.overlap, say=console.print)
    console.print(_network_in_words(trained))
    if trained.channels == 1:
        console.print(GREY_ALONE)
    start, tally = time.perf_counter(), Tally()
    try:
        _enlarge_all(jobs, upscaler, trained, tally, console, mark, overwrite=parsed.overwrite)
    except KeyboardInterrupt:
        console.print("stopped: pictures that are there are whole, and the same command continues with the others")
        return 130
    tally.seconds = time.perf_counter() - start
    if parsed.json:
        figures = {**asdict(tally), **asdict(upscaler.figures), "overlap_px": upscaler.overlap_px}
        print(json.dumps({**figures, "limit_bytes": meter.limit_bytes}))
    else:
        for line in _summary(tally, upscaler.figures, meter.limit_bytes):
            console.print(line)
    return 2 if tally.failed else 0


def planned(source: Path, target: Path) -> list[Job]:
    """Return which picture goes where.

    Raises:
        InputError: there is no picture, or one would be overwritten.
    """
    if source.is_dir():
        jobs = _of_folder(source, target)
    elif source.is_file():
        jobs = [_of_file(source, target)]
    else:
        raise InputError(Problem(f"there is no {source}", advice="INPUT is a picture, or a folder of pictures."))
    inputs = {job.source.resolve() for job in jobs}
    for job in jobs:
        if job.target.resolve() in inputs:
            message = f"{job.target} is one of the pictures to be enlarged"
            raise InputError(Problem(message, advice="Name another OUTPUT: nothing is read and overwritten."))
    return jobs


def check_existing(jobs: Sequence[Job], mark: str, *, overwrite: bool) -> None:
    """Refuse to leave pictures of another network among those of this one.

    Raises:
        InputError: names one, and what made it.
    """
    made = {job.target: mark_in(job.target) for job in jobs if not overwrite and job.target.exists()}
    others = {target: other for target, other in made.items() if other and _digest(other) != _digest(mark)}
    if others:
        target, other = next(iter(others.items()))
        more = f", and {counted(len(others) - 1, 'more picture')} of other networks" if len(others) > 1 else ""
        what = f"{target} was made by another network ({other.partition(' ')[2]}){more}"
        raise InputError(Problem(what, advice="Name another OUTPUT, or replace what is there with --overwrite."))


def _refuse_luma(trained: LoadedNetwork) -> None:
    """Refuse a network that was trained on BT.601's Y: other grey values would give wrong pictures.

    Raises:
        InputError: its run's options say so.
    """
    if trains_on_luma(trained.loaded.options):
        message = f"{visible(trained.name)} was trained on luma (color: y), which upscale does not convert to"
        raise InputError(Problem(message, advice="Enlarge with a network that was trained on rgb."))


def _mark_of(trained: LoadedNetwork) -> str:
    """Return what pictures say of the network that made them: a digest of its weights, and words for people."""
    digest = hashlib.sha256(f"x{trained.scale}".encode())
    for name, tensor in sorted(trained.network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return f"{digest.hexdigest()[:32]} {_network_in_words(trained)}"


def _digest(mark: str) -> str:
    return mark.partition(" ")[0]


def _of_folder(source: Path, target: Path) -> list[Job]:
    if target.is_file() or target.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(Problem(f"{target} is no folder", advice="INPUT is one, so OUTPUT must be one, too."))
    if target.resolve() != source.resolve() and target.resolve().is_relative_to(source.resolve()):
        message = f"{target} lies in {source}"
        raise InputError(Problem(message, advice="The next run would enlarge its own pictures: name a folder outside."))
    files = images_below(source)
    if not files:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        others = others_in_words(source)
        held = f"; it holds {others}" if others else ""
        raise InputError(Problem(f"no pictures in {source}{held}", advice=f"Pictures end in {kinds}."))
    # Some file systems do not tell A from a.
    counts = Counter(file.key.casefold() for file in files)
    jobs = []
    for file in files:
        path = Path(file.path)
        name = path.relative_to(source).as_posix()
        # a.jpg beside a.png: both keep what tells them apart.
        stem = name if counts[file.key.casefold()] > 1 else file.key
        jobs.append(Job(path, target / f"{stem}.png", name))
    return jobs


def _of_file(source: Path, target: Path) -> Job:
    if target.is_dir() or not target.suffix:
        target = target / f"{source.stem}.png"
    if target.suffix.lower() != ".png":
        raise InputError(Problem(f"{target}: pictures are written as PNG", advice="Name a .png, or a folder."))
    return Job(source, target, source.name)


def _enlarge_all(
    jobs: list[Job],
    upscaler: Upscaler,
    trained: LoadedNetwork,
    tally: Tally,
    console: Console,
    mark: str,
    *,
    overwrite: bool,
) -> None:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    # Drawn by hand: a thread that redraws would need memory of its own under the limit.
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as bar:
        for number, job in enumerate(jobs, 1):
            if job.target.exists() and not overwrite:
                tally.skipped += 1
                tally.unmarked += not mark_in(job.target)
                continue
            task = bar.add_task(visible(f"{number}/{len(jobs)} {job.name[-30:]}"), total=None)
            try:
                console.print(_enlarge(job, upscaler, trained, tally, bar, task, mark))
            except InputError as error:
                tally.failed += 1
                console.print(visible_lines(f"error: {visible(job.name)}: {error}"), style="red")
            bar.remove_task(task)


def _enlarge(
    job: Job, upscaler: Upscaler, trained: LoadedNetwork, tally: Tally, bar: Progress, task: TaskID, mark: str
) -> str:
    """Enlarge one picture; return the line about it."""
    start = time.perf_counter()
    with without_memory_limit() as limited:
        picture = read_picture(str(job.source), trained.channels)
        height, width = picture.pixels.shape[:2]
        size, has_alpha = (height * trained.scale, width * trained.scale), picture.alpha is not None
        bar.update(task, total=height * width)
        job.target.parent.mkdir(parents=True, exist_ok=True)
        with ImageWriter(job.target.parent, *size, upscaler.out_channels, has_alpha=has_alpha) as canvas:
            with limited():
                upscaler.enlarge(picture, canvas, lambda pixels: bar.update(task, advance=pixels, refresh=True))
            profile, pictures = picture.profile, picture.pictures
            del picture
            canvas.save(job.target, profile, mark)
            lost = profile and not canvas.holds(profile)
    tally.pictures += 1
    tally.pixels += height * width
    seconds = time.perf_counter() - start
    remark = f"; without its profile of {visible(colour_space(profile))}, which no RGB is of" if lost else ""
    remark += f"; the first of its {pictures} pictures" if pictures > 1 else ""
    return f"{visible(job.name)}: {width}x{height} to {size[1]}x{size[0]} in {seconds:.1f} s{remark}"


def _device(word: str) -> torch.device:
    if word == "cuda" and not torch.cuda.is_available():
        raise InputError(Problem("torch finds no CUDA device", advice="Use --device auto, or install torch for CUDA."))
    use_cuda = word != "cpu" and torch.cuda.is_available()
    return torch.device("cuda", torch.cuda.current_device()) if use_cuda else torch.device("cpu")


def _network_in_words(trained: LoadedNetwork) -> str:
    return f"{visible(trained.name)}: {trained.loaded.options.network_g.type} x{trained.scale}{visible(trained.origin)}"


def _summary(tally: Tally, figures: TileFigures, limit_bytes: int | None) -> list[str]:
    """Return the last lines."""
    megapixels = tally.pixels / 1e6
    unmarked = f" ({tally.unmarked} of them do not say which network made them)" if tally.unmarked else ""
    remarks = [
        f", {count} {word}"
        for count, word in ((tally.skipped, f"there already{unmarked}"), (tally.failed, "could not be enlarged"))
        if count
    ]
    pictures = counted(tally.pictures, "picture")
    lines = [f"{pictures}, {megapixels:.2f} megapixels of input in {tally.seconds:.1f} s{''.join(remarks)}"]
    if figures.tiles:
        tiles = (
            "run whole, without tiles"
            if figures.is_whole
            else f"cut into {counted(figures.tiles, 'tile')} of up to {figures.tile_px} px"
        )
        limit = f", of {size_text(limit_bytes)}" if limit_bytes else ""
        measured = f", measured {size_text(figures.measured_bytes)}" if figures.measured_bytes else ""
        peak = f"peak of memory: predicted {size_text(figures.predicted_bytes)}{measured}{limit}"
        lines += [tiles, peak]
    return lines
