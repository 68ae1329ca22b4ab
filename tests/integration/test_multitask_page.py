"""docs/multitask.md: its example runs as it stands, under a budget that is real."""

import json
import platform
import re
from pathlib import Path

import pytest

from tests.integration.commands import script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "multitask.md").read_text(encoding="utf-8")


@pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")
def test_the_example_runs(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0])
    done = script("example.py", cwd=tmp_path, timeout_s=280)
    assert done.returncode == 0, done.stderr
    evaluated = re.search(r"^loss [\d.]+, evaluated ([\d.]+)$", done.stdout, re.MULTILINE)
    assert evaluated is not None, done.stdout
    assert float(evaluated[1]) < 0.5  # chance is 0.69
    metrics = tmp_path / "dynamic_training_outputs" / "training_metrics"
    report = json.loads((metrics / "training_report.json").read_text())
    assert report
    names = {file.name for file in metrics.iterdir()}
    assert {"batch_metrics.json", "epoch_metrics.json", "task_comparison.png"} <= names
    assert [name for name in names if name.startswith("training_curves") and name.endswith(".png")]
    batches = json.loads((metrics / "batch_metrics.json").read_text())
    assert sum(batch["batch_size"] for batch in batches) == 3 * 960  # each sample once an epoch


def test_every_name_that_the_page_imports_is_there() -> None:
    import trainauto.multitask

    for names in re.findall(r"^from trainauto\.multitask import (.*)$", PAGE, re.MULTILINE):
        for name in names.split(", "):
            assert name in trainauto.multitask.__all__, name
