"""``init``: write an option file to begin with."""

import argparse

from trainauto.commands.common_arguments import Commands
from trainauto.core.errors import InputError, Problem, nearest

TASKS = {
    "sr": "super-resolution",
    "text": "a language model",
    "finetune": "a vision-language model learns conversations",
    "multitask": "one model, several tasks",
}

ARGUMENTS = {
    "images": ("sr",),
    "scale": ("sr",),
    "texts": ("text",),
    "conversations": ("finetune",),
    "model": ("finetune",),
    "val": ("sr", "text", "finetune"),
}
"""Arguments, and the tasks that they are of."""

REQUIRED = {"finetune": ("conversations", "model")}
"""Of tasks for which no data ship."""

SCALES = (2, 3, 4)


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "init",
        help="write a first option file, suited to this machine",
        description=(
            "Write NAME.yml into this folder: an option file with comments that trains as it stands, suited to this "
            "machine, with the memory controller switched on. Existing option files are kept. If some images are set "
            "aside for validation, a list of the others lies beside it. .trainauto gets the schema for editors."
        ),
    )
    tasks = "; ".join(f"{task}: {words}" for task, words in TASKS.items())
    parser.add_argument("task", metavar="TASK", help=tasks)
    parser.add_argument("name", metavar="NAME", help="name of the file and of its runs: letters, digits, space, . _ -")
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="sr: high-quality images; without it, photographs that ship with scikit-image and scikit-learn",
    )
    parser.add_argument("--scale", type=int, metavar="N", help="sr: factor of enlargement, 2, 3 or 4; default 4")
    parser.add_argument(
        "--texts", metavar="PATH", help="text: a file or a folder; without it, help texts that ship with Python"
    )
    parser.add_argument(
        "--conversations", metavar="PATH", help="finetune: a .jsonl of chats, or a folder of pictures with captions"
    )
    parser.add_argument("--model", metavar="MODEL", help="finetune: folder of a saved model, or its name on the hub")
    parser.add_argument(
        "--val", metavar="PATH", help="images, texts or conversations to validate on; without it, some are set aside"
    )
    parser.set_defaults(execute=_run)


def _run(parsed: argparse.Namespace) -> int:
    _check(parsed)

    from trainauto.commands.run_init import init

    return init(parsed)


def _check(parsed: argparse.Namespace) -> None:
    """Refuse arguments that do not go together; loads nothing.

    Raises:
        InputError: there is no such task, an argument is of another one, or one is missing.
    """
    if parsed.task not in TASKS:
        raise InputError(Problem(f"there is no task '{parsed.task}'", advice=nearest(parsed.task, TASKS)))
    given = [name for name in ARGUMENTS if getattr(parsed, name) is not None]
    own = [f"--{name}" for name, tasks in ARGUMENTS.items() if parsed.task in tasks]
    if stray := [name for name in given if parsed.task not in ARGUMENTS[name]]:
        advice = f"It takes {', '.join(own)}." if own else "It takes a name alone."
        message = f"--{stray[0]} is of {', '.join(ARGUMENTS[stray[0]])}, and not of {parsed.task}"
        raise InputError(Problem(message, advice=advice))
    if missing := [f"--{name}" for name in REQUIRED.get(parsed.task, ()) if name not in given]:
        message = f"{parsed.task} needs {' and '.join(missing)}: none ship with trainauto"
        advice = "Add e.g. --conversations chats.jsonl --model Qwen/Qwen3-VL-2B-Instruct."
        raise InputError(Problem(message, advice=advice))
    if parsed.task != "sr" or parsed.scale in (None, *SCALES):
        return
    raise InputError(Problem(f"--scale {parsed.scale}: the networks of this file enlarge 2, 3 or 4 times"))
