"""What ``python -m trainauto init`` does: it looks at the data and the machine, and writes an option file."""

import argparse
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainauto.commands.first_files.finetune import check_model, chosen_conversations, finetune_file
from trainauto.commands.first_files.machine import Machine, this_machine
from trainauto.commands.first_files.multitask import multitask_file
from trainauto.commands.first_files.super_resolution import DEFAULT_SCALE, chosen_images, super_resolution_file
from trainauto.commands.first_files.text import chosen_texts, text_file
from trainauto.commands.first_files.writing import FirstFile, in_columns, whole_text
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_text_atomically
from trainauto.core.program import program_words
from trainauto.core.words import visible
from trainauto.options.fields import FolderName

SCHEMAS = Path(".trainauto")
SUFFIX = ".yml"


def init(parsed: argparse.Namespace) -> int:
    """Write an option file, what it names, and the schema of its task; say what was written and how to go on.

    Raises:
        InputError: the name cannot be used, a file is there already, or the data cannot be used.
    """
    check_name(parsed.name)
    path = Path(parsed.name + SUFFIX)
    _check_absent(path)
    machine = this_machine()
    file = _file_of(parsed, machine)
    for name in file.lists:
        _check_absent(Path(name))
    from trainauto.builders.registered_documents import option_schema

    schema = SCHEMAS / f"{file.schema}.json"
    steps = _commands(file, path)
    head = [f"Written by `{program_words()} init` for a machine with {machine.words}. To go on:", ""]
    head += [f"  {line}" for line in steps]
    _write({schema: option_schema(file.schema), **{Path(name): text for name, text in file.lists.items()}})
    _write({path: whole_text(file, schema.as_posix(), head)})
    print(f"wrote {', '.join([str(path), *file.lists, str(schema)])}, for a machine with {machine.words}")
    print(f"{visible(file.summary)}\n\nTo go on:")
    print("\n".join(f"  {line}" for line in steps))
    return 0


def _write(files: Mapping[Path, str]) -> None:
    """Write files, and the folders they lie in.

    Raises:
        InputError: one cannot be written.
    """
    for path, text in files.items():
        try:
            path.parent.mkdir(exist_ok=True)
            write_text_atomically(path, text)
        except OSError as error:
            message = f"cannot write {path} here: {error.strerror or error}"
            raise InputError(Problem(message, advice="Go to a folder that you may write to.")) from error


def check_name(name: str) -> None:
    """Refuse a name that no run may have.

    Raises:
        InputError: it holds other signs, is too long, or ends as files do.
    """
    if name.endswith((SUFFIX, ".yaml")):
        raise InputError(
            Problem(f"'{name}' is the name of a file", advice=f"Write {Path(name).stem}: {SUFFIX} is added.")
        )
    try:
        TypeAdapter(FolderName).validate_python(name)
    except ValidationError as error:
        advice = "Names begin with a letter or a digit, go on with these, space, . _ and -, and have 200 bytes at most."
        raise InputError(Problem(f"'{name}' cannot be the name of a run", advice=advice)) from error


def _check_absent(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise InputError(Problem(f"{path} is there already", advice="Choose another NAME, or remove the file."))


def _file_of(parsed: argparse.Namespace, machine: Machine) -> FirstFile:
    name: str = parsed.name
    match parsed.task:
        case "sr":
            images = chosen_images(parsed.images, parsed.val)
            return super_resolution_file(name, images, parsed.scale or DEFAULT_SCALE, machine)
        case "text":
            return text_file(name, chosen_texts(parsed.texts, parsed.val), machine)
        case "finetune":
            check_model(parsed.model)
            conversations = chosen_conversations(parsed.conversations, parsed.val)
            return finetune_file(name, parsed.model, conversations, machine)
    return multitask_file(name, machine)


def _commands(file: FirstFile, path: Path) -> list[str]:
    """Return the commands to go on with, each with its purpose."""
    opt = shlex.quote(str(path))
    lines = [(f"{program_words()} {words.format(opt=opt)}", purpose) for words, purpose in file.commands]
    lacking = [name for name in file.packages if find_spec(name) is None]
    install = (f"pip install 'trainauto[{file.extra}]'", f"first: this task needs {', '.join(lacking)}")
    return in_columns([*([install] if lacking else []), *lines])
