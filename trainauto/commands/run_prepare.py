"""What ``python -m trainauto prepare`` looks at, leaves out and writes."""

import argparse
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.builders.degradations import degradation_arguments, makes_degradations
from trainauto.commands.prepare_words import Progress, dropped_lines, remark_lines, tiles_dropped
from trainauto.commands.whole_options import load_whole
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import nearest_folder, write_text_atomically
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.options.load import super_resolution_only
from trainauto.tasks.sr.data.degraded_dataset import DegradedCrops
from trainauto.tasks.sr.data.image_files import ImageFile, distinct_names, list_images
from trainauto.tasks.sr.data.image_source import file_of, in_database
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.preparation.journal import REPORT, Entry, Journal, begun
from trainauto.tasks.sr.preparation.low_quality import SHRINKING, Degradations, LowQuality
from trainauto.tasks.sr.preparation.processes import in_processes
from trainauto.tasks.sr.preparation.tiles import Grid, tile_name
from trainauto.tasks.sr.preparation.verdicts import UNUSED, Thresholds, Verdict, verdicts
from trainauto.tasks.sr.preparation.work import Writer, look_at, remove_unfinished

PNG_SHARE = 0.6
"""Of its pixels' bytes, what a photograph takes as PNG."""

META = "meta_info.txt"

ARGUMENTS = {"tile_px": "--tile", "overlap_px": "--overlap", "scale": "--scale", "lq": "--lq"}
"""What settings of a journal are called on the command line."""


def prepare(parsed: argparse.Namespace) -> int:
    """Look at all images, say what is left out, and write the rest where that is asked for.

    Returns:
        2 where an image is damaged or no tile is left, else 0.

    Raises:
        InputError: the arguments cannot be used together, or with what is in OUT.
    """
    low_quality, what_lq = _low_quality(parsed)
    grid = _grid(parsed, low_quality.scale if low_quality else 1)
    files = _files(parsed.sources, parsed.out)
    writer = Writer(parsed.out, grid, low_quality)
    thresholds = Thresholds(parsed.duplicates, parsed.detail, parsed.blockiness)
    with Journal(parsed.out) as journal:
        gone = _continue(journal, {**asdict(grid), "lq": what_lq}, files, parsed.out)
        try:
            _look(journal, files, grid, parsed.workers)
            found = verdicts(journal.entries, thresholds)
            _say_found(journal.entries, found, thresholds)
            if parsed.write:
                _write(journal, gone, found, writer, parsed.workers)
            else:
                journal.entries |= gone  # the next --write removes their tiles
                print(f"Nothing is written without --write but {parsed.out / REPORT}.")
        except KeyboardInterrupt:
            print("\nThe same command continues.")
            raise
        facts = {"thresholds": asdict(thresholds), "dropped_tiles": tiles_dropped(found)}
        journal.finish(facts, {name: _in_report(found.get(name, UNUSED)) for name in journal.entries})
    damaged = any(entry.damage for entry in journal.entries.values())
    return 2 if damaged or not any(verdict.kept for verdict in found.values()) else 0


def _low_quality(parsed: argparse.Namespace) -> tuple[LowQuality | None, str]:
    """Return how partners are made, and a word for it that changes with it."""
    if parsed.lq is None:
        return None, ""
    if parsed.lq in SHRINKING:
        return LowQuality(parsed.scale, parsed.lq), parsed.lq
    loaded = super_resolution_only(load_whole(Path(parsed.lq), []), "--lq FILE", "Take --lq matlab.")
    if not makes_degradations(loaded.options.datasets.train.type):
        with locate_errors(loaded, ("datasets",)):
            advice = "Write type: RealESRGANDataset in datasets.train, or take --lq matlab."
            raise InputError(Problem("this file's training set makes no low-quality images", advice=advice))
    scale, seed = loaded.options.scale, loaded.options.manual_seed
    if parsed.scale not in (None, scale):
        message = f"--scale {parsed.scale}, and {parsed.lq} has scale: {scale}"
        raise InputError(Problem(message, advice="Leave --scale out."))
    arguments = degradation_arguments(loaded)
    settings, sharpening = arguments["degradations"], arguments["sharpening"]
    crops = DegradedCrops(scale, settings, sharpening, ("gt",), form=PixelFormat(), use_hflip=False, use_rot=False)
    digest = hashlib.sha256(repr((settings, sharpening, seed)).encode()).hexdigest()[:16]
    return LowQuality(scale, Degradations(crops, seed)), f"degradations {digest}"


