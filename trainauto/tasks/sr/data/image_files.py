"""Which image files a dataset root means, and what they are called."""

import logging
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import features

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import NO_FILE
from trainauto.data.dataset_roots import resolve_root
from trainauto.data.folder_walk import FoundFile, files_below
from trainauto.tasks.sr.data.image_source import DATABASE_FILE, is_database, names_in_database

logger = logging.getLogger(__name__)

SUFFIXES_OF_BEFORE = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})
"""What versions read that kept no list of a run's files."""

IMAGE_SUFFIXES = (
    SUFFIXES_OF_BEFORE
    | {".jfif", ".jpe", ".gif", ".ppm", ".pgm", ".pnm"}
    | ({".avif"} if features.check("avif") else set())
    | ({".jp2"} if features.check("jpg_2000") else set())
)
"""What the decoders read here: Pillow reads AVIF and JPEG 2000 where it was built so."""

PICTURES_NOT_READ = frozenset(
    {".avif", ".jp2", ".heic", ".heif", ".jxl", ".psd", ".tga", ".exr", ".hdr", ".svg", ".ico", ".dng", ".raw", ".cr2"}
    | {".nef", ".arw", ".j2k", ".apng", ".npy", ".pfm", ".dds", ".xcf"}
)
"""Suffixes of pictures, of which those in ``IMAGE_SUFFIXES`` are read all the same: others are warned of."""

SHOWN_KINDS = 5
BROKEN_LINK = "broken link"


@dataclass(frozen=True)
class ImageFile:
    """An image under a root.

    Attributes:
        path: where it is.
        key: the name it is paired by: its path below its root, without the extension. Letters with accents count as one
            sign (NFC): macOS writes them as two, and copies the same name otherwise than Linux.
        folder: name of the root, or of the folder that a root which is a file lies in.
        name: its path below its root, with the extension; from the second root on after the root's number.
        root: number of its root, from 0.
        real_path: where it is, without links.
        is_recent: whether versions that kept no list of a run's files passed it over.
    """

    path: str
    key: str
    folder: str
    name: str = ""
    root: int = 0
    real_path: str = ""
    is_recent: bool = False

    @property
    def path_below_root(self) -> str:
        """Its path below its root, with the extension."""
        return self.name.removeprefix(_prefix(self.root))


@dataclass(frozen=True)
class ImageList:
    """The images under some roots.

    Attributes:
        files: the images, sorted within each root.
        not_read: how many other files there are, by suffix in lower case.
    """

    files: list[ImageFile]
    not_read: Counter[str]


def list_images(roots: str | Sequence[str], *, set_name: str, argument: str = "") -> list[ImageFile]:
    """Return the images of :func:`find_images` alone."""
    return find_images(roots, set_name=set_name, argument=argument).files


def find_images(roots: str | Sequence[str], *, set_name: str, argument: str = "") -> ImageList:
    """List the images under one or several roots, sorted within each root.

    A root is a folder (searched recursively, links to folders included, hidden files and folders left out), an image
    file, or an LMDB database (a folder whose name ends in ``.lmdb``). ``package:NAME/PATH`` means PATH inside the
    installed Python package NAME. Errors blame ``argument``.

    Raises:
        InputError: a root does not exist or holds no image; names the set.
    """
    files: list[ImageFile] = []
    not_read: Counter[str] = Counter()
    for number, root in enumerate([roots] if isinstance(roots, str) else roots):
        path = resolve_root(root, IMAGE_SUFFIXES, set_name, argument)
        images, others = _images_of(path, number)
        if not images:
            kinds = ", ".join(sorted(IMAGE_SUFFIXES))
            held = f"; it holds {_kinds_in_words(_kinds(others))}" if others else ""
            message = f"dataset '{set_name}': no images in {root}{held}"
            databases = [other.parent for other in others if other.name == DATABASE_FILE]
            advice = f"{databases[0]} is a database: name it so that it ends in .lmdb." if databases else ""
            raise InputError(Problem(message, advice=advice or f"Images end in {kinds}.", argument=argument))
        _say_not_read(others, root, set_name)
        not_read += _kinds(others)
        files.extend(images)
    if not files:
        raise InputError(Problem(f"dataset '{set_name}': the list of roots is empty", argument=argument))
    return ImageList(files, not_read)


def _images_of(path: Path, number: int) -> tuple[list[ImageFile], list[Path]]:
    """Return the images of a root, and the other files in it."""
    if is_database(path):
        return _in_database(path, number), []
    return ([_single_image(path, number)], []) if path.is_file() else _images_and_others(path, number)


def _kinds(others: Iterable[Path]) -> Counter[str]:
    return Counter(map(_kind, others))


def _kind(path: Path) -> str:
    if path.is_file():
        return path.suffix.lower() or path.name
    return BROKEN_LINK if path.is_symlink() and not path.exists() else NO_FILE


