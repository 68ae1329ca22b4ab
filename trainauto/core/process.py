"""What belongs to the process as a whole: its environment before torch is loaded, its limit of memory."""

import gc
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

ENVIRONMENT = {
    # Read when torch is loaded. oneDNN's cache of primitives reserves memory it never touches: with its default of 1024
    # entries the data segment grew by 300 MB over twenty shapes, with 64 by 22 MB (and no entries at all is slower).
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    # PyTorch's own cache in front of it (ideep's): with its default of 1024 entries the heap grew by half a MiB for
    # every new shape of a small RRDBNet, without end in sight.
    "LRU_CACHE_CAPACITY": "16",
}

ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Where torch looks for the settings of its caching allocator."""

GROWING = "expandable_segments:True"
"""The setting with which its segments grow in place."""

UNKNOWN_SETTINGS = (
    "max_split_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "large_segment_size_mb",
)
"""Settings of torch's caching allocator that its simulation (``memory/cuda_allocator/``) does not follow."""

CHECKED_TORCH = ((2, 11), (2, 14))
"""Oldest and newest torch that what traces and the simulated allocator take for granted was checked with: where torch
writes in place, autocast's lists, the workspaces of cuBLAS, the allocator's constants, DDP's buckets."""

_UNITS = {"b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?b|b)\s*", re.IGNORECASE)


_is_late = False


def set_environment() -> None:
    """Set what a memory budget needs before torch is loaded; a value the user has set stays.

    It switches torch's expandable segments on, too, see :func:`use_expandable_segments`.
    """
    global _is_late
    _is_late = _is_late or ("torch" in sys.modules and not ENVIRONMENT.keys() <= os.environ.keys())
    use_expandable_segments()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def lacking_environment(environment: Mapping[str, str]) -> str:
    """Say so where :func:`set_environment` was not called, or too late; empty where all is as it must be."""
    if not ENVIRONMENT.keys() <= environment.keys():
        return "set_environment() was not called"
    return "set_environment() was called after torch had been imported" if _is_late else ""


def use_expandable_segments() -> None:
    """Have torch's CUDA allocator grow its segments in place, before torch is loaded; the user's own settings stay.

    A plan that changes leaves segments of the old sizes behind; ones that can grow are used again. Linux only.
    """
    if platform.system() == "Linux" and not any(os.environ.get(name) for name in ALLOCATOR_SETTINGS):
        os.environ[ALLOCATOR_SETTINGS[0]] = GROWING


def own_allocator_settings(environment: Mapping[str, str]) -> str:
    """Return what the user has set of torch's caching allocator; empty where that is nothing, or what is set here."""
    own = [environment[name] for name in ALLOCATOR_SETTINGS if environment.get(name)]
    return "" if own == [GROWING] else ",".join(own)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Load what lives as long as the process: the garbage collector leaves it alone, now and later.

    Torch with its compiler is 300,000 objects. Looking for garbage while they load takes a tenth of the time; each
    later collection would take 0.2 s, and every recovery from running out of memory waits for one. Where all was loaded
    before, the collector's sight stays as it is.
    """
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        if was_enabled:
            gc.enable()


def unknown_settings(environment: Mapping[str, str]) -> str:
    """Say which settings of torch's allocator its simulation does not follow; empty where there are none."""
    settings = " ".join(environment.get(name, "") for name in ALLOCATOR_SETTINGS)
    unknown = [name for name in UNKNOWN_SETTINGS if re.search(rf"\b{name}\s*:", settings)]
    return (
        f"predictions do not follow {', '.join(unknown)}: more or less may be reserved than predicted"
        if unknown
        else ""
    )


def unknown_torch(version: str) -> str:
    """Say so where predictions were not checked with a version of torch; empty where they were."""
    match = re.match(r"(\d+)\.(\d+)", version)
    oldest, newest = CHECKED_TORCH
    if match is not None and oldest <= (int(match[1]), int(match[2])) <= newest:
        return ""
    checked = " to ".join(f"{major}.{minor}" for major, minor in CHECKED_TORCH)
    return f"predictions were checked with torch {checked}, not with {version}: it may allocate otherwise"


def unknown_to_predictions(environment: Mapping[str, str], torch_version: str) -> list[str]:
    """Return what predictions do not know of this process, in words; nothing where they know all."""
    return [text for text in (unknown_settings(environment), unknown_torch(torch_version)) if text]


def parse_size_bytes(text: str) -> int:
    """Read ``"600MiB"``, ``"1.5 GiB"`` or ``"12GB"`` (GiB is binary, GB decimal).

    Raises:
        ValueError: it is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or not 1 <= (size := float(match[1]) * _UNITS[match[2].lower()]) < 2**63:
        raise ValueError(f"'{text}' is no size; {_probable_size(text)}")
    return int(size)


_ALMOST_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)[a-z]*\s*", re.IGNORECASE)
_MOST_GIB = 512
"""A number above that, without a unit, was hardly meant in GiB."""


def _probable_size(text: str) -> str:
    """Return what was probably meant by a number without a unit, or with one that is none."""
    match = _ALMOST_SIZE.fullmatch(text)
    if match is not None and float(match[1]):
        if match[2]:
            return f"did you mean {match[1]}{match[2].upper()}iB?"
        if text.strip() == match[1]:
            likely = f"{match[1]}GiB, or {match[1]}MiB" if float(match[1]) <= _MOST_GIB else f"{match[1]}MiB"
            return f"its unit is missing: did you mean {likely}?"
    return "write it like 600MiB, 1.5GiB or 12GB"


def limit_private_memory(limit_bytes: int | None) -> bool:
    """Cap private writable memory of this process, or take the cap off; return whether the platform can.

    Only the soft limit changes, so that it can be lifted again. Child processes inherit it.
    """
    if platform.system() != "Linux":
        return False
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard if limit_bytes is None else limit_bytes, hard))
    return True


Limited = Callable[[], AbstractContextManager[None]]
"""Makes a context in which the memory limit holds again."""


@contextmanager
def memory_limit_kept() -> Iterator[None]:
    """Put the cap of before back on after the block, whatever was capped within."""
    if platform.system() != "Linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def without_memory_limit() -> Iterator[Limited]:
    """Take the cap off for a while: a budget is for what networks compute, not for decoding images or writing files.

    What it gives puts the cap back on for a part of that while.
    """
    if platform.system() != "Linux":
        yield nullcontext
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    off = (before[1], before[1])

    @contextmanager
    def limited() -> Iterator[None]:
        resource.setrlimit(resource.RLIMIT_DATA, before)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, off)

    resource.setrlimit(resource.RLIMIT_DATA, off)
    try:
        yield limited
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
