"""Fine-tuning under a memory budget that is real: steps run in parts, and passes follow memory."""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import only_in_acceptance
from tests.four_bits import needs_bitsandbytes
from tests.integration.commands import merged, step_records, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")

SAMPLES = 24
AS_MEASURED = {"DynamicBatchSizeOptimizer": {"policy": "step"}}
"""Plans follow what is measured; nothing is foreseen."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and 24 conversations of some 400 tokens: all at once take more than 90 MiB."""
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    lengthened(write_chats(folder / "chats.jsonl", SAMPLES), range(SAMPLES))
    return folder


def lengthened(file: Path, which: Collection[int]) -> Path:
    """Have some conversations of a file end in an answer of some 400 tokens."""
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    for number in which:
        entries[number]["messages"][-1]["content"] = "red green blue square circle " * 40
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return file


def trained(
    made: Path, folder: Path, passes: int, size: int | None = None, *, afresh: bool = False, **changes: Any
) -> Any:
    """Run two epochs, of one step each where no size of passes is given; return records and what was said."""
    folder.mkdir()
    given = {"per_device_train_batch_size": size or SAMPLES // passes, "gradient_accumulation_steps": passes}
    base = finetune_options(made / "model", made / "chats.jsonl", training=given)
    options = merged(base, changes)
    done = train(write_options(folder / "run.yml", options), afresh=afresh)
    assert done.returncode == 0, done.stderr
    return step_records(folder / "training_output" / "current"), done


def test_a_step_that_runs_out_of_memory_runs_in_parts(made: Path, tmp_path: Path) -> None:
    """D46: nothing is foreseen, and the budget too small for the first batch; it settles, and learns the same."""
    roomy, _ = trained(made, tmp_path / "roomy", 1, training={"num_train_epochs": 4})
    budget = {"memory": {"budget": "60MiB"}, "training_automations": AS_MEASURED, "training": {"num_train_epochs": 4}}
    tight, done = trained(made, tmp_path / "tight", 1, afresh=True, **budget)
    assert "60.0 MiB; peaks are steered to" in " ".join(done.stdout.split())
    assert "cannot trace" not in done.stderr
    assert tight[0]["ooms"] > 0
    assert [record["ooms"] for record in tight[2:]] == [0, 0]
    assert tight[0]["pieces"]["train"]["micro_batches"] > 1
    assert [record["samples"] for record in tight] == [SAMPLES] * 4
    assert [record["plan"]["batch_size"] for record in tight] == [SAMPLES] * 4
    losses = [[record["losses"]["loss"] for record in records] for records in (tight, roomy)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    said = " ".join(done.stdout.split())
    assert "out of memory in the model's pass with 24 samples; the batch runs again in 2" in said
    assert tight[1]["plan"]["micro_batches"] > 1


def test_a_step_in_the_middle_that_runs_out_of_memory_learns_the_same(made: Path, tmp_path: Path) -> None:
    """Two of 48 conversations are long: the first step fits, one with a long one comes in parts, no sample is lost."""
    chats = lengthened(write_chats(tmp_path / "chats.jsonl", 48), (7, 30))
    mixed = {"dataset": {"path": str(chats)}, "training_automations": AS_MEASURED}
    roomy, _ = trained(made, tmp_path / "roomy", 1, size=12, **mixed)
    tight, _ = trained(made, tmp_path / "tight", 1, size=12, **mixed, memory={"budget": "30MiB"})
    failed = [record["step"] for record in tight if record["ooms"]]
    assert failed
    assert failed[0] > 1
    assert len(failed) < 4
    assert [record["samples"] for record in tight] == [12] * 8
    assert [record["first_sample"] for record in tight] == [record["first_sample"] for record in roomy]
    losses = [[record["losses"]["loss"] for record in records] for records in (tight, roomy)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@only_in_acceptance
def test_an_evaluation_that_runs_out_of_memory_leaves_training_as_it_is(made: Path, tmp_path: Path) -> None:
    """What is set aside is long: it is measured in smaller batches, and steps go on with what they had."""
    chats = write_chats(tmp_path / "chats.jsonl", 48)
    longer = lengthened(write_chats(tmp_path / "aside.jsonl", 24, first=60), range(24))
    aside = {"dataset": {"path": str(chats), "val": str(longer)}, "training_automations": AS_MEASURED}
    measured = {}
    for name, memory in (("roomy", {}), ("tight", {"memory": {"budget": "26MiB"}})):
        records, done = trained(made, tmp_path / name, 1, size=24, **aside, **memory)
        assert [record["ooms"] for record in records] == [0] * 4
        assert [record["plan"] for record in records] == [{"batch_size": 24, "micro_batches": 1}] * 4
        lines = (tmp_path / name / "training_output" / "current" / "validation.jsonl").read_text().splitlines()
        measured[name] = [json.loads(line) for line in lines]
    assert sum(entry["ooms"] for entry in measured["tight"]) > 0
    assert "batches of 12 conversations from here on" in " ".join(done.stdout.split())
    losses = [[entry["metrics"]["loss"] for entry in measured[name]] for name in ("tight", "roomy")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@only_in_acceptance
def test_answers_that_run_out_of_memory_are_asked_for_in_smaller_batches(made: Path, tmp_path: Path) -> None:
    """Real errors of the allocator in ``generate``: the same answers, fewer at a time."""
    chats = write_chats(tmp_path / "chats.jsonl", SAMPLES)
    entries = [json.loads(line) for line in chats.read_text().splitlines()]
    for entry in entries:
        entry["messages"][0]["content"][-1]["text"] = "Which colour is it? " * 60
    chats.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    words = [sys.executable, "-m", "tests.integration.generation_worker", str(made / "model"), str(chats), "8MiB"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["tight"]) == SAMPLES * 4 // 3
    assert found["tight"] == found["roomy"]
    assert any(line.startswith("out of memory with 32 questions at a time") for line in found["said"])


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


@only_in_acceptance
def test_steps_grow_only_where_the_file_lets_them(made: Path, tmp_path: Path) -> None:
    """Above the file's step a pass is the step, no larger than was written; rates follow what steps really have."""
    budget = {"memory": {"budget": "160MiB"}}
    grows = {"training": {"max_batch_size": 16, "lr_scaling": "sqrt", "lr_scheduler_type": "constant"}}
    grown, done = trained(made, tmp_path / "grown", 2, 2, **budget, **grows)
    assert "4 conversations each, in passes of 2 at first" in done.stdout
    assert "up to 16 where memory has room" in " ".join(done.stdout.split())
    assert [record["samples"] for record in grown] == [12] * 4  # of 16, as equal as the epoch of 24 allows
    assert all(record["plan"] == {"batch_size": 16, "micro_batches": 1} for record in grown)
    assert [record["lr"]["train"] for record in grown] == pytest.approx([1e-2 * 3**0.5] * 4)
    said = " ".join(done.stdout.split())
    assert "0.01, constant, lr_scaling sqrt, 2 epochs" in said
    assert "a smaller max_batch_size leaves more steps" in said


def test_passes_grow_where_accumulation_allows_it(made: Path, tmp_path: Path) -> None:
    """D46, D47: a step stays what it is; how much of it a pass holds is what memory and the settings leave room for."""
    target = {"training_automations": {"DynamicBatchSizeOptimizer": {"target_vram_usage": 0.5}}}
    records, _ = trained(made, tmp_path / "half", 12, memory={"budget": "120MiB"}, **target)
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
