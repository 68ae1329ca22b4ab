"""Which image files the samples of a set are made of: all that are there, or those that a run began with."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trainauto.data.sample_files import BETWEEN_FILES, Kept, SampleFiles, SetChanges
from trainauto.tasks.sr.data.image_files import ImageFile, read_before
from trainauto.tasks.sr.data.image_source import in_database, size_bytes

Files = tuple[ImageFile, ...]
"""Of a sample: the high-quality image, and the low-quality one where it is a file."""

Sides = Sequence[Sequence[ImageFile]]
"""The high-quality images; and the low-quality ones, where they are files."""


def files_taken(
    sides: Sides, kept: Kept | None, matched: Callable[[Sides], list[Files]]
) -> tuple[list[Files], SetChanges]:
    """Return the files of each sample, and how they differ from those that a run began with.

    Where all files are there that it began with, these are taken, in their order of then; else those that are there.

    Args:
        sides: all that are there.
        kept: what the run began with; ``None`` takes all that are there.
        matched: makes samples of files.

    Raises:
        InputError: files make no samples.
    """
    if kept is None:
        return _once(matched(sides)), SetChanges()
    if kept.files is None:
        recent = tuple(file.name for file in sides[0] if file.is_recent)
        return matched([read_before(side) for side in sides]), SetChanges(newly_readable=recent)
    by_name = [{file.name: file for file in side} for side in sides]
    parts = [name.split(BETWEEN_FILES) for name in kept.files.names]
    # A set that was of pairs, and is not any more, has names of two files for samples of one.
    is_there = all(
        len(names) == len(by_name) and all(name in known for name, known in zip(names, by_name, strict=True))
        for names in parts
    )
    if not is_there:
        samples = _once(matched(sides))
        return samples, SetChanges.between(kept.files, sample_files_of(samples))
    samples = [tuple(known[name] for name, known in zip(names, by_name, strict=True)) for names in parts]
    taken = {files[0].real_path for files in samples}
    added = tuple(file.name for file in sides[0] if file.real_path not in taken)
    return samples, replace(SetChanges.between(kept.files, sample_files_of(samples)), added=added)


def _once(samples: Iterable[Files]) -> list[Files]:
    """Leave out samples that links lead to a second time within a root, by where their files really are."""
    seen: dict[tuple[tuple[int, str], ...], Files] = {}
    for files in samples:
        seen.setdefault(tuple((file.root, file.real_path) for file in files), files)
    return list(seen.values())


def sample_files_of(samples: Sequence[Files]) -> SampleFiles:
    """Return the files of samples by name and size."""
    names = tuple(BETWEEN_FILES.join(file.name for file in files) for files in samples)
    return SampleFiles(names, tuple(sum(_size_bytes(file.path) for file in files) for files in samples))


def _size_bytes(path: str) -> int:
    try:
        # For each file of a set, at each start.
        return size_bytes(path) if in_database(path) else os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0  # who reads it says so
