"""Tables of docs/convert_keys.md: how each key of other projects' templates is converted, and the templates themselves.

    python scripts/conversion_tables.py                  writes the tables into docs/convert_keys.md
    python scripts/conversion_tables.py --check          says whether they are up to date
    python scripts/conversion_tables.py --files FOLDER   first counts what becomes of the files of a folder

The keys are read from ../shared/data/option_templates.csv, which lists the keys of 774 files with their most frequent
values. What becomes of the files is counted once, where they are at hand, and kept in docs/benchmarks/conversion.json:
which network each names, and what else of it is left out. Whether a network is here is looked up anew each time.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trainauto.conversion.answers import ITS_NAME, ITS_PLACE, Answer, Kind
from trainauto.conversion.convert import Conversion, convert
from trainauto.conversion.known import Known
from trainauto.conversion.projects.redux import takes_half
from trainauto.conversion.stats import Verdict, verdicts_of
from trainauto.core.files import write_text_atomically
from trainauto.options.foreign_files import Project
from trainauto.options.source_locations import KeyPath, dotted
from trainauto.tasks.sr.archs.foreign_networks import NAMES, OF_VIDEO, nearest_to

ROOT = Path(__file__).resolve().parents[1]
KEYS = ROOT.parent / "shared" / "data" / "option_templates.csv"
PAGE, FIGURES = ROOT / "docs" / "convert_keys.md", ROOT / "docs" / "benchmarks" / "conversion.json"
BEGIN, END = "<!-- tables: python scripts/conversion_tables.py -->", "<!-- end of tables -->"

LACKING = "losses or metrics left out"
"""The heading of templates that are converted but for these."""

KERNELS = ["iso", "aniso", "generalized_iso", "generalized_aniso", "plateau_iso", "plateau_aniso"]
"""A value that the list of keys has cut off."""


@dataclass(frozen=True)
class Row:
    """A key of a project's templates.

    Attributes:
        project: whose key it is.
        key: as it is listed: ``*`` for the number of a set, items of lists in brackets by their type.
        files: templates that have it.
        values: its most frequent ones.
    """

    project: Project
    key: str
    files: int
    values: tuple[Any, ...]

    @property
    def path(self) -> KeyPath:
        """The key in a file; items of lists are named by their type."""
        return tuple(self.key.replace("test*", "test_1").replace("val*", "val").split("."))

    @property
    def value(self) -> Any:
        """The most frequent value that is not null; null where there is no other."""
        return next((value for value in self.values if value is not None), None)


def read_rows(file: Path = KEYS) -> list[Row]:
    """Return the keys of all templates."""
    with file.open(newline="", encoding="utf-8") as stream:
        return [
            Row(Project(row["project"]), row["key"], int(row["files"]), tuple(_values(row["key"], row["values"])))
            for row in csv.DictReader(stream)
        ]


def _values(key: str, text: str) -> Iterator[Any]:
    for part in re.split(r" \| ", text):
        value = re.sub(r" x\d+\Z", "", part)
        try:
            yield json.loads(value)
        except json.JSONDecodeError:
            yield list(KERNELS) if ".kernel_list" in key else value.strip('"')


def file_of(rows: Iterable[Row], *, is_test: bool = False, types: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a file that has all keys, each with its most frequent value.

    Args:
        rows: the keys of a project.
        is_test: leave out what only training has.
        types: type of a component, by its section, where it should be another one than the most frequent.
    """
    tree: dict[str, Any] = {}
    lists: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        path = row.path
        if is_test and (path[0] in ("train", "logger", "network_d") or path[:2] == ("datasets", "train")):
            continue
        value = (types or {}).get(dotted(path[:-1]), row.value) if path[-1] == "type" else row.value
        if str(path[2:3]).startswith("('["):
            lists[str(path[2])][str(path[3])] = value
            continue
        place = tree
        for step in path[:-1]:
            place = place.setdefault(str(step), {})
        place[str(path[-1])] = value
    if lists:
        tree["train"]["losses"] = list(lists.values())
    return tree


