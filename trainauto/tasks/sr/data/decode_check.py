"""Decoding every image of a set once, before a run: what headers cannot tell."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.sr.data.image_io import decoded
from trainauto.tasks.sr.data.pixel_format import PixelFormat

FEW = 64
"""So many images are decoded before further processes would have started."""


def damaged_among(paths: Sequence[str], form: PixelFormat, set_name: str) -> Iterator[Problem]:
    """Yield what is wrong with each image that cannot be decoded, or that the decoder says is damaged.

    On all cores where there are many: each process hears what its own decoder says.

    Raises:
        InputError: one of these processes was killed.
    """
    look = partial(_damage, form=form)
    if len(paths) <= FEW or (os.cpu_count() or 1) == 1:
        damages = map(look, paths)
        yield from (_problem(*result, set_name) for result in zip(paths, damages, strict=True) if result[1])
        return
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as processes:
        answers = processes.map(look, paths, chunksize=16)
        try:
            yield from (_problem(*result, set_name) for result in zip(paths, answers, strict=True) if result[1])
        except BrokenProcessPool as error:
            advice = "Memory may have run out. Free some, or leave decode_all out."
            raise InputError(
                Problem(f"dataset '{set_name}': a process that decodes images was killed", advice=advice)
            ) from error


def _damage(path: str, form: PixelFormat) -> str:
    try:
        return decoded(path, form)[1]
    except InputError as error:
        return error.problems[0].message


def _problem(path: str, damage: str, set_name: str) -> Problem:
    what = damage if path in damage else f"{path} is damaged: {damage}"
    return Problem(f"dataset '{set_name}': {what}", advice="Copy or download it again, or leave it out.")
