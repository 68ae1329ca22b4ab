"""What lies below a folder, links to other folders included."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted

logger = logging.getLogger(__name__)

SHOWN_LINKS = 3


@dataclass(frozen=True)
class FoundFile:
    """A file below a folder.

    Attributes:
        path: as it is reached, links included.
        real_path: where it is, without links.
        through_link: whether a link to a folder leads to it.
        is_special: whether it is no file but a FIFO, a socket or a device.
    """

    path: Path
    real_path: str
    through_link: bool
    is_special: bool = False


def files_below(folder: Path) -> list[FoundFile]:
    """Return the files below a folder, sorted by path, without hidden files and folders.

    Links to folders are followed. Each folder is entered once, by its real path: what lies in the folder itself goes
    before what a link leads to, and a link to a folder above ends.

    Raises:
        InputError: a folder cannot be read; names it.
    """
    entered: set[str] = set()
    found: list[FoundFile] = []
    links = list(_walked(str(folder), os.path.realpath(folder), entered, found, through_link=False))
    while links:
        path = min(links)
        links.remove(path)
        links += _walked(path, os.path.realpath(path), entered, found, through_link=True)
    return sorted(found, key=lambda file: file.path)


def _walked(
    path: str, real_path: str, entered: set[str], found: list[FoundFile], *, through_link: bool
) -> Iterator[str]:
    """Add the files below a folder to ``found``, and yield the links to folders that are met."""
    if real_path in entered:
        return
    entered.add(real_path)
    try:
        with os.scandir(path) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        advice = "Make it readable, or take it out of the set."
        raise InputError(Problem(f"folder {path} cannot be read: {error.strerror}", advice=advice)) from error
    for entry in shown:
        real = os.path.join(real_path, entry.name)  # noqa: PTH118 - ten times as fast as Path, for each file of a set
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(entry.path, real, entered, found, through_link=through_link)
        elif entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112 - that of an entry fails on a loop of links
            yield entry.path
        else:
            real = os.path.realpath(entry.path) if entry.is_symlink() else real
            found.append(FoundFile(Path(entry.path), real, through_link, is_special=_is_special(entry)))


def _is_special(entry: os.DirEntry[str]) -> bool:
    # A link that leads nowhere, or to itself, is none.
    return not os.path.isfile(entry.path) and os.path.exists(entry.path)  # noqa: PTH110, PTH113


def warn_of_links(folder: Path, described: str) -> None:
    """Name the links to folders below a folder whose files are read without following them.

    Args:
        folder: which; hidden folders are left out.
        described: what is read, e.g. ``texts``.
    """
    links = []
    for place, folders, _ in os.walk(folder):
        folders[:] = [name for name in sorted(folders) if not name.startswith(".")]
        links += [path for name in folders if (path := Path(place, name)).is_symlink()]
    if links:
        shown = ", ".join(map(str, links[:SHOWN_LINKS])) + (", ..." if len(links) > SHOWN_LINKS else "")
        logger.warning(
            "%s in %s left out, for links are not followed to %s: %s. Name them as paths of their own.",
            counted(len(links), "linked folder"),
            folder,
            described,
            shown,
        )
