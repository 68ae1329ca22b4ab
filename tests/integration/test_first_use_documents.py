"""What a new user reads first: its facts are so, and what is explained is explained early; licence and .gitignore."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.documents import ROOT, read
from trainauto.tasks.sr.data.image_files import IMAGE_SUFFIXES

README = read("README.md")


def test_curves_are_shown_by_one_command_everywhere() -> None:
    shown = [line.strip() for line in (README + read("docs/runs.md")).splitlines() if "--logdir" in line]
    assert shown == ["python -m tensorboard.main --logdir experiments"]
    # The quick start ends with it; tests/unit/scripts/test_quickstart.py holds that it is this folder.
    assert '"-m", "tensorboard.main", "--logdir"' in (ROOT / "scripts" / "quickstart.py").read_text(encoding="utf-8")


def test_formats_of_images_are_those_that_are_read() -> None:
    page = read("docs/images.md")
    said = re.search(r"\| formats \| ([\w, ]+?) and (\w+), in", page)
    assert said is not None
    names = {name.strip().lower() for name in [*said[1].split(","), said[2]]}
    suffixes = {suffix.removeprefix(".") for suffix in IMAGE_SUFFIXES} | {"avif", "jp2"}  # by Pillow's build
    kinds = dict.fromkeys(("jpg", "jpe", "jfif"), "jpeg") | {"tif": "tiff", "ppm": "pnm", "pgm": "pnm"}
    assert {kinds.get(name, name) for name in suffixes} == names
    for fact in (
        "| 16 bits | reduced to 8 bits",
        "| alpha channel | dropped",
        "EXIF tag says, high-quality and low-quality",
    ):
        assert fact in page


def section(heading: str) -> str:
    return README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_what_matters_first_stands_first() -> None:
    begin = README.partition("\n## Quick start\n")[0]
    assert len(begin.splitlines()) <= 25, "a screen"
    assert "docs/images/demo.svg" in begin
    assert "scripts/demo.py" in begin
    words = section("Words")
    for word in ("crop", "plan", "period", "controller", "micro-batches"):
        assert f"*{word}*" in words

    finders = section("Against other batch finders")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in finders.splitlines() if line.startswith("|")]
    peers = ["Lightning `binsearch`", "Accelerate", "bisection"]
    assert rows[0][1:] == ["trainauto, target 85 %", "trainauto, target 95 %", *peers]
    seconds = next(row for row in rows if row[0].startswith("seconds"))[1:]
    measured = (ROOT / "docs" / "benchmarks" / "autobatch.md").read_text(encoding="utf-8")
    line = next(line for line in measured.splitlines() if line.startswith("| seconds until 3 steps of the last plan"))
    found = [cell.split()[0] for cell in line.split("|")[2:-1]]
    assert [found[0], "not measured", *found[2:]] == seconds, "as they were measured"

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
