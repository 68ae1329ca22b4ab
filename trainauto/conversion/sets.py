"""Data sets: their types here, and sets that are left out as a whole."""

import re
from typing import Any

from trainauto.conversion.answers import ITS_NAME, ITS_PLACE
from trainauto.conversion.draft import Draft
from trainauto.options.degradation_options import DegradationOptions, KernelOptions
from trainauto.options.source_locations import KeyPath

PAIRED, DEGRADED, EITHER = "PairedImageDataset", "RealESRGANDataset", "RealESRGANPairedDataset"
TYPES = {
    "pairedimagedataset": PAIRED,
    "paired": PAIRED,
    "realesrgandataset": DEGRADED,
    "otf": DEGRADED,
    "realesrganpaireddataset": EITHER,
    "singlegtdataset": "SingleGtDataset",
}
"""Types here by those of theirs in lower case."""

ALONE = ("singleimagedataset", "single")
"""Types of sets that have no high-quality images to compare with."""

_UPSCALE = "upscale RUN FOLDER OUT enlarges such images"
_KERNELS = frozenset(KernelOptions.model_fields)
PIPELINE_KEYS = frozenset(DegradationOptions.model_fields)


def answer_sets(draft: Draft) -> None:
    """Answer the types of all sets, and whole sets that are not here."""
    for key, chosen in draft.section("datasets").items():
        if not isinstance(chosen, dict):
            continue
        path: KeyPath = ("datasets", key)
        given = str(chosen.get("type", ""))
        if key.startswith("test") and not draft.is_test:
            draft.leave(path, "training does not read it", "a test file names it: test RUN -opt FILE")
        elif key == "train" and draft.is_test:
            draft.leave(path, "a test does not train")
        elif given.lower() in ALONE:
            draft.leave(path, f"a set of type {given} has nothing to compare with", _UPSCALE)
        elif given.lower() in TYPES:
            _answer_type(draft, path, given)
        elif key != "train":
            draft.leave(path, f"there is no set {given} here", "PairedImageDataset reads single images")
        elif "type" in chosen:
            near = "PairedImageDataset, RealESRGANDataset or GTImageDataset"
            draft.miss((*path, "type"), (*path, "type"), f"there is no set {given} here", near)


def _answer_type(draft: Draft, path: KeyPath, given: str) -> None:
    name = TYPES[given.lower()]
    if name.lower() == given.lower():
        draft.keep((*path, "type"))
    else:
        draft.write((*path, "type"), name, [(*path, "type")], ITS_NAME)


def kind_of_training(draft: Draft) -> str:
    """Return the type of the training set, in lower case."""
    return str(draft.written("datasets", "train", "type") or "").lower()


def makes_low_quality(draft: Draft) -> bool:
    """Return whether low-quality images are made while training goes on."""
    return kind_of_training(draft) in (DEGRADED.lower(), EITHER.lower())


def answer_degradations(draft: Draft, section: str) -> None:
    """Answer a section of degradations as their keys stand here: at the top level, those of kernels in the set."""
    for path in draft.unanswered(section):
        key = str(path[-1])
        to: KeyPath = ("datasets", "train", key) if key in _KERNELS else (key,)
        if key in _KERNELS or key in PIPELINE_KEYS:
            draft.write(to, draft.get(*path), [path], ITS_PLACE)


def drop_degradations_of_files(draft: Draft) -> None:
    """Leave out keys about degradations where no set makes low-quality images: they would be refused."""
    if makes_low_quality(draft) or draft.is_test or not kind_of_training(draft):
        return
    why, near = "no set of this file makes low-quality images", "type: RealESRGANDataset"
    for key in sorted(PIPELINE_KEYS & draft.tree.keys()):
        draft.remove((key,), why, near)
    train = draft.written("datasets", "train") or {}
    for key in sorted(_KERNELS & train.keys()):
        draft.remove(("datasets", "train", key), why, near)


def lq_side(value: Any, draft: Draft) -> Any:
    """Return the side of low-quality crops for high-quality ones of ``value`` px."""
    scale = draft.get("scale", default=1)
    whole = isinstance(value, int | float) and isinstance(scale, int) and scale > 0 and value % scale == 0
    return int(value // scale) if whole else value


def as_a_name(value: Any, draft: Draft) -> str:
    """Return a name that a folder may have."""
    del draft
    name = re.sub(r"[^\w.\- ]", "_", str(value))
    return name if re.match(r"\w", name) else f"x{name}"


def enough_lookahead(draft: Draft) -> None:
    """Draw as many batches ahead as there are workers, which could not all be busy otherwise."""
    workers = draft.written("datasets", "train", "num_worker_per_gpu")
    if isinstance(workers, int) and workers > 8:
        draft.add(("datasets", "train", "lookahead"), workers, "no fewer than num_worker_per_gpu")


def distinct_names(draft: Draft) -> None:
    """Give each evaluated set a name of its own: figures and curves are called after it."""
    taken: set[str] = set()
    for key, chosen in (draft.written("datasets") or {}).items():
        name = chosen.get("name", key) if key == "train" else chosen.get("name")
        if key != "train" and name in taken:
            path: KeyPath = ("datasets", key, "name")
            draft.take_back(path)
            draft.write(path, f"{name}_{key}", [path], "each set has a name of its own")
            name = f"{name}_{key}"
        taken.add(str(name))
