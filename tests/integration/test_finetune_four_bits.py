"""Adapters trained beside weights in 4 bits (D27): runs, resumes, what other commands do with them."""

import json
import re
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.four_bits import needs_bitsandbytes
from tests.integration.commands import command, step_records, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from trainauto.automations.stop_file import STOP_FILE
from trainauto.tasks.finetune.conversation_model import ConversationModel

pytestmark = needs_bitsandbytes

SCALE = 8 / 4
IN_4_BITS = {
    "model": {"load_in_4bit": True},
    "lora": {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and two sets of conversations."""
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_chats(folder / "chats.jsonl")
    write_chats(folder / "aside.jsonl", 3, first=20)
    return folder


def written(made: Path, file: Path, **changes: Any) -> Path:
    options = finetune_options(made / "model", made / "chats.jsonl", dataset={"val": str(made / "aside.jsonl")})
    options["model"] |= IN_4_BITS["model"]
    return write_options(file, {**options, "lora": IN_4_BITS["lora"], **changes})


def newest(folder: Path) -> Path:
    return (folder / "training_output" / "current").resolve()


def adapters_of(folder: Path) -> Mapping[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def whole(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of two epochs, measured after each, and what it said."""
    folder = tmp_path_factory.mktemp("whole")
    with chdir(folder):
        done = train(written(made, folder / "run.yml"))
    assert done.returncode == 0, done.stderr
    assert "kernels-community" not in done.stderr
    return newest(folder), done.stdout


def test_it_learns_beside_4_bits(whole: tuple[Path, str]) -> None:
    """The start says how much is in 4 bits; checkpoints hold adapters alone."""
    run, said = whole
    assert re.search(r"linear layers [\d.]+ MiB in 4 bits; [\d.]+ MiB beside", " ".join(said.split()))
    records = step_records(run)
    assert records[-1]["losses"]["loss"] < records[0]["losses"]["loss"]
    for folder in (run / "checkpoints").glob("step_*"):
        assert all("lora_" in name for name in load_file(folder / "model.safetensors"))
    for folder in (run / "checkpoints").glob("epoch_*"):
        assert adapters_of(folder)
        assert not (folder / "model.safetensors").exists()
        assert all("lora_" in name and weight.dtype == torch.float32 for name, weight in adapters_of(folder).items())
    assert json.loads((run / "config.json").read_text())["model"]["load_in_4bit"] is True


def test_a_resume_comes_to_the_same_bits(
    made: Path, whole: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after an evaluation and a step: weights are packed anew, to what they were."""
    monkeypatch.chdir(tmp_path)
    options = written(made, tmp_path / "run.yml")
    given = ConversationModel.begin_step

    def begin_step(self: ConversationModel, step: int | None) -> None:
        if step == 5:
            (newest(tmp_path) / STOP_FILE).touch()
        given(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(ConversationModel, "begin_step", begin_step)
        assert train(options).returncode == 0
    resumed = train(options, "--auto_resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after step 5" in " ".join(resumed.stdout.split())
    run, kept = newest(tmp_path), ("step", "losses", "lr", "grad_norm")
    assert [[one[key] for key in kept] for one in step_records(run)] == [
        [one[key] for key in kept] for one in step_records(whole[0])
    ]
    ours, straight = (adapters_of(each / "checkpoints" / "epoch_1") for each in (run, whole[0]))
    assert ours.keys() == straight.keys()
    assert all(torch.equal(ours[name], straight[name]) for name in ours)


def test_a_resume_without_4_bits_is_refused(made: Path, whole: tuple[Path, str], monkeypatch: Any) -> None:
    """It would be another model that adapters are trained beside."""
    folder = whole[0].parents[1]
    monkeypatch.chdir(folder)
    words = ("--auto_resume", "--force_yml", "model:load_in_4bit=false")
    refused = train(folder / "run.yml", *words)
    assert refused.returncode == 2
    assert "has model.load_in_4bit True, and this file False" in " ".join(refused.stderr.split())


def test_it_is_tested_in_4_bits(whole: tuple[Path, str]) -> None:
    """The loss is the one that the run measured at its end, to the last figure that is said."""
    folder = whole[0].parents[1]
    done = command("test", str(whole[0]), "--answers", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in (whole[0] / "validation.jsonl").read_text().splitlines()][-1]
    tested = json.loads((folder / "results" / "tiny" / "metrics.jsonl").read_text())
    assert tested["loss"] == pytest.approx(measured["metrics"]["loss"], rel=1e-6)


def test_adapters_are_exported_and_merged_into_weights_as_they_were_saved(
    made: Path, whole: tuple[Path, str], tmp_path: Path
) -> None:
    """By hand: base + B @ A * lora_alpha / r; every other weight is the base's."""
    folder = whole[0].parents[1]
    alone = command("export", str(whole[0]), str(tmp_path / "alone"), cwd=folder)
    assert alone.returncode == 0, alone.stderr
    adapters = adapters_of(tmp_path / "alone")
    merged = command("export", str(whole[0]), str(tmp_path / "merged"), "--merge", cwd=folder)
    assert merged.returncode == 0, merged.stderr
    assert f"merged into the weights of {made / 'model'} as they were saved" in merged.stdout
    base, after = (load_file(each / "model.safetensors") for each in (made / "model", tmp_path / "merged"))
    assert base.keys() == after.keys()
    assert "quantization_config" not in json.loads((tmp_path / "merged" / "config.json").read_text())
    changed = 0
    for name, weight in base.items():
        adapter = f"base_model.model.{name.removesuffix('.weight')}.lora_%s.weight"
        if adapter % "A" in adapters:
            weight = weight + adapters[adapter % "B"] @ adapters[adapter % "A"] * SCALE
            changed += 1
        torch.testing.assert_close(after[name], weight, atol=1e-6, rtol=1e-6)
    assert changed == len(adapters) // 2 > 0


@pytest.mark.parametrize("how", [{"use_amp": True}, {"memory": {"gradient_checkpointing": True}}])
def test_other_ways_to_compute(made: Path, tmp_path: Path, monkeypatch: Any, how: dict[str, Any]) -> None:
    """bfloat16; blocks run again: adapters of all layers learn, the first one's, too."""
    monkeypatch.chdir(tmp_path)
    done = train(written(made, tmp_path / "run.yml", **how))
    assert done.returncode == 0, done.stderr
    adapters = adapters_of(newest(tmp_path) / "checkpoints" / "epoch_1")
    moved = {name for name, weight in adapters.items() if "lora_B" in name and weight.abs().max() > 0}
    assert moved == {name for name in adapters if "lora_B" in name}