def _grid(parsed: argparse.Namespace, scale: int) -> Grid:
    for name in ("tile", "overlap"):
        value = getattr(parsed, name)
        if value % scale:
            near = max(value // scale, name == "tile") * scale
            message = f"--{name} {value} is not a multiple of the scale, {scale}"
            raise InputError(Problem(message, advice=f"Write --{name} {near}."))
    return Grid(parsed.tile, parsed.overlap, scale)


def _files(sources: Sequence[str], out: Path) -> dict[str, str]:
    """Return the images by name.

    Raises:
        InputError: there are none, or OUT is no folder for tiles of theirs.
    """
    files: list[ImageFile] = list_images(sources, set_name=out.name)
    if stored := [file.path for file in files if in_database(file.path)]:
        message = f"{file_of(stored[0]).parent} is a database, and prepare reads files"
        raise InputError(Problem(message, advice="Name the folder that it was made of."))
    place = out.resolve()
    for source in map(Path, sources):
        if source.is_dir() and place.is_relative_to(source.resolve()):
            advice = "The next run would cut its own tiles: name a folder outside."
            raise InputError(Problem(f"OUT {out} lies in SOURCE {source}", advice=advice))
    inside = [file for file in files if Path(file.real_path).is_relative_to(place)]
    if inside:
        advice = "Name another folder for what is made."
        raise InputError(Problem(f"SOURCE has images in OUT, e.g. {inside[0].path}", advice=advice))
    nearest_there, reason = nearest_folder(out)
    if reason:
        raise InputError(Problem(f"nothing can be written in {nearest_there}: {reason}", advice="Name another folder."))
    if out.is_dir() and any(out.iterdir()) and not Journal.is_in(out):
        advice = "Name a new folder, or an empty one."
        raise InputError(Problem(f"{out} is not empty, and holds nothing that prepare made", advice=advice))
    return dict(zip(distinct_names(files), (file.real_path for file in files), strict=True))


def _continue(journal: Journal, settings: dict[str, Any], files: Mapping[str, str], out: Path) -> dict[str, Entry]:
    """Have the journal hold what is still true; return entries whose images are gone, of which tiles are there.

    Raises:
        InputError: tiles were written with other settings.
    """
    known, before = journal.entries, journal.settings
    has_tiles = any(entry.written for entry in known.values())
    if has_tiles and settings != before:
        changed = [name for name, value in settings.items() if value != before[name]]
        then, now = (
            ", ".join(f"{ARGUMENTS[name]} {of[name] or 'none'}" for name in changed) for of in (before, settings)
        )
        advice = "Give the same options, name another folder, or remove this one."
        raise InputError(Problem(f"the tiles in {out} were made with {then}, this is {now}", advice=advice))
    same_tiles = all(before.get(name) == value for name, value in settings.items() if name != "lq")
    fresh = {name: entry for name, entry in known.items() if name in files} if same_tiles else {}
    gone = {
        name: replace(entry, damage="there is no such image any more")
        for name, entry in known.items()
        if name not in files and entry.written
    }
    journal.begin(settings, {**gone, **fresh})
    journal.entries = fresh
    return gone


def _look(journal: Journal, files: Mapping[str, str], grid: Grid, workers: int) -> None:
    """Look at the images that are new, changed, or could not be used before."""
    known = journal.entries
    todo = [
        (name, source, grid)
        for name, source in files.items()
        if name not in known or known[name].damage or not known[name].is_of(Path(source))
    ]
    changed = [name for name, _, _ in todo if name in known and not known[name].damage]
    remarks = f", {len(files) - len(todo)} were looked at before" if len(todo) < len(files) else ""
    remarks += f", {len(changed)} changed since" if changed else ""
    print(f"{counted(len(files), 'image')}{remarks}", flush=True)
    progress = Progress("looking at images", len(todo))
    for entry in in_processes(look_at, todo, workers):
        before = known.get(entry.name)
        journal.note(replace(entry, written=before.written) if before else entry)
        progress.step()


def _say_found(entries: Mapping[str, Entry], found: Mapping[str, Verdict], thresholds: Thresholds) -> None:
    tiles = sum(len(entry.tiles) for entry in entries.values())
    kept = sum(len(verdict.kept) for verdict in found.values())
    for line in remark_lines(entries.values()):
        print(line)
    lines = list(dropped_lines(entries, found, thresholds))
    if lines:
        print("left out:", *lines, sep="\n")
    print(f"kept: {kept} of {counted(tiles, 'tile')}", flush=True)


def _write(
    journal: Journal, gone: Mapping[str, Entry], found: Mapping[str, Verdict], writer: Writer, workers: int
) -> None:
    """Write the tiles that are kept and not there yet, and delete those that are no longer kept."""
    remove_unfinished(writer.folder)
    for entry in gone.values():
        writer.remove(entry, entry.written)
    kept = {name: list(found.get(name, UNUSED).kept) for name in journal.entries}
    todo = [entry for name, entry in journal.entries.items() if not writer.is_done(entry, kept[name])]
    _check_room(writer, todo, kept)
    done = sum(map(len, kept.values())) - sum(len(kept[entry.name]) for entry in todo)
    if done:
        print(f"{counted(done, 'tile')} of them there already", flush=True)
    progress = Progress("writing tiles of images", len(todo))
    tasks = []
    for entry in todo:
        journal.note(begun(entry, kept[entry.name]))
        tasks.append((journal.entries[entry.name], kept[entry.name]))
    for entry in in_processes(writer.write, tasks, workers):
        journal.note(entry)
        if entry.damage and kept[entry.name]:
            print(visible(entry.damage))
        progress.step()
    _write_meta(writer, journal.entries)


def _check_room(writer: Writer, todo: Sequence[Entry], kept: Mapping[str, Sequence[int]]) -> None:
    """Say how much room tiles will take.

    Raises:
        InputError: there is less.
    """
    grid = writer.grid
    share = PNG_SHARE * (1 if writer.low_quality is None else 1 + 1 / grid.scale**2)
    values = sum(
        len(kept[entry.name]) * height * width * 3 * entry.bits // 8
        for entry in todo
        for _, _, height, width in grid.boxes(entry.height_px, entry.width_px)[:1]
    )
    needed, free = share * values, shutil.disk_usage(writer.folder).free
    if needed > free:
        message = f"tiles take about {size_text(needed)}, and the disk of {writer.folder} has {size_text(free)} left"
        raise InputError(Problem(message, advice="Make room, or name a folder on another disk."))
    if values:
        print(f"tiles to write take about {size_text(needed)}; {size_text(free)} are free", flush=True)


def _write_meta(writer: Writer, entries: Mapping[str, Entry]) -> None:
    """Write the list of tiles, and say how many there are and which room they take."""
    lines, size_bytes = [], 0
    for entry in entries.values():
        boxes = writer.grid.boxes(entry.height_px, entry.width_px)
        for number in entry.written:
            _, _, height, width = boxes[number - 1]
            lines.append(f"{tile_name(entry.name, number)} ({height},{width},3)\n")
            size_bytes += sum(file.stat().st_size for file in writer.files_of(entry.name, number))
    write_text_atomically(writer.folder / META, "".join(sorted(lines)))
    pairs = "" if writer.low_quality is None else ", each with its partner in lq,"
    print(f"{writer.folder}: {counted(len(lines), 'tile')} in gt{pairs} take {size_text(size_bytes)}")


def _in_report(verdict: Verdict) -> dict[str, Any]:
    return {"kept": verdict.kept, "dropped": verdict.dropped, "like": verdict.like}
