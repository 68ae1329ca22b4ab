"""``report``: say what was predicted of a run's memory and what was measured; of several runs, compare them."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from trainauto.commands.common_arguments import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="say what was predicted of a run's memory and what was measured, or compare runs",
        description="Say what was predicted of a run's memory and what was measured, by phase; also while it trains. "
        "Of several runs, say which options differ, how each went, and which validates best.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or experiments/NAME for its newest"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON, in bytes")
    how.add_argument(
        "--html", action="store_true", help="write the page: dashboard.html of a run, comparison.html of several"
    )
    how.add_argument(
        "--serve", action="store_true", help="show the page to browsers of this machine, live, until Ctrl-C"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="with --html: where to write it")
    parser.add_argument("--port", type=int, help="with --serve: the port; else a free one from 6010 on")
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.html or parsed.serve:
        from trainauto.commands.report_page import serve, write_html

        if parsed.serve:
            serve(parsed.runs, parsed.port, opens=parsed.open)
        else:
            write_html(parsed.runs, parsed.out, opens=parsed.open)
        return 0
    print(_comparison(parsed.runs, parsed.json) if len(parsed.runs) > 1 else _report(parsed.runs[0], parsed.json))
    return 0


def _report(path: Path, is_json: bool) -> str:
    from trainauto.reporting.memory_report import as_json, as_text, memory_report
    from trainauto.storage.run_directory import RunDirectory

    report = memory_report(RunDirectory.find(path))
    return as_json(report) if is_json else as_text(report)


def _comparison(paths: Sequence[Path], is_json: bool) -> str:
    from trainauto.reporting.comparison_text import as_json, as_text
    from trainauto.reporting.run_comparison import compare, find_runs
    from trainauto.reporting.run_figures import figures_of

    comparison = compare([figures_of(run) for run in find_runs(paths)])
    return as_json(comparison) if is_json else as_text(comparison)
