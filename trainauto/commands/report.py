"""``report``: say what was predicted of a run's memory and what was measured."""

import argparse

from trainauto.commands.common_arguments import Commands, takes_run


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="say what was predicted of a run's memory and what was measured",
        description="Say what was predicted of a run's memory and what was measured, by phase; also while it trains.",
    )
    takes_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.reporting.memory_report import as_json, as_text, memory_report
    from trainauto.storage.run_directory import RunDirectory

    report = memory_report(RunDirectory.find(parsed.run).of_steps)
    print(as_json(report) if parsed.json else as_text(report))
    return 0
