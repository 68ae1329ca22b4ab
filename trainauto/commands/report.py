"""``report``: say what was predicted of a run's memory and what was measured; compare several, list many."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from trainauto.commands.common_arguments import Commands
from trainauto.core.errors import InputError
from trainauto.core.json_text import terminal_json
from trainauto.core.words import visible_lines


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="compare predicted with measured memory of a run, compare runs, or list them",
        description="Compare predicted with measured memory of a run by phase, also while it trains. "
        "For several runs, print which options differ, how each went, and which validates best. "
        "For a folder of runs, list them.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folder of a run, experiments/NAME for its newest, or experiments",
    )
    parser.add_argument("--list", action="store_true", help="list all runs below, also those of experiments/NAME")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON, in bytes")
    how.add_argument(
        "--html", action="store_true", help="write the page: dashboard.html of a run, comparison.html of several"
    )
    how.add_argument(
        "--serve", action="store_true", help="serve the live page to browsers on this machine until Ctrl-C"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="with --html: file to write")
    parser.add_argument("--port", type=int, help="with --serve: the port; default: the first free one from 6010 on")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    _check(parsed)
    if parsed.html or parsed.serve:
        from trainauto.commands.report_page import serve, write_html

        if parsed.serve:
            serve(parsed.runs, parsed.port, opens=parsed.open)
        else:
            write_html(parsed.runs, parsed.out, opens=parsed.open)
        return 0
    text = _text(parsed.runs, lists=parsed.list, is_json=parsed.json)
    print(terminal_json(text) if parsed.json else visible_lines(text))
    return 0


def _check(parsed: argparse.Namespace) -> None:
    """Refuse what goes with something that was not asked for.

    Raises:
        InputError: says what goes with what.
    """
    if parsed.list and (parsed.html or parsed.serve):
        raise InputError("--list prints a table: leave out --html and --serve, or --list")
    if parsed.out is not None and not parsed.html:
        raise InputError("--out says where --html writes: add --html, or leave --out out")
    if parsed.port is not None and not parsed.serve:
        raise InputError("--port is where --serve listens: add --serve, or leave --port out")
    if parsed.open and not (parsed.html or parsed.serve):
        raise InputError("--open shows the page of --serve or --html: add one of them")


def _text(runs: Sequence[Path], *, lists: bool, is_json: bool) -> str:
    from trainauto.reporting.runs.listing import is_folder_of_runs

    if lists or (len(runs) == 1 and is_folder_of_runs(runs[0])):
        return _listing(runs, is_json)
    return _comparison(runs, is_json) if len(runs) > 1 else _report(runs[0], is_json)


def _listing(paths: Sequence[Path], is_json: bool) -> str:
    from trainauto.reporting.runs.listing import list_runs
    from trainauto.reporting.runs.listing_text import as_json, as_text

    runs = list_runs(paths)
    return as_json(runs) if is_json else as_text(runs)


def _report(path: Path, is_json: bool) -> str:
    from trainauto.reporting.runs.listing_text import others_text
    from trainauto.reporting.runs.memory_report import as_json, memory_report
    from trainauto.reporting.runs.memory_report_text import as_text
    from trainauto.storage.run_directory import RunDirectory

    report = memory_report(RunDirectory.find(path))
    return as_json(report) if is_json else as_text(report) + others_text(path)


def _comparison(paths: Sequence[Path], is_json: bool) -> str:
    from trainauto.reporting.runs.comparison import compare, find_runs
    from trainauto.reporting.runs.comparison_text import as_json, as_text
    from trainauto.reporting.runs.figures import figures_of

    comparison = compare([figures_of(run) for run in find_runs(paths)])
    return as_json(comparison) if is_json else as_text(comparison)
