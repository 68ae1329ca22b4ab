"""What becomes of the option files of a folder: a line each, and totals."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainauto.conversion.answers import Kind
from trainauto.conversion.convert import Conversion, convert
from trainauto.conversion.known import Known
from trainauto.core.errors import InputError
from trainauto.core.words import counted
from trainauto.options.foreign_files import SUFFIXES, Project, read_foreign, recognised


class Verdict(StrEnum):
    """What becomes of a file."""

    WHOLE = "whole"
    LEFT_OUT = "losses or metrics left out"
    COMMAND = "a command instead"
    MISSING = "not here"
    UNREADABLE = "cannot be read"
    OTHER = "not recognised"


@dataclass(frozen=True)
class FileVerdict:
    """What becomes of one file.

    Attributes:
        file: below the folder.
        project: whose it is; ``None`` where that cannot be told.
        network: type of its ``network_g``; empty where there is none.
        verdict: in short.
        names: what is missing, or left out of what it minimises and measures.
        left_out: what is left out of that, also where something is missing.
        command: the command that does what it is for, where one does; else ``test`` or ``train``.
    """

    file: str
    project: Project | None
    network: str
    verdict: Verdict
    names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    command: str = ""


def verdicts_of(folder: Path) -> Iterator[FileVerdict]:
    """Yield what becomes of each file of a folder and those below it, in the order of their paths."""
    known = Known()
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            yield _verdict_of(path, path.relative_to(folder).as_posix(), known)


def _verdict_of(path: Path, file: str, known: Known) -> FileVerdict:
    try:
        theirs: Any = read_foreign(path).value
    except InputError as error:
        return FileVerdict(file, None, "", Verdict.UNREADABLE, (error.problems[0].message,))
    project = recognised(theirs)
    if project is None:
        return FileVerdict(file, None, "", Verdict.OTHER)
    conversion = convert(theirs, project, known)
    network = theirs.get("network_g")
    name = str(network.get("type", "")) if isinstance(network, dict) else ""
    command = conversion.command.split(" ")[0] or ("test" if conversion.is_test else "train")
    left_out = tuple(dict.fromkeys(left_out_names(conversion)))
    return FileVerdict(file, project, name, *judged(conversion), left_out, command)


def judged(conversion: Conversion) -> tuple[Verdict, tuple[str, ...]]:
    """Return what becomes of a file, and the names of what is missing or left out."""
    if missing := conversion.of(Kind.MISSING):
        return Verdict.MISSING, tuple(dict.fromkeys(str(answer.old) for answer in missing))
    if not conversion.tree:
        return (Verdict.COMMAND, (conversion.command.split(" ")[0],)) if conversion.command else (Verdict.OTHER, ())
    names = tuple(dict.fromkeys(left_out_names(conversion)))
    return (Verdict.LEFT_OUT if names else Verdict.WHOLE), names


def left_out_names(conversion: Conversion) -> Iterator[str]:
    """Yield the losses and metrics that are left out though they weigh something, and what guides them."""
    for answer in conversion.of(Kind.LEFT_OUT):
        path = answer.source[0]
        if path[0] == "train" and isinstance(answer.old, dict) and "type" in answer.old:
            if answer.old.get("loss_weight", 1) != 0 and path[1] != "optim_d":
                yield str(answer.old["type"])
        elif path[:2] == ("val", "metrics") and len(path) == 3:
            yield str(path[2])
        elif path[0] == "train" and str(path[1]).startswith("wavelet"):
            yield "wavelet_guided"


def stats_lines(folder: Path) -> Iterator[str]:
    """Yield a line for each file, then how many there are of each kind."""
    found = list(verdicts_of(folder))
    if not found:
        yield f"no option files in {folder}: names of theirs end in {', '.join(SUFFIXES)}"
        return
    totals: Counter[str] = Counter()
    width = max((len(one.file) for one in found), default=0)
    for one in found:
        names = f": {', '.join(one.names)}" if one.names else ""
        yield f"{one.file:<{width}}  {one.project or '-':<14}  {one.verdict}{names}"
        totals[one.verdict] += 1
    yield ""
    yield f"{counted(len(found), 'file')}: " + ", ".join(
        f"{number} {verdict}" for verdict, number in totals.most_common()
    )
