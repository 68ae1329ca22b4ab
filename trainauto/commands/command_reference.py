"""The reference of all commands, generated from their parsers."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from trainauto.commands.common_arguments import Commands

REFERENCE = Path("docs/commands.md")

_INTRODUCTION = """# Commands

This page lists every command with its arguments. It is generated from their parsers; do not edit it.

`python -m trainauto COMMAND` and, after installation, `trainauto COMMAND` are the same. In a clone, `python
train.py` is `train` and `python test.py` is `test`. `COMMAND --help` prints the same reference.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the run failed |
| 2 | the input cannot be used |
| 130, 143, 129 | Ctrl-C, SIGTERM or SIGHUP (a closing terminal) ended the run after a step, with everything saved |

The table shows which command supports which kind of task.

| command | super-resolution | texts | several tasks | fine-tuning |
|---|---|---|---|---|
| `train` on one rank or several, `--auto_resume` | yes | yes | yes | yes |
| `replay` | yes | yes | yes | yes |
| `validate` | yes | yes | yes | yes |
| `plan` | yes | yes | yes | yes |
| `doctor` | yes | yes | yes | yes |
| `report` | yes | yes | yes | yes |
| `test` | yes | yes | yes | yes |
| `export` | yes | yes | yes | yes |
| `upscale` | yes | no | no | no |
| `degrade`, `prepare`, `convert` | yes | no | no | no |
"""


def commands_reference(commands: Commands) -> str:
    """Return the reference of commands as Markdown.

    Args:
        commands: what the parsers of commands were added to.
    """
    purposes = {choice.dest: choice.help or "" for choice in commands._get_subactions()}
    parts = [_INTRODUCTION]
    parts += ["\n".join(_of_command(name, parser, purposes[name])) for name, parser in commands.choices.items()]
    return "\n".join(parts)


def _of_command(name: str, parser: argparse.ArgumentParser, purpose: str) -> Iterator[str]:
    yield f"## `{name}`"
    yield ""
    yield _sentence(parser.description or purpose)
    yield ""
    arguments = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    shown = [action for action in arguments if action.help != argparse.SUPPRESS]
    if shown:
        yield "| argument | description | default |"
        yield "|---|---|---|"
        yield from map(_row, shown)
        yield ""


def _row(action: argparse.Action) -> str:
    cells = _usage(action), _filled(action), _default(action)
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _usage(action: argparse.Action) -> str:
    """Say how an argument is written: its names, and what stands behind them."""
    choices = ", ".join(map(str, action.choices)) if action.choices else ""
    word = action.metavar if isinstance(action.metavar, str) else "" if choices else action.dest.upper()
    values = "" if action.nargs == 0 else f"{{{choices}}}" if choices and not word else word
    more = {"*": f"[{values} ...]", "+": f"{values} [...]", "?": f"[{values}]"}
    values = more.get(str(action.nargs), " ".join([values] * action.nargs) if isinstance(action.nargs, int) else values)
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, [names, values]))}`" + (" (required)" if action.required and names else "")


def _filled(action: argparse.Action) -> str:
    """Return what help says of an argument, its placeholders filled in as argparse does."""
    facts = {**vars(action), "prog": "trainauto"}
    return (action.help or "") % facts


def _default(action: argparse.Action) -> str:
    nothing = (None, False, argparse.SUPPRESS)
    return "" if any(action.default is value for value in nothing) or action.default == [] else f"`{action.default}`"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
