"""``convert``: an option file of another project as one of trainauto."""

import argparse
from pathlib import Path

from trainauto.commands.common_arguments import Commands, check_free
from trainauto.core.errors import InputError, Problem

PROJECTS = ("redux", "basicsr", "neosr")

DESCRIPTION = """\
Translate an option file of traiNNer-redux, BasicSR or neosr. Report each key:
carried, written otherwise, or left out, with the reason and the nearest
alternative. Defaults that differ are written out, so that the file means the
same. Their file is only read."""

EPILOG = """\
exit codes: 0 if the new file can be used as it is. 2 if it names a network,
set, optimizer or schedule that is not here: these stay as they were, and the
report says what to change.

examples:
  python -m trainauto convert train_ESRGAN_x4.yml
  python -m trainauto convert train_span.toml --output mine.yml --check
  python -m trainauto convert --stats options/"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "convert",
        help="translate an option file of traiNNer-redux, BasicSR or neosr",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="file to convert: .yml, .yaml, .toml or .json"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="OUT",
        help="file to write; default: FILE_trainauto.yml, in this folder",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the new file: options, components, arguments; no data and no weights",
    )
    parser.add_argument(
        "--from", dest="project", choices=PROJECTS, help="project of the file, if its keys leave that open"
    )
    parser.add_argument(
        "--stats", type=Path, metavar="FOLDER", help="only print a table: the result for each file in it"
    )
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if (parsed.file is None) == (parsed.stats is None):
        given = "nothing is named" if parsed.file is None else "FILE and --stats are given"
        raise InputError(Problem(f"convert: {given}", advice="Name a FILE, or a folder with --stats."))
    if parsed.stats is not None:
        if not parsed.stats.is_dir():
            raise InputError(Problem(f"there is no folder {parsed.stats}", advice="--stats takes a folder."))
        from trainauto.commands.run_convert import show_stats

        return show_stats(parsed.stats)
    parsed.output = parsed.output or Path(f"{parsed.file.stem}_trainauto.yml")
    if parsed.output.resolve() == parsed.file.resolve():
        raise InputError(Problem(f"{parsed.output} is the file to convert", advice="Name another one with --output."))
    check_free(parsed.output, overwrite=parsed.overwrite, example="mine.yml")

    from trainauto.commands.run_convert import run

    return run(parsed)
