"""``degrade``: show or write the low-quality images that a run would make."""

import argparse
from pathlib import Path

from trainauto.commands.common_arguments import Commands, check_free, takes_options
from trainauto.core.errors import InputError, Problem

FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}
"""Of sheets, by the ending of their name."""

DESCRIPTION = """\
Show the training samples before a run: the first samples of the run, pixel for
pixel, each beside its high-quality crop, with its random parameters. Nothing is
trained."""

EPILOG = """\
what is written:
  --sheet FILE    a picture: a row a sample, its low-quality crop (enlarged so
                  that every pixel shows), its high-quality crop, and the steps
                  in their order
  --folder OUT    a set of pairs, OUT/gt and OUT/lq, of the whole images of the
                  training set; validate on it, or train with
                  type: PairedImageDataset

examples:
  python -m trainauto degrade -opt x.yml --sheet sheet.png
  python -m trainauto degrade -opt x.yml --folder pairs/"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "degrade",
        help="show or write the low-quality images that a run would make",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    takes_options(parser)
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write a picture of samples, as .png, .jpg or .webp")
    parser.add_argument("--count", type=int, default=8, metavar="N", help="samples on the sheet; default 8")
    parser.add_argument("--folder", type=Path, metavar="OUT", help="write pairs of whole images")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.sheet is None and parsed.folder is None:
        raise InputError(Problem("nothing to write", advice="Add --sheet FILE, --folder OUT, or both."))
    if parsed.count < 1:
        raise InputError(f"--count {parsed.count}: at least 1 sample")
    if parsed.sheet is not None:
        check_free(parsed.sheet, overwrite=parsed.overwrite)
        parsed.sheet_format = FORMATS.get(parsed.sheet.suffix.lower())
        if parsed.sheet_format is None:
            message = f"--sheet {parsed.sheet}: what kind of picture?"
            raise InputError(Problem(message, advice="End it in .png, .jpg or .webp."))
    if parsed.folder is not None and not parsed.overwrite:
        for there in filter(Path.exists, (parsed.folder / kind for kind in ("gt", "lq"))):
            raise InputError(Problem(f"{there} is there already", advice="Add --overwrite, or name another folder."))

    from trainauto.commands.run_degrade import degrade

    return degrade(parsed)
