"""Fine-tuning under a memory budget that is real: steps run in parts, and passes follow memory."""

import json
import platform
import re
from pathlib import Path
from typing import Any

import pytest

from tests.four_bits import needs_bitsandbytes
from tests.integration.commands import step_records, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")

SAMPLES = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and 24 conversations of some 400 tokens: all at once take more than 90 MiB."""
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    file = write_chats(folder / "chats.jsonl", SAMPLES)
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    for entry in entries:
        entry["messages"][-1]["content"] = "red green blue square circle " * 40
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder


def trained(made: Path, folder: Path, passes: int, how: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Run two epochs of one step each; return the records of steps and what was said."""
    folder.mkdir()
    training = {"per_device_train_batch_size": SAMPLES // passes, "gradient_accumulation_steps": passes}
    options = finetune_options(made / "model", made / "chats.jsonl", training=training, **changes)
    done = train(write_options(folder / "run.yml", options), **(how or {}))
    assert done.returncode == 0, done.stderr
    return step_records(folder / "training_output" / "current"), done


def test_a_step_that_runs_out_of_memory_runs_in_parts(made: Path, tmp_path: Path) -> None:
    """D46: nothing is foreseen, and the batch as large as the file says; it learns what it learns with all memory."""
    roomy, _ = trained(made, tmp_path / "roomy", 1)
    steps = {"DynamicBatchSizeOptimizer": {"policy": "step"}}
    budget = {"memory": {"budget": "60MiB"}, "training_automations": steps}
    tight, done = trained(made, tmp_path / "tight", 1, **budget)
    assert "60.0 MiB (budget)" in done.stdout
    assert "cannot trace" not in done.stderr
    assert tight[0]["ooms"] > 0
    assert tight[0]["pieces"]["train"]["micro_batches"] > 1
    assert [record["samples"] for record in tight] == [SAMPLES] * 2
    assert [record["plan"]["batch_size"] for record in tight] == [SAMPLES] * 2
    losses = [[record["losses"]["loss"] for record in records] for records in (tight, roomy)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert re.search(r"out of memory in objective 'train' with 24 samples; the\s+batch is run again in 2", done.stderr)
    passes = [int(each) for each in re.findall(r"24 samples in passes of (\d+)", done.stdout)]
    assert passes[0] == -(-SAMPLES // tight[0]["pieces"]["train"]["micro_batches"])
    assert passes[1] < SAMPLES


@needs_bitsandbytes
def test_beside_weights_in_4_bits(made: Path, tmp_path: Path) -> None:
    """D27: where nothing is foreseen, a pass that runs out of memory as it unpacks weights is a step in parts."""
    beside = {"model": {"load_in_4bit": True}, "lora": {"r": 4}}
    steps = {"DynamicBatchSizeOptimizer": {"policy": "step"}}
    roomy, _ = trained(made, tmp_path / "roomy", 1, **beside, training_automations={"enabled": False})
    budget = {"memory": {"budget": "60MiB"}, "training_automations": steps}
    tight, _ = trained(made, tmp_path / "tight", 1, **beside, **budget)
    assert tight[0]["ooms"] > 0
    losses = [[record["losses"]["loss"] for record in records] for records in (tight, roomy)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_passes_grow_where_accumulation_allows_it(made: Path, tmp_path: Path) -> None:
    """D46, D47: a step stays what it is; how much of it a pass holds is what memory and the settings leave room for."""
    target = {"training_automations": {"DynamicBatchSizeOptimizer": {"target_vram_usage": 0.5}}}
    records, _ = trained(made, tmp_path / "half", 12, {"afresh": False}, memory={"budget": "120MiB"}, **target)
    assert [record["samples"] for record in records] == [SAMPLES] * 2
    passes = [record["plan"]["micro_batches"] for record in records]
    assert all(1 < each < 12 for each in passes), passes
    assert all(record["ooms"] == 0 for record in records)
    run = tmp_path / "half" / "training_output" / "current"
    (change,) = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()][:1]
    assert change["kind"] == "plan_change", change
    log = (run / "training.log").read_text()
    assert "of 120 MiB" in log
    assert re.search(r"instead of batch_size 24, in 12 micro-batches", log)
