"""The page of commands says of every argument how it is written, what it is and what it is by default."""

import argparse
from pathlib import Path

from trainauto.cli import _parser
from trainauto.commands.command_reference import REFERENCE, commands_reference


def rows_of(add: list[tuple[tuple[str, ...], dict[str, object]]]) -> list[str]:
    commands = argparse.ArgumentParser().add_subparsers()
    parser = commands.add_parser("bake", help="make bread", description="Bake bread")
    for names, settings in add:
        parser.add_argument(*names, **settings)  # type: ignore[arg-type]
    page = commands_reference(commands)
    assert "## `bake`\n\nBake bread.\n" in page
    described = page.partition("## `bake`")[2]
    return [line for line in described.splitlines() if line.startswith("| `")]


def test_every_kind_of_argument() -> None:
    assert rows_of(
        [
            (("oven",), {"metavar": "OVEN", "help": "where"}),
            (("guests",), {"nargs": "*", "metavar": "GUEST"}),
            (("-n", "--loaves"), {"type": int, "default": 2, "help": "how many (%(default)s) of %(prog)s"}),
            (("--flour",), {"choices": ["rye", "spelt"], "required": True, "help": "one | other"}),
            (("--seeds",), {"nargs": "+", "default": [], "metavar": "SEED"}),
            (("--size",), {"nargs": 2, "metavar": "CM"}),
            (("--quick",), {"action": "store_true", "help": "in   a\nhurry"}),
            (("--heat",), {"default": "high", "help": "of the oven"}),
            (("--secret",), {"help": argparse.SUPPRESS}),
        ]
    ) == [
        "| `OVEN` | where |",
        "| `[GUEST ...]` |  |",
        "| `-n, --loaves LOAVES` | how many (2) of trainauto |",
        "| `--flour {rye, spelt}` (required) | one \\| other |",
        "| `--seeds SEED [...]` |  |",
        "| `--size CM CM` |  |",
        "| `--quick` | in a hurry |",
        "| `--heat HEAT` | of the oven; default `high` |",
    ]


def test_every_argument_of_every_command_stands_there() -> None:
    (commands,) = (action for action in _parser()._actions if action.choices)
    page = commands_reference(commands)
    for name, parser in commands.choices.items():  # type: ignore[union-attr]
        part = page.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
        told = [action for action in parser._actions if action.help != argparse.SUPPRESS]
        flags = {flag for action in told for flag in action.option_strings} - {"-h", "--help"}
        assert [flag for flag in flags if f"{flag} " not in part and f"{flag}`" not in part] == []
    assert (Path(__file__).parents[3] / REFERENCE).read_text(encoding="utf-8") == page