def answers_of(project: Project, rows: Sequence[Row], known: Known) -> dict[str, Answer]:
    """Return what becomes of each key of a project, in a file that has them all.

    A key that is left out or unknown there may be an argument of another component, or of another kind of training set,
    than the most frequent: its answer is that in a file which has this one.
    """
    network = next(row for row in rows if row.key == "network_g.type")
    here = [name for name in network.values if known.has("network", NAMES[project].get(name.lower(), name))]
    plain = [name for name in here if takes_half(name)]  # others change the precision
    types = {"network_g": (plain or network.values)[0]}
    trained = convert(file_of(rows, types=types), project, known)
    tested = convert(file_of(rows, is_test=True, types=types), project, known)
    others = {
        (section, name): convert(file_of(rows, types={**types, section: name}), project, known)
        for section, names in _types_beside(rows).items()
        for name in names
    }
    found = {}
    for row in rows:
        answer = _answer_to(row, tested if row.key.startswith("datasets.test") else trained)
        if answer is None or answer.kind in (Kind.LEFT_OUT, Kind.UNKNOWN):
            sections = (row.key.rsplit(".", 1)[0], "datasets.train")
            more = [_answer_to(row, other) for (section, _), other in others.items() if section in sections]
            answer = next((one for one in more if one and one.kind in (Kind.CARRIED, Kind.MAPPED)), answer)
        if answer is not None:
            found[row.key] = answer
    return found


