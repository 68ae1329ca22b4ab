"""The public interface: what docs/python.md shows runs as it stands, and importing it costs nothing."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import trainauto
from tests.integration.commands import run_directory, script, step_records, tiny_options, train, write_options

ROOT = Path(__file__).parents[2]
Write = Callable[..., Path]


def test_importing_it_loads_no_torch_and_takes_milliseconds(tmp_path: Path) -> None:
    code = (
        "import sys, time; began = time.perf_counter(); import trainauto; "
        "print(time.perf_counter() - began, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    assert all(line.split()[1:] == ["False", "False"] for line in runs)
    assert min(float(line.split()[0]) for line in runs) < 0.05


def test_every_name_is_there_and_the_stub_says_the_same() -> None:
    names = [name for name in trainauto.__all__ if name != "__version__"]
    assert all(callable(getattr(trainauto, name)) for name in names)
    stub = (ROOT / "trainauto" / "__init__.pyi").read_text()
    stated = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    assert sorted(name for _, name in stated) == sorted(names)
    for module, name in stated:
        assert getattr(import_module(module), name) is getattr(trainauto, name)
    with pytest.raises(AttributeError, match="no attribute 'trainn'"):
        _ = trainauto.trainn  # type: ignore[attr-defined]


def test_the_page_runs_as_it_stands(tmp_path: Path, write_images: Write) -> None:
    """On small images of the test's own, in place of the quick start's."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    shown = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    write_options(tmp_path / "options" / "train" / "quickstart.yml", tiny_options(write_images("gt", 2, (80, 80))))
    (tmp_path / "page.py").write_text(shown, encoding="utf-8")
    done = script("page.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert any(line.startswith("RTX 3060 12GB: batch_size ") for line in said)
    assert any(line.startswith("completed ") for line in said)
    assert "12 steps, 48 samples" in said
    assert any(line.startswith("RTX 4090 24GB: batch_size 64, side ") for line in said)


def test_records_are_columns(tmp_path: Path, write_images: Write) -> None:
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2, (80, 80))))
    assert train(file).returncode == 0
    tables = trainauto.read_records(tmp_path / "experiments" / "tiny")
    lines = step_records(run_directory(file))
    assert tables.steps["step"].dtype == np.int64
    assert tables.steps["step"].tolist() == list(range(1, 13))
    assert tables.steps["losses.l1loss"].tolist() == [line["losses"]["l1loss"] for line in lines]
    assert tables.steps["plan.lq_size"].tolist() == [16] * 12
    assert {len(column) for column in tables.steps.values()} == {12}
    assert tables.validations["step"].tolist() == [6, 12]
    assert tables.validations["metrics.psnr"].dtype == np.float64


def test_changes_are_checked_as_a_file_is(tmp_path: Path, write_images: Write) -> None:
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2, (80, 80))))
    options = trainauto.load_options(file, {"train:total_iter": 7})
    changed = options.changed({"name": "other one", "train:optim_g:lr": 1e-5, "manual_seed": 4})
    assert (options.options.train.total_iter, options.options.name) == (7, "tiny")
    assert (changed.options.train.total_iter, changed.options.name) == (7, "other one")
    assert changed.options.train.optim_g.arguments["lr"] == 1e-5
    with pytest.raises(trainauto.InputError, match="total_itr"):
        options.changed({"train:total_itr": 3})
    with pytest.raises(ValueError, match="name a card"):
        trainauto.plan(options)
    with pytest.raises(trainauto.InputError, match="24G"):
        trainauto.plan(options, vram="24G")
