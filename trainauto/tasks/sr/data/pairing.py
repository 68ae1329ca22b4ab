"""Which high- and low-quality images belong together, and what is said where one has no partner."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.sr.data.image_files import IMAGE_SUFFIXES, ImageFile

AS_NAMED = "{}"
"""Low-quality images are named as the high-quality ones are; the suffixes x2 to x9 may follow."""

SHOWN_FILES = 5
COMPARED_NAMES = 500
"""Names on either side, in alphabetical order, of which the nearest is sought: among all it would take minutes."""


def pair_images(
    gt: Sequence[ImageFile],
    lq: Sequence[ImageFile],
    *,
    set_name: str,
    filename_tmpl: str = AS_NAMED,
    of_more: bool = False,
) -> list[tuple[ImageFile, ImageFile]]:
    """Pair high- and low-quality images by key, in the order of ``gt``.

    Where several roots have images of the same name, each root of ``gt`` is paired with the root of ``lq`` that stands
    in the same place.

    Args:
        gt: high-quality images.
        lq: low-quality images; without a template their keys may end in the suffix ``x2`` .. ``x9``, as DIV2K's do.
        set_name: for messages.
        filename_tmpl: name of a low-quality image, without extension, made of that of its partner (BasicSR's meaning).
        of_more: leave out low-quality images without a partner, where ``gt`` is a part of what there is.

    Raises:
        InputError: an image has no partner, or a key occurs twice; names the set, the counts and the first files.
    """
    if "{}" not in filename_tmpl:
        what = f"dataset '{set_name}': filename_tmpl {filename_tmpl!r} has no place for the name"
        raise InputError(Problem(what, advice="Write {} where it belongs, e.g. '{}x4'.", argument="filename_tmpl"))
    problems = [
        Problem(
            f"dataset '{set_name}': two {side} images are called '{key}': {' and '.join(paths[:2])}",
            advice=_two_forms(paths) or "Give them different names.",
        )
        for side, files in (("gt", gt), ("lq", lq))
        for key, paths in _repeated(files)
    ]
    if problems:
        raise InputError(problems[:10])
    if not (_meet_across_roots(gt) or _meet_across_roots(lq)):
        return _paired(gt, lq, set_name, filename_tmpl, of_more=of_more)
    of_gt, of_lq = _by_root(gt), _by_root(lq)
    if len(of_gt) != len(of_lq) and not of_more:
        what = f"dataset '{set_name}': several roots have images of the same name, so roots are paired in their order"
        what += f"; there are {len(of_gt)} of gt and {len(of_lq)} of lq"
        advice = "Name a root in dataroot_lq for each in dataroot_gt, in the same order."
        raise InputError(Problem(what, advice=advice, argument="dataroot_lq"))
    paired = [
        _paired(files, of_lq.get(root, []), set_name, filename_tmpl, of_more=of_more) for root, files in of_gt.items()
    ]
    return [pair for pairs in paired for pair in pairs]


def _meet_across_roots(files: Sequence[ImageFile]) -> bool:
    return len({file.key for file in files}) < len(files)


def _by_root(files: Sequence[ImageFile]) -> dict[int, list[ImageFile]]:
    roots: dict[int, list[ImageFile]] = {}
    for file in files:
        roots.setdefault(file.root, []).append(file)
    return roots


def _paired(
    gt: Sequence[ImageFile], lq: Sequence[ImageFile], set_name: str, filename_tmpl: str, *, of_more: bool
) -> list[tuple[ImageFile, ImageFile]]:
    """Return the pairs of images whose keys are told apart.

    Raises:
        InputError: an image has no partner.
    """
    wanted = [_filled_in(filename_tmpl, file.key) for file in gt]
    partners = _partners(wanted, lq, may_have_suffix=filename_tmpl == AS_NAMED, of_more=of_more)
    pairs = [(file, partners[key]) for file, key in zip(gt, wanted, strict=True) if key in partners]
    if len(pairs) == len(gt) and (of_more or len(gt) == len(lq)):
        return pairs
    used = {file.path for _, file in pairs}
    lone_gt = [(file, key) for file, key in zip(gt, wanted, strict=True) if key not in partners]
    lone_lq = [(file, file.key) for file in lq if file.path not in used]
    counts = f"dataset '{set_name}': {len(gt)} gt and {len(lq)} lq images, of which {len(pairs)} make pairs"
    advice = "Pairs have the same path below their roots, without the extension."
    if filename_tmpl != AS_NAMED:
        advice = f"A gt image a.png has the lq image {_filled_in(filename_tmpl, 'a')}.png (filename_tmpl)."
    if not pairs:
        advice += " None has: do dataroot_gt and dataroot_lq name folders of the same images?"
    lines = [advice, *_unpaired(lone_gt, "gt", lq), *_unpaired(lone_lq, "lq", gt)]
    raise InputError(Problem(counts, advice="\n  ".join(lines)))


def _partners(
    wanted: Sequence[str], lq: Sequence[ImageFile], *, may_have_suffix: bool, of_more: bool
) -> dict[str, ImageFile]:
    """Return the low-quality image of each key, none of them for two.

    An image of just the name goes first, and a suffix is left out of the names of others. Where that leaves images
    without a partner, all names are tried without their suffix: ``a`` and ``ax4`` have the partners ``ax4`` and
    ``ax4x4``.
    """
    exact = {file.key: file for file in lq}
    keys = set(wanted)
    found = {key: exact[key] for key in wanted if key in exact}
    if not may_have_suffix:
        return found
    plain: dict[str, ImageFile] = {}
    for file in lq:
        plain.setdefault(_without_scale_suffix(file.key), file)
    by_suffix = {key: plain[key] for key in wanted if key in plain}
    mixed = {**{key: file for key, file in by_suffix.items() if file.key not in keys}, **found}
    is_whole = len(by_suffix) == len(keys) and (of_more or len(keys) == len(lq))
    return by_suffix if is_whole and len(by_suffix) > len(mixed) else mixed


def _unpaired(lone: Sequence[tuple[ImageFile, str]], side: str, others: Sequence[ImageFile]) -> list[str]:
    """Return in lines how many have no partner, and the first of them with the name that is nearest."""
    if not lone:
        return []
    by_plain = {_plain(file.key): file.key for file in others}
    names = sorted(by_plain)
    lines = []
    for file, key in lone[:SHOWN_FILES]:
        place = bisect_left(names, plain := _plain(key))
        near = get_close_matches(plain, names[max(0, place - COMPARED_NAMES) : place + COMPARED_NAMES], n=1, cutoff=0.6)
        other = _of_another_kind(key, others)
        note = (
            f"{other} is not read: save it as PNG"
            if other
            else f"nearest: {by_plain[near[0]]}"
            if near
            else "nothing near"
        )
        lines.append(f"  {file.path} ({note})")
    if len(lone) > SHOWN_FILES:
        lines.append(f"  ... and {len(lone) - SHOWN_FILES} more")
    plural = "image" if len(lone) == 1 else "images"
    return [f"{len(lone)} {side} {plural} without a partner:", *lines]


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "").replace(" ", "")


def _of_another_kind(key: str, others: Sequence[ImageFile]) -> Path | None:
    """Return a file where the partner would be that has its name and is of a kind that is not read (GIF)."""
    roots = {Path(file.path).parents[file.key.count("/")] for file in others[:1]}
    folders = [root / PurePosixPath(key).parent for root in roots]
    name = PurePosixPath(key).name
    return next(
        (
            path
            for folder in folders
            if folder.is_dir()
            for path in folder.iterdir()
            if path.stem == name and path.suffix and path.suffix.lower() not in IMAGE_SUFFIXES and path.is_file()
        ),
        None,
    )


def _filled_in(template: str, key: str) -> str:
    path = PurePosixPath(key)
    return str(path.with_name(template.replace("{}", path.name)))


def _without_scale_suffix(key: str) -> str:
    return key[:-2] if len(key) > 2 and key[-2] == "x" and key[-1].isdigit() else key


def _repeated(files: Iterable[ImageFile]) -> list[tuple[str, list[str]]]:
    """Return keys that several images of a root have, with the paths of these."""
    files = list(files)
    counts = Counter((file.root, file.key) for file in files)
    repeated = [place for place, count in counts.items() if count > 1]
    return [(place[1], [file.path for file in files if (file.root, file.key) == place]) for place in repeated[:10]]


def _two_forms(paths: Sequence[str]) -> str:
    stems = {Path(path).stem for path in paths}
    if len(stems) == 1:
        return ""
    return "Their names are the same letters in two Unicode forms (NFC and NFD): rename or delete one of them."
