"""``schema``: what option files may hold, for editors and for people."""

import argparse
import sys
from functools import partial

from trainauto.commands.command_reference import REFERENCE, commands_reference
from trainauto.commands.common_arguments import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("schema", help="print the JSON Schema of option files")
    parser.add_argument(
        "--task",
        choices=["super_resolution", "text", "multitask", "finetune"],
        default="super_resolution",
        help="task of the option files",
    )
    parser.add_argument("--markdown", action="store_true", help="print the options reference instead")
    written = (
        "options/schema.json, docs/options.md, those of options/text, options/multitask and options/finetune, "
        "and docs/commands.md"
    )
    parser.add_argument("--write", action="store_true", help=f"in a clone: write {written}")
    parser.add_argument("--check", action="store_true", help="in a clone: exit with 1 if one of these is out of date")
    parser.set_defaults(execute=partial(_run, commands))


def _run(commands: Commands, parsed: argparse.Namespace) -> int:
    from trainauto.builders import registered_documents as kept
    from trainauto.core.files import write_text_atomically

    documents = {**kept.option_documents(), REFERENCE: commands_reference(commands)}
    if parsed.check:
        stale = [path for path, text in documents.items() if not path.is_file() or path.read_text("utf-8") != text]
        for path in stale:
            print(f"{path} is out of date: run `python -m trainauto schema --write`", file=sys.stderr)
        return 1 if stale else 0
    if parsed.write:
        for path, text in documents.items():
            write_text_atomically(path, text)
        return 0
    schema, reference = {
        "super_resolution": (kept.SCHEMA, kept.REFERENCE),
        "text": (kept.TEXT_SCHEMA, kept.TEXT_REFERENCE),
        "multitask": (kept.MULTITASK_SCHEMA, kept.MULTITASK_REFERENCE),
        "finetune": (kept.FINETUNE_SCHEMA, kept.FINETUNE_REFERENCE),
    }[parsed.task]
    print(documents[reference if parsed.markdown else schema], end="")
    return 0
