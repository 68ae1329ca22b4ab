"""Pictures that shrink where not even one conversation fits, as far as the file allows and no further (D46)."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration

from tests.acceptance import only_in_acceptance
from tests.integration.commands import merged, step_records, train, write_options
from tests.integration.finetune_runs import finetune_options
from tests.vision_models import model_of, processor_of
from trainauto.builders.finetuned import as_seen_from_here, load_finetuned
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_options import options_of
from trainauto.tasks.finetune.processors import load_processor, pixel_bounds

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")

SIDE_PX, WIDE = 192, 4096
"""Of pictures; and of what each of their patches becomes in the vision tower, so that they take most of the memory."""

AS_MEASURED = {"DynamicBatchSizeOptimizer": {"policy": "step"}}
"""Plans follow what is measured; nothing is foreseen."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model whose pictures may have 256 x 256 px, and 8 conversations with one of 192 x 192 each."""
    folder = tmp_path_factory.mktemp("made")
    config = model_of("qwen3_vl").config
    config.vision_config.intermediate_size = WIDE
    Qwen3VLForConditionalGeneration(config).save_pretrained(folder / "model")
    processor = processor_of("qwen3_vl")
    processor.image_processor.size = type(processor.image_processor.size)(shortest_edge=256, longest_edge=256 * 256)
    processor.save_pretrained(folder / "model")
    lines = []
    for number in range(8):
        pixels = np.random.default_rng(number).integers(0, 255, (SIDE_PX, SIDE_PX, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
        asked = [{"type": "image", "image": f"{number}.png"}, {"type": "text", "text": "Which colour is it?"}]
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": "a red square"}]
        lines.append(json.dumps({"messages": messages}) + "\n")
    (folder / "chats.jsonl").write_text("".join(lines))
    return folder


def written(made: Path, file: Path, **changes: Any) -> Path:
    training = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2}
    options = finetune_options(made / "model", made / "chats.jsonl", training=training)
    return write_options(file, merged(options, changes))


def run_of(folder: Path) -> Path:
    return (folder / "training_output" / "current").resolve()


def test_pictures_shrink_until_one_conversation_fits(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From what the largest has, not from the limit; steps keep their samples, and a resume and `test` keep it."""
    monkeypatch.chdir(tmp_path)
    memory = {"budget": "40MiB", "shrink_pictures_to": 4096}
    short = {"training": {"num_train_epochs": 1}, "training_automations": AS_MEASURED}
    options = written(made, tmp_path / "run.yml", memory=memory, **short)
    done = train(options)
    assert done.returncode == 0, done.stderr
    assert "reduced to 18432 pixels from now on, of 36864 that the largest one had" in " ".join(done.stdout.split())
    run = run_of(tmp_path)
    records = step_records(run)
    assert [record["samples"] for record in records] == [4, 4]
    assert [record["first_sample"] for record in records] == [0, 4]
    assert records[0]["ooms"] > 0
    assert records[1]["ooms"] == 0
    decided = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert any(each["kind"] == "keep_plan" and "reduced to 18432 pixels" in each["reason"] for each in decided)
    kept = pixel_bounds(load_processor(run / "checkpoints" / "epoch_0"))[1]
    assert 4096 <= kept <= 18432

    resumed = train(options, "--auto_resume", "--force_yml", "training:num_train_epochs=2")
    assert resumed.returncode == 0, resumed.stderr
    assert f"pictures stay reduced to {kept} pixels" in " ".join(resumed.stdout.split())
    records = step_records(run)
    assert [record["first_sample"] for record in records] == [0, 4, 8, 12]
    assert [record["ooms"] for record in records[2:]] == [0, 0]
    assert pixel_bounds(load_processor(run / "checkpoints" / "epoch_1"))[1] == kept
    directory = RunDirectory.find(run)
    loaded = as_seen_from_here(directory, options_of(directory).of(FinetuneOptions))
    trained = load_finetuned(directory, loaded, "latest", torch.device("cpu"), torch.float32)
    assert pixel_bounds(trained.processor)[1] == kept


@only_in_acceptance
@pytest.mark.parametrize(
    ("memory", "what"),
    [
        ({}, "memory: {shrink_pictures_to: N} would reduce pictures, the largest of which has 36864 pixels"),
        (
            {"shrink_pictures_to": 40000},
            "The largest picture has 36864 pixels, and shrink_pictures_to allows no fewer than 40000",
        ),
    ],
)
def test_pictures_stay_where_the_file_does_not_let_them_shrink(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: dict[str, Any], what: str
) -> None:
    """The run ends, and says what would help."""
    monkeypatch.chdir(tmp_path)
    done = train(written(made, tmp_path / "run.yml", memory={"budget": "40MiB", **memory}))
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "one sample does not fit" in said
    assert what in said
    assert "`memory: gradient_checkpointing: true` would help" in said
    assert "or more memory (memory: budget:)" in said
    assert "memory_budget" not in said
    assert "pictures are reduced" not in said


@only_in_acceptance
def test_pictures_do_not_shrink_for_a_larger_batch(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One conversation fits and two do not: steps run in more passes, and pictures are what they were."""
    monkeypatch.chdir(tmp_path)
    memory = {"budget": "80MiB", "shrink_pictures_to": 4096}
    done = train(written(made, tmp_path / "run.yml", memory=memory, training_automations=AS_MEASURED))
    assert done.returncode == 0, done.stderr
    records = step_records(run_of(tmp_path))
    assert records[0]["ooms"] > 0
    assert [record["samples"] for record in records] == [4] * 4
    assert pixel_bounds(load_processor(run_of(tmp_path) / "checkpoints" / "epoch_1"))[1] == 256 * 256
