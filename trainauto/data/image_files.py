"""Which image files a dataset root means, and which belong together."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from trainauto.core.errors import InputError, Problem, nearest

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})
PACKAGE_PREFIX = "package:"


@dataclass(frozen=True)
class ImageFile:
    """An image under a root.

    Attributes:
        path: where it is.
        key: the name it is paired by: its path below its root, without the extension.
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
        path = _resolve(root, set_name, argument)
        found = [_lone_image(path)] if path.is_file() else images_below(path)
        if not found:
            kinds = ", ".join(sorted(IMAGE_SUFFIXES))
            raise InputError(
                Problem(
                    f"dataset '{set_name}': no images in {root}", advice=f"Images end in {kinds}.", argument=argument
                )
            )
        files.extend(found)
    if not files:
        raise InputError(Problem(f"dataset '{set_name}': the list of roots is empty", argument=argument))
    return files


def pair_images(
    gt: Sequence[ImageFile], lq: Sequence[ImageFile], *, set_name: str
) -> list[tuple[ImageFile, ImageFile]]:
    """Pair high- and low-quality images by key, in the order of ``gt``.

    The key of a low-quality image may carry the ``x2``..``x8`` suffix that BasicSR's users know.

    Raises:
        InputError: an image has no partner, or a key occurs twice; names the set, the counts and the first files.
    """
    problems = [
        Problem(f"dataset '{set_name}': two {side} images are called '{key}'", advice="Give them different names.")
        for side, files in (("gt", gt), ("lq", lq))
        for key in _repeated(file.key for file in files)
    ]
    if problems:
        raise InputError(problems[:10])
    by_key = {file.key: file for file in lq}
    for file in lq:
        by_key.setdefault(_without_scale_suffix(file.key), file)
    pairs = [(file, by_key[file.key]) for file in gt if file.key in by_key]
    if len(pairs) == len(gt) == len(lq):
        return pairs
    used = {file.path for _, file in pairs}
    lone_gt = [file for file in gt if file.key not in by_key]
    lone_lq = [file for file in lq if file.path not in used]
    problems = [
        Problem(
            f"dataset '{set_name}': {len(gt)} gt and {len(lq)} lq images, of which {len(pairs)} make pairs",
            advice="Pairs have the same path below their roots, without the extension.",
        )
    ]
    for side, other, lone in (("gt", lq, lone_gt), ("lq", gt, lone_lq)):
        for file in lone[:3]:
            advice = nearest(file.key, (candidate.key for candidate in other)) if len(other) <= 2000 else ""
            problems.append(
                Problem(f"dataset '{set_name}': {side} image without a partner: {file.path}", advice=advice)
            )
    raise InputError(problems)


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


def _resolve(root: str, set_name: str, argument: str) -> Path:
    path = _in_package(root, set_name, argument) if root.startswith(PACKAGE_PREFIX) else Path(root).expanduser()
    if path.exists():
        return path
    advice = f"Looked for {path.resolve()}."
    if path.parent.is_dir():
        advice += " " + nearest(path.name, (sibling.name for sibling in path.parent.iterdir()))
    raise InputError(Problem(f"dataset '{set_name}': there is no {root}", advice=advice, argument=argument))


def _in_package(root: str, set_name: str, argument: str) -> Path:
    package, _, inside = root.removeprefix(PACKAGE_PREFIX).partition("/")
    # find_spec does not run the package: importing scikit-learn for a picture would cost a second.
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            Problem(
                f"dataset '{set_name}': the Python package '{package}' is not installed",
                advice=f"It was looked for by {sys.executable}.",
                argument=argument,
            )
        )
    return Path(next(iter(spec.submodule_search_locations)), inside)


def _lone_image(path: Path) -> ImageFile:
    return ImageFile(str(path), path.stem, path.resolve().parent.name)


def images_below(folder: Path) -> list[ImageFile]:
    """Return the images in a folder and its subfolders, sorted, without hidden ones."""
    found = []
    name = folder.resolve().name  # of `.` too
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(".") for part in relative.parts):
            found.append(ImageFile(str(path), relative.with_suffix("").as_posix(), name))
    return found


def _without_scale_suffix(key: str) -> str:
    return key[:-2] if len(key) > 2 and key[-2] == "x" and key[-1].isdigit() else key


def _repeated(keys: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for key in keys:
        if key in seen:
            repeated[key] = None
        seen.add(key)
    return list(repeated)
