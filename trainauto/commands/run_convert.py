"""What ``python -m trainauto convert`` does."""

import argparse
import shlex
import textwrap
from pathlib import Path
from typing import Any

from trainauto.commands.whole_options import check_components, load_whole
from trainauto.conversion.answers import Kind
from trainauto.conversion.convert import Conversion, convert
from trainauto.conversion.report import WIDTH, report_lines
from trainauto.conversion.stats import stats_lines
from trainauto.conversion.writing import text_of
from trainauto.core.errors import InputError, Place, Problem
from trainauto.core.files import write_text_atomically
from trainauto.core.program import program_words
from trainauto.core.words import visible
from trainauto.options.foreign_files import OWN_KEYS, Project, read_foreign, recognised
from trainauto.options.load import load_test_options
from trainauto.options.source_locations import printable

PROJECTS = {"redux": Project.REDUX, "basicsr": Project.BASICSR, "neosr": Project.NEOSR}

INCOMPLETE = 2
"""Exit code where the file names what is not here."""


def run(parsed: argparse.Namespace) -> int:
    """Translate a file, write it, and say what became of it; return the exit code.

    Raises:
        InputError: the file cannot be read, belongs to none of these projects, or becomes one that fails ``--check``.
    """
    theirs = read_foreign(parsed.file).value
    project = PROJECTS.get(parsed.project) or recognised(theirs)
    if project is None or not isinstance(theirs, dict):
        raise _not_recognised(parsed.file, theirs)
    conversion = convert(theirs, project)
    if conversion.tree:
        _write(parsed.output, text_of(conversion, parsed.file.name))
    _report(conversion, parsed.file, parsed.output)
    if parsed.check and conversion.tree and conversion.is_complete:
        check(parsed.output, is_test=conversion.is_test)
        print(
            "\nchecked: options, components and their arguments. Not checked: folders,\n"
            "images, weights, and whether a step fits the memory: validate does all that."
        )
    return 0 if conversion.is_complete else INCOMPLETE


def _write(output: Path, text: str) -> None:
    try:
        write_text_atomically(output, text)
    except OSError as error:
        message = f"cannot write {output}: {error.strerror or error}"
        raise InputError(Problem(message, advice="Name a file in a folder that you may write to.")) from error


def _report(conversion: Conversion, file: Path, output: Path) -> None:
    what = f"wrote {output}" if conversion.tree else "nothing was written"
    line = visible(f"{file}: an option file of {conversion.project}; {what}")
    print("\n".join(textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False)))
    if (looks := recognised(conversion.theirs)) not in (None, conversion.project):
        print(f"It looks like an option file of {looks}: leave --from out if it is one.")
    print()
    print("\n".join(report_lines(conversion)))
    print()
    opt, program = shlex.quote(str(output)), program_words()
    then = "Once that is changed:" if conversion.of(Kind.MISSING) else "To go on:"
    if not conversion.tree:
        print("It neither trains nor measures on pairs of images.")
        print("Here a command does what it is for:" if conversion.command else "There is no equal of it here.")
        lines = [conversion.command] if conversion.command else []
    elif conversion.is_test:
        print(then)
        lines = [f"test -opt {opt}"]
    else:
        print(then)
        lines = [f"validate -opt {opt}", f"train -opt {opt}"]
    for line in lines:
        print(f"  {program} {visible(line)}")


def _not_recognised(file: Path, theirs: Any) -> InputError:
    place = Place(printable(str(file)))
    if isinstance(theirs, dict) and OWN_KEYS & theirs.keys():
        return InputError(Problem("this is an option file of trainauto already", place, "Start it with train -opt."))
    if isinstance(theirs, dict) and {"network_g", "datasets"} & theirs.keys():
        message = f"this may be an option file of {', '.join(Project)} or of trainauto; nothing in it says which"
        return InputError(Problem(message, place, "Say whose it is: --from redux, basicsr or neosr."))
    message = f"this is no option file of {', '.join(Project)}"
    return InputError(Problem(message, place, "Theirs have sections network_g, datasets and train."))


def check(path: Path, *, is_test: bool) -> None:
    """Check an option file as far as that goes without the files it names.

    Raises:
        InputError: options, components or their arguments cannot be used.
    """
    check_components(load_test_options(path).as_run if is_test else load_whole(path, ()))


def show_stats(folder: Path) -> int:
    """Print what becomes of each option file in a folder."""
    print("\n".join(map(visible, stats_lines(folder))))
    return 0
