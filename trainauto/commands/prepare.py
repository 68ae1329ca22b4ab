"""``prepare``: cut folders of images into tiles, with low-quality partners, and leave out what teaches nothing."""

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path

from trainauto.commands.common_arguments import Commands
from trainauto.core.errors import InputError, Problem, nearest

SHRINKING = ("matlab", "antialiased")
OFF = "off"

DESCRIPTION = """\
Prepare folders of images for super-resolution training. It cuts them into
tiles, leaves out near-duplicates, blocky tiles and tiles with little detail,
and can make low-quality tiles. Originals are only read.

Without --write it only writes OUT/report.json and lists the tiles that would be
left out. A stopped command continues when you start it again."""

EPILOG = """\
what is written:
  OUT/gt         tiles as PNG: sub/photo_s001.png of SOURCE/sub/photo.jpg
  OUT/lq         with --lq: their partners, of the same names, for
                 type: PairedImageDataset
  meta_info.txt  a line a tile, as BasicSR has it: photo_s001.png (480,480,3)
  report.json    each image: its tiles' measures, and why which are left out

examples:
  python -m trainauto prepare photos/ set/
  python -m trainauto prepare photos/ set/ --write
  python -m trainauto prepare photos/ scans/ set/ --scale 4 --lq matlab --write
  python -m trainauto prepare photos/ set/ --lq x.yml --write"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "prepare",
        help="cut folders of images into tiles for training, and leave out unsuitable ones",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", type=str, nargs="+", metavar="SOURCE", help="folder of images, or an image")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write, outside every SOURCE")
    parser.add_argument("--write", action="store_true", help="write the tiles; without it, only report")
    parser.add_argument("--tile", type=int, default=480, metavar="PX", help="side of tiles; default 480")
    parser.add_argument("--overlap", type=int, default=0, metavar="PX", help="overlap of neighbouring tiles; default 0")
    parser.add_argument("--scale", type=int, metavar="N", help="factor between the two sizes of tiles; needs --lq")
    parser.add_argument(
        "--lq",
        metavar="HOW",
        help="make low-quality tiles: matlab (imresize, bicubic), antialiased (as GTImageDataset), or an option file "
        "whose training set is a RealESRGANDataset",
    )
    _takes_threshold(
        parser,
        "--duplicates",
        "BITS",
        4,
        _bits,
        "leave out images whose 64-bit hashes differ by at most this",
    )
    _takes_threshold(
        parser, "--detail", "LEVELS", 0.5, _number, "leave out tiles whose neighbouring pixels differ by less (of 255)"
    )
    _takes_threshold(
        parser,
        "--blockiness",
        "RATIO",
        1.4,
        _number,
        "leave out tiles with a stronger grid of JPEG blocks; 1: none",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes; default: one for each core")
    parser.set_defaults(execute=_run)


def _takes_threshold(
    parser: argparse.ArgumentParser, name: str, unit: str, default: float, kind: Callable[[str], float], what: str
) -> None:
    parser.add_argument(
        name,
        type=lambda text: None if text == OFF else kind(text),
        default=default,
        metavar=unit,
        help=f"{what}; {OFF} keeps them; default {default}",
    )


def _bits(text: str) -> int:
    bits = int(text) if text.isdecimal() else -1
    if not 0 <= bits <= 32:  # unlike images differ in 32 bits on average
        raise argparse.ArgumentTypeError(f"'{text}' is not 'off' or a whole number of 0 to 32")
    return bits


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not 'off' or a number of 0 and more")
    return number


def _run(parsed: argparse.Namespace) -> int:
    for name, least in (("tile", 16), ("overlap", 0), ("scale", 1), ("workers", 1)):
        value = getattr(parsed, name)
        if value is not None and value < least:
            raise InputError(f"--{name} {value}: at least {least}")
    if parsed.overlap >= parsed.tile:
        advice = f"Write e.g. --overlap {parsed.tile // 2}."
        raise InputError(Problem(f"--overlap {parsed.overlap} is not less than --tile {parsed.tile}", advice=advice))
    if parsed.lq is None and parsed.scale is not None:
        advice = "It is the scale of low-quality tiles: add --lq matlab, or leave it out."
        raise InputError(Problem("--scale is given without --lq", advice=advice))
    if parsed.lq in SHRINKING and parsed.scale is None:
        raise InputError(Problem(f"--lq {parsed.lq} needs a scale", advice="Add e.g. --scale 4."))
    if parsed.lq is not None and parsed.lq not in SHRINKING and not Path(parsed.lq).is_file():
        advice = f"{nearest(parsed.lq, SHRINKING)} Otherwise name an option file."
        raise InputError(Problem(f"--lq {parsed.lq}: there is no such file", advice=advice))
    parsed.workers = parsed.workers or os.cpu_count() or 1

    from trainauto.commands.run_prepare import prepare

    return prepare(parsed)
