"""``list``: say what is known."""

import argparse

from trainauto.doors.arguments import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("list", help="list what is known: cards")
    parser.add_argument("kind", choices=["cards"], help="cards: presets of graphics cards, by memory")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(door=_run)


def _run(parsed: argparse.Namespace) -> int:
    from trainauto.doors.tables import cards_json, cards_table

    print(cards_json() if parsed.json else cards_table())
    return 0