def _types_beside(rows: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    """Return the further types of components and of the training set that templates name, by section."""
    typed = [row for row in rows if row.key.endswith(".type") and len(row.values) > 1]
    sections = {row.key.removesuffix(".type"): row.values[1:] for row in typed}
    return {
        key: names
        for key, names in sections.items()
        if not key.startswith(("network_g", "datasets.val", "train.optim"))
    }


def _answer_to(row: Row, conversion: Conversion) -> Answer | None:
    path = row.path
    if str(path[2:3]).startswith("('["):
        items = [str(item.get("type")).lower() for item in conversion.theirs["train"]["losses"]]
        path = (*path[:2], items.index(str(path[2]).strip("[]")), *path[3:])
    return next(
        (answer for answer in conversion.answers if any(path[: len(source)] == source for source in answer.source)),
        None,
    )


def count_files(folder: Path) -> list[dict[str, Any]]:
    """Return how many files of a folder are alike: whose they are, for what, with which network, and what they lose."""
    counts: Counter[tuple[str, ...]] = Counter()
    for one in verdicts_of(folder):
        if one.project is None:
            counts["", "", one.verdict, ""] += 1
            continue
        missing = [name for name in one.names if one.verdict is Verdict.MISSING and name != one.network]
        counts[one.project, one.network, "not here" if missing else one.command, ", ".join(one.left_out)] += 1
    keys = ("project", "network", "role", "left_out")
    return [{**dict(zip(keys, key, strict=True)), "files": files} for key, files in sorted(counts.items())]


def tables(rows: Sequence[Row], figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of all tables."""
    known = Known()
    by_project = {project: [row for row in rows if row.project is project] for project in Project}
    answers = {project: answers_of(project, own, known) for project, own in by_project.items()}
    yield from _counts(answers)
    yield from _written_otherwise(answers)
    yield from _left_out(answers)
    yield from _files(figures, known)
    yield from _networks(figures, known)


Answers = Mapping[Project, Mapping[str, Answer]]
_KINDS = (Kind.CARRIED, Kind.MAPPED, Kind.LEFT_OUT)


def _counts(answers: Answers) -> Iterator[str]:
    yield "## Number of keys by answer"
    yield ""
    yield "Each key path of the templates is converted with its most frequent value."
    yield ""
    yield "| | key paths | carried over | rewritten | left out, with a reason |"
    yield "|---|---:|---:|---:|---:|"
    totals: Counter[Kind] = Counter()
    for project, own in answers.items():
        kinds = Counter(answer.kind for answer in own.values())
        totals.update(kinds)
        yield f"| {project} | {len(own)} | {' | '.join(str(kinds[kind]) for kind in _KINDS)} |"
    yield f"| all | {sum(map(len, answers.values()))} | {' | '.join(str(totals[kind]) for kind in _KINDS)} |"
    yield ""


def _written_otherwise(answers: Answers) -> Iterator[str]:
    yield "## Rewritten keys"
    yield ""
    yield "Sections of losses that end in `_opt` become items of `train.losses`; arguments keep their names. Keys that"
    yield "keep their names in another section are not listed."
    yield ""
    yield "| project | key there | key here | |"
    yield "|---|---|---|---|"
    seen: dict[tuple[str, str, str], list[str]] = {}
    for project, own in answers.items():
        for key, answer in own.items():
            target = answer.target or ()
            if answer.kind is not Kind.MAPPED or not target or "_opt." in key or target[:2] == ("train", "losses"):
                continue
            why = "" if answer.why in (ITS_NAME, ITS_PLACE) else answer.why
            if key.rsplit(".", 1)[-1] == target[-1] and answer.old == answer.new and not why:
                continue
            is_same_key = row_key(target) == key
            here = "not needed" if answer.new is None else f"`{row_key(target)}`"
            old, new = (f" {answer.old}", f" {answer.new}") if is_same_key and answer.new is not None else ("", "")
            seen.setdefault((f"`{key}`{old}", f"{here}{new}", why), []).append(project)
    for (key, here, why), projects in seen.items():
        yield f"| {', '.join(projects)} | {key} | {here} | {why} |"
    yield ""


def row_key(path: KeyPath) -> str:
    """Return a key as the list of keys writes it."""
    return dotted(path).replace("datasets.test_1.", "datasets.test*.").replace("datasets.val.", "datasets.val*.")


def _left_out(answers: Answers) -> Iterator[str]:
    yield "## Keys that are left out"
    yield ""
    yield "| keys | reason | nearest alternative |"
    yield "|---|---|---|"
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    for own in answers.values():
        for key, answer in own.items():
            if answer.kind is Kind.LEFT_OUT:
                reasons.setdefault((answer.why, answer.near), {}).update({f"`{key}`": None})
    for (why, near), keys in reasons.items():
        yield f"| {', '.join(keys)} | {why} | {near} |"
    yield ""


def _files(figures: Sequence[Mapping[str, Any]], known: Known) -> Iterator[str]:
    yield "## Results for the template files"
    yield ""
    columns = ("complete", LACKING, "a command instead", "network not supported", "unreadable")
    yield f"| | files | {' | '.join(columns)} |"
    yield f"|---|---:|{'---:|' * len(columns)}"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in figures:
        counts[one["project"] or "none"][_column(one, known)] += one["files"]
    for project in (*Project, "none"):
        if found := counts.get(project):
            name = project if project in set(Project) else "not readable as TOML"
            yield f"| {name} | {sum(found.values())} | {' | '.join(str(found[column]) for column in columns)} |"
    yield ""
    left: Counter[str] = Counter()
    for one in figures:
        for name in filter(None, one["left_out"].split(", ")):
            left[name] += one["files"]
    most = ", ".join(f"`{name}` ({files} files)" for name, files in left.most_common())
    yield f"Losses and metrics that are left out: {most}."
    yield ""


def _column(one: Mapping[str, Any], known: Known) -> str:
    if not one["project"]:
        return "unreadable"
    if not _is_here(one["project"], one["network"], known) or one["role"] == "not here":
        return "network not supported"
    if one["role"] in ("export", "upscale"):
        return "a command instead"
    return LACKING if one["left_out"] else "complete"


def _is_here(project: str, network: str, known: Known) -> bool:
    return known.has("network", NAMES[Project(project)].get(network.lower(), network))


def _networks(figures: Sequence[Mapping[str, Any]], known: Known) -> Iterator[str]:
    yield "## Networks of the templates"
    yield ""
    yield "| project | supported (files) | not supported (files), and the nearest |"
    yield "|---|---|---|"
    for project in Project:
        files: Counter[str] = Counter()
        for one in figures:
            if one["project"] == project:
                files[one["network"]] += one["files"]
        here = [f"`{name}` {number}" for name, number in files.items() if _is_here(project, name, known)]
        lacking = [_lacking(name, number) for name, number in files.items() if not _is_here(project, name, known)]
        yield f"| {project} | {', '.join(here)} | {', '.join(lacking)} |"
    yield ""


def _lacking(name: str, files: int) -> str:
    near = "video" if name.lower() in OF_VIDEO else nearest_to(name)
    return f"`{name}` {files}{f' ({near})' if near else ''}"


def page(rows: Sequence[Row], figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with its tables made anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    made = "\n".join(tables(rows, figures))
    return f"{before}{BEGIN}\n\n{made}\n{END}{rest.split(END)[1]}"


def read_figures() -> list[dict[str, Any]]:
    """Return what was counted of the templates."""
    figures: list[dict[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))["files"]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="count what becomes of these option files first")
    parser.add_argument("--check", action="store_true", help="say whether the page is up to date, and write nothing")
    parsed = parser.parse_args()
    if not KEYS.is_file():
        sys.exit(f"{KEYS} is not here")
    if parsed.files is not None:
        text = json.dumps({"files": count_files(parsed.files)}, indent=1)
        write_text_atomically(FIGURES, re.sub(r"\n  +(?=[\"}])", " ", text) + "\n")
    made = page(read_rows(), read_figures())
    if not parsed.check:
        write_text_atomically(PAGE, made)
    elif made != PAGE.read_text(encoding="utf-8"):
        sys.exit("docs/convert_keys.md is not up to date: python scripts/conversion_tables.py")


if __name__ == "__main__":
    main()
