"""What a new user reads: commands and options of the README are there, and so are its facts; licence and .gitignore."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainauto.cli import _parser
from trainauto.tasks.sr.data.image_files import IMAGE_SUFFIXES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
PYTHON = re.compile(r"^(?:\.venv/bin/)?python3? ")


def shown_commands() -> list[str]:
    """Return every command that the README shows, indented or between backticks, without remarks."""
    text = BLOCK.sub("", README)
    shown = re.findall(r"^    (\S.*)$", text, re.MULTILINE) + INLINE.findall(text)
    commands = (one.partition(" #")[0].strip() for one in shown)
    return sorted({one for one in commands if PYTHON.match(one) or one.startswith((".venv/bin/torchrun ", "test.py "))})


def arguments_of(command: str) -> list[str] | None:
    """Return what a shown command gives to trainauto; ``None`` where it starts another program."""
    before, train, after = command.partition("train.py")
    if train and "scripts/" not in before:
        return ["train", *shlex.split(after)]
    program, *rest = shlex.split(PYTHON.sub("", command))
    if program == "test.py":
        return ["test", *rest]
    return rest[1:] if [program, *rest[:1]] == ["-m", "trainauto"] else None


def test_commands_of_every_kind_are_shown() -> None:
    first_words = {words[0] for command in shown_commands() if (words := arguments_of(command))}
    assert first_words >= {
        "train",
        "validate",
        "doctor",
        "plan",
        "report",
        "replay",
        "export",
        "upscale",
        "test",
        "list",
    }
    assert len(shown_commands()) > 20


@pytest.mark.parametrize("command", shown_commands())
def test_a_command_of_the_readme_is_understood(command: str) -> None:
    arguments = arguments_of(command)
    if arguments is not None:
        _parser().parse_args(arguments)  # leaves with an error where it is not
        return
    program, *rest = shlex.split(PYTHON.sub("", command))
    assert find_spec(rest[0]) if program == "-m" else (ROOT / program).is_file()


def test_curves_are_shown_by_one_command_everywhere() -> None:
    shown = [line.strip() for line in README.splitlines() if "--logdir" in line]
    assert shown == [".venv/bin/python -m tensorboard.main --logdir experiments"]
    # The quick start ends with it; tests/unit/scripts/test_quickstart.py holds that it is this folder.
    assert '"-m", "tensorboard.main", "--logdir"' in (ROOT / "scripts" / "quickstart.py").read_text(encoding="utf-8")


def names_in(schema: Any) -> Iterator[str]:
    """Yield the keys that option files may have, those of components included."""
    for node in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from names_in(node)
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (name for name in schema.get("patternProperties", {}))


def keys_of(document: Any) -> Iterator[str]:
    """Yield every key of a YAML document."""
    for node in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from keys_of(node)
    yield from document if isinstance(document, dict) else ()


CHOSEN_BY_THE_USER = {"psnr", "ssim", "width"}
"""Names of metrics as a log is to call them, and an argument of the network that the README makes."""


def test_every_option_of_the_readme_is_one() -> None:
    known = set(names_in(json.loads((ROOT / "options" / "schema.json").read_text(encoding="utf-8"))))
    patterns = [name for name in known if not name.isidentifier()]  # of keys in any case
    shown = [text for language, text in BLOCK.findall(README) if language == "yaml"]
    shown += [one for one in INLINE.findall(BLOCK.sub("", README)) if re.fullmatch(r"[a-z_]+: ?\S.*", one)]
    assert len(shown) > 15
    keys = {key for text in shown for key in keys_of(yaml.safe_load(text))} - CHOSEN_BY_THE_USER
    assert len(keys) > 40
    unknown = {key for key in keys - known if not any(re.search(pattern, key) for pattern in patterns)}
    assert not unknown
    # Options on a command line are paths into the same file.
    forced = re.findall(r"(?<![\w./])([a-z_]+(?::[a-z_]+)+)=", README)
    assert {"train:total_iter", "datasets:train:lq_size"} <= set(forced)
    of_all_tasks = known.union(
        *(names_in(json.loads(schema.read_text())) for schema in ROOT.glob("options/*/schema.json"))
    )
    assert not {word for path in forced for word in path.split(":")} - of_all_tasks


def test_formats_of_images_are_those_that_are_read() -> None:
    said = re.search(r"\*\*Which images\?\*\* ([\w, ]+?) and (\w+), with", README)
    assert said is not None
    names = {name.strip().lower() for name in [*said[1].split(","), said[2]]}
    read = {suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES}
    assert {{"jpg": "jpeg", "tif": "tiff"}.get(name, name) for name in read} == names
    for fact in ("16 bits are reduced to 8", "alpha channel is\n  dropped", "EXIF tag says, gt and lq alike"):
        assert fact in README


def section(heading: str) -> str:
    return README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_what_matters_first_stands_first() -> None:
    begin = README.partition("\n## Quick start\n")[0]
    for word in ("crop", "plan", "period", "Pieces"):
        assert f"*{word}*" in begin, "words of its own are explained where they first stand"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in begin.splitlines() if line.startswith("|")]
    assert rows[0][1:] == ["trainauto", "Lightning `binsearch`", "Accelerate", "bisection"]
    seconds = next(row for row in rows if row[0].startswith("seconds"))[1:]
    measured = (ROOT / "docs" / "benchmarks" / "autobatch.md").read_text(encoding="utf-8")
    line = next(line for line in measured.splitlines() if line.startswith("| seconds until 3 steps of the last plan"))
    assert [cell.split()[0] for cell in line.split("|")[2:-1]] == seconds, "as they were measured"

    start = section("Quick start")
    table = {line.split("|")[1].strip(): line.split("|")[2] for line in start.splitlines() if line.startswith("| ")}
    for row, unit in {"download": "MiB", "disk": "GB", "installation": " s ", "training": "minutes"}.items():
        assert unit in table[row]
    for windows in (r"py scripts\quickstart.py", r".venv\Scripts\python", "pip install -e ."):
        assert f"`{windows}`" in start


def test_the_licence_is_apache() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert all(f"\n   {number}. " in text for number in range(1, 10)), "all of its sections"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git")
def test_images_and_options_of_ones_own_are_ignored_and_code_is_not(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    git("init", "-q")
    shutil.copy(ROOT / ".gitignore", tmp_path)
    asked = [
        "data/a.png",
        "options/local/x.yml",
        "trainauto/data/x.py",
        "tests/unit/data/x.py",
        "tests/options/local/x",
    ]
    assert git("check-ignore", *asked).split() == asked[:2]
