"""Which image files a dataset root means, and what they are called."""

import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.data.dataset_roots import resolve_root

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})


@dataclass(frozen=True)
class ImageFile:
    """An image under a root.

    Attributes:
        path: where it is.
        key: the name it is paired by: its path below its root, without the extension. Letters with accents count as one
            sign (NFC): macOS writes them as two, and copies the same name otherwise than Linux.
        folder: name of the root, or of the folder that a root which is a file lies in.
    """

    path: str
    key: str
    folder: str


def list_images(roots: str | Sequence[str], *, set_name: str, argument: str = "") -> list[ImageFile]:
    """List the images under one or several roots, sorted within each root.

    A root is a folder (searched recursively, hidden files and folders left out), an image file, or
    ``package:NAME/PATH``, which means PATH inside the installed Python package NAME. Errors blame ``argument``.

    Raises:
        InputError: a root does not exist or holds no image; names the set.
    """
    files: list[ImageFile] = []
    for root in [roots] if isinstance(roots, str) else roots:
        path = resolve_root(root, IMAGE_SUFFIXES, set_name, argument)
        images = [_single_image(path)] if path.is_file() else images_below(path)
        if not images:
            kinds = ", ".join(sorted(IMAGE_SUFFIXES))
            raise InputError(
                Problem(
                    f"dataset '{set_name}': no images in {root}", advice=f"Images end in {kinds}.", argument=argument
                )
            )
        files.extend(images)
    if not files:
        raise InputError(Problem(f"dataset '{set_name}': the list of roots is empty", argument=argument))
    return files


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


def _single_image(path: Path) -> ImageFile:
    return ImageFile(_readable(path), _key_of(path.stem), path.resolve().parent.name)


def images_below(folder: Path) -> list[ImageFile]:
    """Return the images in a folder and its subfolders, sorted, without hidden ones.

    Raises:
        InputError: the name of one is not UTF-8.
    """
    images = []
    name = folder.resolve().name  # of `.` too
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(".") for part in relative.parts):
            images.append(ImageFile(_readable(path), _key_of(relative.with_suffix("").as_posix()), name))
    return images


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
