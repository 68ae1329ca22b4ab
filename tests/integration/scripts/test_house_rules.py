import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import house_rules
import pytest

ROOT = Path(__file__).parents[3]
LOOP = "def train():\n    pass\n\n\ndef train_until_done():\n    pass\n\n\ndef train_step():\n    pass\n"
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of a small repository that keeps every rule until a fault is planted."""

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    write("trainauto/__init__.py", "")
    write("trainauto/engine/__init__.py", "")
    write("trainauto/engine/loop.py", LOOP)
    write("trainauto/engine/step.py", "def optimize_parameters():\n    pass\n")
    return write


def breaches(root: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the script prints about a repository, without its closing line."""
    code = house_rules.main(root)
    *report, closing = [line for line in capsys.readouterr().out.splitlines() if "git does not answer" not in line]
    assert closing.endswith(f"{len(report)} breaches")
    assert code == (1 if report else 0)
    return report


def test_a_clean_repository_passes(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    assert breaches(tmp_path, capsys) == []


def test_long_files_are_found(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    write("trainauto/fits.py", "x = 1\n" * 600)
    write("trainauto/long.py", "x = 1\n" * 601)
    write("tests/fits.py", "x = 1\n" * 500)
    write("tests/long.py", "x = 1\n" * 501)
    write("notes.txt", "x\n" * 900)
    assert breaches(tmp_path, capsys) == [
        str(Path("tests/long.py")) + ":501: more than 500 lines; split it by idea",
        str(Path("trainauto/long.py")) + ":601: more than 600 lines; split it by idea",
    ]


def test_names_of_images_are_found_below_the_tasks(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    below = "trainauto/core/shape.py", "trainauto/memory/cost/cost_model.py", "trainauto/data/loader.py"
    write(below[0], "from images import gt_size\n\nPIXELS_LQ = scaled = 1\n")
    write(below[1], "scale = 2  # of a distribution, where that is said\n")
    write(below[2], "def cut(sample, *, scale):\n    sample.lq = sample.bicubic_of(lqx=1)\n")
    write("trainauto/tasks/sr/crops.py", "lq, gt, pixels, scale = range(4)\n")
    write("trainauto/builders/data.py", "lq_size = 48\n")
    names = [(line.split(":")[0], line.split("'")[1]) for line in breaches(tmp_path, capsys)]
    assert sorted(names) == [
        (str(Path(below[0])), "PIXELS_LQ"),
        (str(Path(below[0])), "gt_size"),
        (str(Path(below[2])), "bicubic_of"),
        (str(Path(below[2])), "lq"),
        (str(Path(below[2])), "scale"),
    ]


def test_long_functions_are_found_but_in_networks(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    write("trainauto/fits.py", "def run():\n" + "    x = 1\n" * 49)
    write("trainauto/long.py", "class Long:\n    async def run(self):\n" + "        x = 1\n" * 50)
    write("trainauto/tasks/sr/archs/net_arch.py", "def forward():\n" + "    x = 1\n" * 300)
    write("tests/long.py", "def test():\n" + "    x = 1\n" * 90)
    assert breaches(tmp_path, capsys) == [str(Path("trainauto/long.py")) + ":2: run() has 51 lines, more than 50"]


@pytest.mark.parametrize(("lines", "is_breach"), [(45, False), (46, True)])
def test_the_loop_fits_on_a_screen_or_two(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str], lines: int, is_breach: bool
):
    write("trainauto/engine/loop.py", LOOP.replace("train():\n", "train():\n" + "    x = 1\n" * lines))
    write("trainauto/engine/step.py", "def optimize_parameters():\n" + "    x = 1\n" * 48)
    report = breaches(tmp_path, capsys)
    assert report == (
        [
            "trainauto/engine/loop.py:1: train, train_until_done, train_step, optimize_parameters have 101 "
            "lines together, more than 100"
        ]
        if is_breach
        else []
    )


def test_a_function_of_the_loop_that_went_away_is_told(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
):
    write("trainauto/engine/loop.py", LOOP.replace("train_step", "step"))
    assert breaches(tmp_path, capsys) == ["trainauto/engine/loop.py:1: no function train_step()"]


def test_a_loop_that_went_away_is_told(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "trainauto/engine/loop.py").unlink()
    assert "the training loop is gone" in breaches(tmp_path, capsys)[0]


CIRCLES = {
    "absolute": ("import trainauto.b", "from trainauto.a import x"),
    "relative": ("from . import b", "from .a import x"),
    "inside a function": ("from trainauto.b import y", "def f():\n    from trainauto import a"),
    "inside a try": ("from trainauto.b import y", "try:\n    import trainauto.a\nexcept ImportError:\n    pass"),
    "in an else of the types": (
        "from trainauto import b",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from trainauto import a",
    ),
}
LINES = {
    "one direction": ("import trainauto.b", "import json"),
    "for types only": ("from trainauto import b", "if TYPE_CHECKING:\n    from trainauto import a"),
    "types through typing": ("from trainauto import b", "if typing.TYPE_CHECKING:\n    from trainauto.a import x"),
    "a name of the package": ("from trainauto import b", "from trainauto import __version__"),
    "another package": ("from trainauto import b", "from trainauto_extra.a import x"),
}


@pytest.mark.parametrize(
    ("texts", "circle"),
    [*((texts, True) for texts in CIRCLES.values()), *((texts, False) for texts in LINES.values())],
    ids=[*CIRCLES, *LINES],
)
def test_import_cycles(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str], texts: tuple[str, str], circle: bool
):
    write("trainauto/a.py", texts[0] + "\n")
    write("trainauto/b.py", texts[1] + "\n")
    report = breaches(tmp_path, capsys)
    assert len(report) == circle
    assert all("import cycle" in line and "trainauto.a" in line and "trainauto.b" in line for line in report)


def test_a_cycle_through_three_modules_and_a_package(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    write("trainauto/data/__init__.py", "from .reader import read\n")
    write("trainauto/data/reader.py", "from ..engine import loop\n")
    write("trainauto/engine/loop.py", "from trainauto.data import read\n\n\n" + LOOP)
    assert "trainauto.engine.loop" in breaches(tmp_path, capsys)[0]


STARTS = {
    "import subprocess": "subprocess",
    "import os, subprocess as s": "subprocess",
    "from subprocess import run": "subprocess.run",
    "def test():\n    import multiprocessing.pool": "multiprocessing.pool",
    "from torch import multiprocessing": "torch.multiprocessing",
    "from .subprocess import run": "",
    "import os\nos.fork()": "os.fork",
    "from os import fork": "os.fork",
    "import os\nos.getpid()": "",
}


@pytest.mark.parametrize("folder", ["tests/unit/data", "tests/contract", "tests/integration", "scripts"])
def test_unit_tests_start_no_processes(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str], folder: str):
    for number, text in enumerate(STARTS):
        write(f"{folder}/test_{number}.py", text + "\n")
    expected = [
        f"{Path(folder, f'test_{number}.py')}:{len(text.splitlines())}: {start} starts processes; "
        "move it to tests/integration"
        for number, (text, start) in enumerate(STARTS.items())
        if start and folder.startswith(house_rules.QUICK_TESTS)
    ]
    assert breaches(tmp_path, capsys) == expected


def slashed(*parts: str) -> str:
    """A path in pieces, for this file is checked as well."""
    return "".join("/" + part for part in parts)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"cd {slashed('root', 'x')}", "path of a machine"),
        (f'data: "{slashed("work", "main")}"', "path of a machine"),
        (f"file://{slashed('work')}", "path of a machine"),
        (f"see {slashed('tmp', 'bash' + '_jobs.0', 'x')}", "path of a machine"),
        ("https://" + ".".join(("pypi", "org")) + "/simple", "package index host"),
        ("files." + ".".join(("pythonhosted", "org")), "package index host"),
        (f"~{slashed('work', 'x')} and home{slashed('work', 'x')} and {slashed('rooted', 'workers')}", ""),
        (f"f'{{tmp}}{slashed('work', 'x')}' and {slashed('tmp', 'x')}", ""),
    ],
)
def test_machine_paths_and_index_hosts(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str], text: str, kind: str
):
    write("docs/page.md", "first line\n" + text + "\n")
    report = breaches(tmp_path, capsys)
    assert len(report) == bool(kind)
    assert all(line.startswith(f"{Path('docs/page.md')}:2: {kind}: ") for line in report)


def test_pictures_are_not_read(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    write("a.png", "\0" + slashed("root", "x"))
    assert breaches(tmp_path, capsys) == []


def test_only_tracked_files_are_judged(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    write("tracked.md", slashed("root", "x"))
    write("a scratch.md", slashed("root", "x"))
    for command in (["init", "-q"], ["add", "tracked.md"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert [line.split(":")[0] for line in breaches(tmp_path, capsys)] == ["tracked.md"]


def test_without_git_generated_folders_are_left_out(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]):
    write("experiments/x/options.yml", slashed("root", "x"))
    write(".venv/x.py", slashed("root", "x"))
    assert breaches(tmp_path, capsys) == []


def test_the_script_runs_alone(tmp_path: Path, write: Write):
    """Of this repository scripts/test.py asks it."""
    write("docs/page.md", slashed("root", "x"))
    script = [sys.executable, str(ROOT / "scripts" / "house_rules.py"), str(tmp_path)]
    ended = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "docs/page.md:1: " in ended.stdout