def _kinds_in_words(kinds: Counter[str]) -> str:
    said = [f"{count} {kind}" for kind, count in kinds.most_common(SHOWN_KINDS)]
    rest = sum(kinds.values()) - sum(count for _, count in kinds.most_common(SHOWN_KINDS))
    return ", ".join([*said, *([f"{rest} others"] if rest else [])])


def _say_not_read(others: Sequence[Path], root: str, set_name: str) -> None:
    """Name the files of a root that are no images here: as a warning where some are pictures of another kind."""
    kinds_of = {path: _kind(path) for path in others}
    for path in (path for path, kind in kinds_of.items() if kind == NO_FILE):
        logger.warning("dataset '%s': %s is %s, and is left out", set_name, path, NO_FILE)
    broken = [path for path, kind in kinds_of.items() if kind == BROKEN_LINK]
    if broken:  # of folders on a drive that is not there, as a rule
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        logger.warning("dataset '%s': %s%s in %s leads nowhere, and is left out", set_name, broken[0].name, more, root)
    pictures = [path for path, kind in kinds_of.items() if kind in PICTURES_NOT_READ]
    if pictures:
        kinds = _kinds_in_words(_kinds(pictures))
        logger.warning(
            "dataset '%s': pictures in %s are of kinds that are not read, and left out: %s (%s%s). Save them as PNG.",
            set_name,
            root,
            kinds,
            pictures[0].name,
            ", ..." if len(pictures) > 1 else "",
        )


def read_before(files: Iterable[ImageFile]) -> list[ImageFile]:
    """Return the images that versions read which kept no list of a run's files."""
    return [file for file in files if not file.is_recent]


def distinct_names(files: Sequence[ImageFile]) -> list[str]:
    """Return a name for each file that no other has: its key; below its root's name where another has its key.

    Names that still meet, of roots named alike or of ``a.png`` beside ``a.jpg``, are numbered: ``hr/a``, ``hr_2/a``.
    """
    # Some file systems do not tell A from a.
    repeated = {key for key, count in Counter(file.key.casefold() for file in files).items() if count > 1}
    taken = {file.key.casefold() for file in files}
    names = []
    for file in files:
        name, number = file.key, 1
        if name.casefold() in repeated:
            folder = file.folder or "root"  # the root of a file system has no name
            name = f"{folder}/{file.key}"
            while name.casefold() in taken:
                number += 1
                name = f"{folder}_{number}/{file.key}"
            taken.add(name.casefold())
        names.append(name)
    return names


def _single_image(path: Path, root: int) -> ImageFile:
    name, folder = f"{_prefix(root)}{path.name}", path.resolve().parent.name
    return ImageFile(_readable(path), _key_of(path.stem), folder, name, root, os.path.realpath(path))


def _in_database(folder: Path, root: int) -> list[ImageFile]:
    real = os.path.realpath(folder)
    return [
        ImageFile(
            f"{folder}{os.sep}{name}",
            _key_of(os.path.splitext(name)[0]),  # noqa: PTH122 - a key is no path
            folder.resolve().name,
            f"{_prefix(root)}{name}",
            root,
            f"{real}{os.sep}{name}",
        )
        for name in sorted(names_in_database(folder))
    ]


def _prefix(root: int) -> str:
    return f"{root + 1}:" if root else ""


def images_below(folder: Path) -> list[ImageFile]:
    """Return the images in a folder and its subfolders, sorted, without hidden ones; links to folders are followed.

    Raises:
        InputError: the name of one is not UTF-8, or a folder cannot be read.
    """
    return _images_and_others(folder)[0]


def others_in_words(folder: Path) -> str:
    """Say which files in a folder and its subfolders are no images here, with counts; empty where there are none."""
    others = _images_and_others(folder)[1]
    return _kinds_in_words(_kinds(others)) if others else ""


def _images_and_others(folder: Path, root: int = 0) -> tuple[list[ImageFile], list[Path]]:
    images, others = [], []
    name = folder.resolve().name  # of `.` too
    above = len(str(folder)) + (0 if str(folder).endswith(os.sep) else 1) if str(folder) != "." else 0
    for found in files_below(folder):
        suffix = found.path.suffix.lower()
        if suffix in IMAGE_SUFFIXES and not found.is_special:
            images.append(_image(found, str(found.path)[above:].replace(os.sep, "/"), suffix, name, root))
        else:
            others.append(found.path)
    return images, others


def _image(found: FoundFile, relative: str, suffix: str, folder: str, root: int) -> ImageFile:
    is_recent = found.through_link or suffix not in SUFFIXES_OF_BEFORE
    key, name = _key_of(relative[: -len(suffix)]), f"{_prefix(root)}{relative}"
    return ImageFile(_readable(found.path), key, folder, name, root, found.real_path, is_recent)


def _key_of(name: str) -> str:
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _readable(path: Path) -> str:
    """Return a path as text that logs and JSON files can hold.

    Raises:
        InputError: its name is not UTF-8.
    """
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(text).decode("utf-8", "backslashreplace")
        raise InputError(
            Problem(f"the name of image {shown} is not UTF-8", advice="Rename the file, or the folder it is in.")
        ) from None
    return text
