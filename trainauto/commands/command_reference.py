"""The reference of all commands, generated from their parsers."""

import argparse
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from trainauto.commands.common_arguments import Commands

REFERENCE = Path("docs/commands.md")
_REQUIRED = " (required)"

_INTRODUCTION = """# Commands

This page is generated from the parsers of all commands; do not edit it. `COMMAND --help` prints the same.

`python -m trainauto COMMAND` and, after installation, `trainauto COMMAND` are the same. In a clone, `python
train.py` is `train` and `python test.py` is `test`.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the run failed |
| 2 | the input cannot be used |
| 130, 143, 129 | Ctrl-C, SIGTERM or SIGHUP (a closing terminal) ended the run after a step, with everything saved |

The table shows which command supports which kind of task.

| command | super-resolution | texts | several tasks | fine-tuning |
|---|---|---|---|---|
| `train` on any number of ranks and with `--auto_resume`, `replay`, `validate`, `plan` | yes | yes | yes | yes |
| `doctor`, `report`, `test`, `export` | yes | yes | yes | yes |
| `upscale`, `degrade`, `prepare`, `convert` | yes | no | no | no |

## Arguments of several commands

| argument | description |
|---|---|
"""


def commands_reference(commands: Commands) -> str:
    """Return the reference of commands as Markdown.

    Args:
        commands: what the parsers of commands were added to.
    """
    purposes = {choice.dest: choice.help or "" for choice in commands._get_subactions()}
    counts = Counter(_written(action) for parser in commands.choices.values() for action in _shown(parser))
    # Of an argument that commands describe in several ways, the most common one.
    common = {usage: (usage, described) for (usage, described), count in reversed(counts.most_common()) if count > 1}
    shared = set(common.values())
    parts = [_INTRODUCTION + "".join(f"{_row(*written)}\n" for written in counts if written in shared)]
    parts += ["\n".join(_of_command(name, parser, purposes[name], shared)) for name, parser in commands.choices.items()]
    return "\n".join(parts)


Written = tuple[str, str]
"""An argument as it is written, and what it is."""


def _of_command(name: str, parser: argparse.ArgumentParser, purpose: str, shared: Collection[Written]) -> Iterator[str]:
    yield f"## `{name}`"
    yield ""
    yield _sentence(parser.description or purpose)
    yield ""
    shown = _shown(parser)
    if also := [_short(action) for action in shown if _written(action) in shared]:
        yield f"[Shared arguments](#arguments-of-several-commands): {', '.join(also)}."
        yield ""
    if own := [action for action in shown if _written(action) not in shared]:
        yield "| argument | description |"
        yield "|---|---|"
        yield from (_row(_usage(action), _described(action)) for action in own)
        yield ""


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    arguments = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return [action for action in arguments if action.help != argparse.SUPPRESS]


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _written(action: argparse.Action) -> Written:
    """Return what is the same wherever an argument means the same, needed or not."""
    usage = _usage(action).removesuffix(_REQUIRED)
    return f"`{usage[2:-2]}`" if usage.startswith("`[") and action.nargs == "?" else usage, _described(action)


def _short(action: argparse.Action) -> str:
    if not action.option_strings:
        return _usage(action)
    return f"`{', '.join(action.option_strings)}`" + (_REQUIRED if action.required else "")


def _usage(action: argparse.Action) -> str:
    """Say how an argument is written: its names, and what stands behind them."""
    choices = ", ".join(map(str, action.choices)) if action.choices else ""
    word = action.metavar if isinstance(action.metavar, str) else "" if choices else action.dest.upper()
    values = "" if action.nargs == 0 else f"{{{choices}}}" if choices and not word else word
    more = {"*": f"[{values} ...]", "+": f"{values} [...]", "?": f"[{values}]"}
    values = more.get(str(action.nargs), " ".join([values] * action.nargs) if isinstance(action.nargs, int) else values)
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, [names, values]))}`" + (_REQUIRED if action.required and names else "")


def _described(action: argparse.Action) -> str:
    """Return what help says of an argument, its placeholders filled in as argparse does, and its default."""
    facts = {**vars(action), "prog": "trainauto"}
    described, default = (action.help or "") % facts, action.default
    if any(default is value for value in (None, False, argparse.SUPPRESS)) or default == []:
        return described
    if re.search(rf"(?<!\w){re.escape(str(default))}(?!\w)", described):
        return described
    return "; ".join(filter(None, [described, f"default `{default}`"]))


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
