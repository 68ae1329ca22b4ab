"""Lists of images as BasicSR writes them: a name on each line, with or without the size behind it."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.tasks.sr.data.image_files import ImageFile
from trainauto.tasks.sr.data.image_source import name_in

SHOWN_NAMES = 5


def names_in(meta_info: str) -> list[str]:
    """Return the names in a list, in its order: ``0001_s001.png (480,480,3)`` names ``0001_s001.png``.

    Raises:
        InputError: the file cannot be read, or names nothing.
    """
    try:
        lines = Path(meta_info).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot read {meta_info}: {error}", argument="meta_info")) from error
    names = [_as_compared(name_in(line)) for line in lines if line.strip()]
    if not names:
        raise InputError(Problem(f"{meta_info} names no images", argument="meta_info"))
    return names


def listed_in(meta_info: str, files: Sequence[ImageFile], set_name: str) -> list[ImageFile]:
    """Return the files that a list names by their paths below their roots, in the order of ``files``.

    Raises:
        InputError: the list cannot be read, or names files that no root has.
    """
    wanted = dict.fromkeys(names_in(meta_info))
    there = {_as_compared(file.path_below_root) for file in files}
    if missing := [name for name in wanted if name not in there]:
        message = f"dataset '{set_name}': {meta_info} names {len(missing)} of {len(wanted)} images that are not there: "
        message += ", ".join(missing[:SHOWN_NAMES]) + (", ..." if len(missing) > SHOWN_NAMES else "")
        advice = nearest(missing[0], there)
        if ", " in missing[0]:
            advice = "Name one file on each line: the high-quality image."
        raise InputError(Problem(message, advice=advice, argument="meta_info"))
    return [file for file in files if _as_compared(file.path_below_root) in wanted]


def _as_compared(name: str) -> str:
    """Return a name as Linux writes it: Windows has other slashes, and macOS other accents."""
    return unicodedata.normalize("NFC", name.replace("\\", "/"))
