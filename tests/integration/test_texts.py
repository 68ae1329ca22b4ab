"""Texts through worker processes, and under a memory budget that is real."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests import tokenizers
from tests.integration.commands import script
from tests.integration.ready_processes import begin
from trainauto import build_dynamic_batch_dataloader

WORKER = Path(__file__).parent / "text_worker.py"
ROOT = WORKER.parents[2]
TEXTS = tokenizers.texts(60, longest=30)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")  # where there are two cores
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    """B10; and a position that is saved while workers have drawn ahead is that of what was consumed."""

    def batches(num_workers: int, state: dict[str, Any] | None = None, stop: int | None = None) -> Any:
        loader = build_dynamic_batch_dataloader(
            TEXTS, tokenizers.fast_tokenizer(), 4, 64, num_workers=num_workers, shuffle=True
        )
        if state is not None:
            loader.load_state_dict(state)
        seen = [
            (batch.texts, batch.indices, batch["input_ids"].tolist())
            for _, batch in zip(range(stop or len(loader)), loader, strict=False)
        ]
        return seen, loader.state_dict()

    whole, _ = batches(0)
    begun, state = batches(workers, stop=2)
    assert begun == whole[:2]
    assert batches(workers, state, stop=len(whole) - 2)[0] == whole[2:]
    assert "tokenizers" not in capfd.readouterr().err  # their warning of forks


def test_a_batch_that_runs_out_of_memory_in_mid_run_loses_nothing(tmp_path: Path) -> None:
    """B08: texts that take more than predicted run out of memory for real, and come again in smaller batches."""
    done = script(str(WORKER), "64MiB", "0.8", "result.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    report, tokens = result["report"], [count * width for count, width in result["shapes"]]
    assert 1 <= report["out_of_memory"] <= 3
    assert len(result["shapes"]) == report["batches"] + report["out_of_memory"]
    failed = next(place for place, shape in enumerate(result["shapes"]) if shape[1] <= 24)
    assert failed > 10
    assert tokens[failed] > 0.9 * max(tokens[:failed])  # planned as all before it
    assert max(tokens[failed + 1 :]) <= 0.76 * tokens[failed]  # and those after it are smaller
    assert report["texts"] == len(result["results"]) == 400
    assert result["results"][::7] == pytest.approx(result["alone"], rel=1e-4)
    assert result["limit_is_back"]
    assert 0.5 < report["peak_bytes"] / report["limit_bytes"] <= 1


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    """B01, B16, B43: docs/texts.md, before and after."""
    (script,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "texts.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "page.py").write_text(script)
    page = begin(["page.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, is_merged=False)
    said, errors = page.communicate(120)
    assert (page.returncode, errors) == (0, "")
    before, after, _, vectors, batches, translated = said.splitlines()
    padding = [float(found) for line in (before, after) for found in re.findall(r"([\d.]+)% padding", line)]
    assert padding[1] < padding[0] / 2
    assert after.startswith("after: 400 texts in ")
    assert vectors == "400 vectors of 64 numbers, in the order of the texts"
    assert batches.split("the first ")[1].startswith("[(16, 256), (")
    assert translated.startswith("16 translations, of text ")
