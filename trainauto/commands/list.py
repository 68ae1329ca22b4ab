"""``list``: say what is known: components by kind, each with its arguments, and cards."""

import argparse
import json
from pathlib import Path

from trainauto.commands.common_arguments import Commands
from trainauto.core.errors import InputError, Problem
from trainauto.core.program import program_words

KINDS = {
    "archs": "network",
    "losses": "loss",
    "metrics": "metric",
    "automations": "automation",
    "datasets": "dataset",
    "models": "model",
    "optimizers": "optimizer",
    "schedules": "schedule",
    "sample-sets": "sample-set",
    "multitask-models": "multitask-model",
}
"""Kinds of components as they are asked for, and as their registries call them."""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list",
        help="list what is known: archs, losses, metrics, ..., cards",
        description="List what is known of a kind; with a name, its arguments with their types and defaults.",
    )
    parser.add_argument(
        "kind",
        nargs="?",
        choices=[*KINDS, "cards"],
        metavar="KIND",
        help=f"{', '.join(KINDS)}, or cards (presets by memory); without it, the kinds are listed",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them, right after KIND")
    parser.add_argument("-opt", type=Path, metavar="FILE", help="also what the plugins of this option file bring")
    parser.add_argument(
        "--missing",
        action="store_true",
        help="with archs: networks of traiNNer-redux, BasicSR and neosr that are not here, each with the nearest",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.missing:
        print(_missing(parsed))
        return 0
    if parsed.kind is None:
        print(_kinds(parsed))
        return 0
    if parsed.kind == "cards":
        print(_cards(parsed))
        return 0

    from trainauto.commands import run_list

    run_list.load_components(parsed.opt)
    kind = KINDS[parsed.kind]
    if parsed.name:
        print(run_list.describe_component(kind, parsed.name, json=parsed.json))
    else:
        print(run_list.list_components(kind, parsed.kind, json=parsed.json))
    return 0


def _kinds(parsed: argparse.Namespace) -> str:
    """Return what may be listed, each with the command that does."""
    if parsed.json:
        return json.dumps([*KINDS, "cards"], indent=2)
    words = {plural: f"each {kind.replace('-', ' ')} by name" for plural, kind in KINDS.items()}
    words["cards"] = "GPUs by memory, with their presets"
    return "\n".join(f"{program_words()} list {kind:<18}{text}" for kind, text in words.items())


def _missing(parsed: argparse.Namespace) -> str:
    """Return the networks of other projects that are not here."""
    from trainauto.commands.missing_list import missing_json, missing_table

    if parsed.kind != "archs" or parsed.name:
        raise InputError(Problem("--missing lists networks", advice="Use it as: list archs --missing"))
    return missing_json() if parsed.json else missing_table()


def _cards(parsed: argparse.Namespace) -> str:
    from trainauto.commands.tables import cards_json, cards_table
    from trainauto.options.cards import CARDS, card_by_words

    if parsed.opt is not None:
        raise InputError(Problem("plugins bring no cards", advice="Leave -opt out."))
    cards = [card_by_words(parsed.name)] if parsed.name else CARDS
    return cards_json(cards) if parsed.json else cards_table(cards)
