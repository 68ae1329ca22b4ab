"""`test` and `export` of language models and of several tasks: figures of the run, and weights that others load."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, GPT2LMHeadModel

from tests.integration.commands import Ended, command, train, write_options
from tests.integration.multitask_runs import multitask_options
from tests.integration.text_runs import text_options, write_texts
from trainauto.commands.trained_model import check_folder_of_export
from trainauto.core.errors import InputError


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder in which relative paths of the run's options mean nothing."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def trained(folder: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the run of an option file whose paths are relative to its folder."""
    monkeypatch.chdir(folder)
    done = train(write_options(folder / "run.yml", options))
    assert done.returncode == 0, done.stderr
    return (folder / "experiments" / "tiny" / "current").resolve()


def ended(*words: str, cwd: Path) -> Ended:
    done = command(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


def last_metrics(file: Path) -> dict[str, float]:
    metrics: dict[str, float] = json.loads(file.read_text().splitlines()[-1])["metrics"]
    return metrics


def texts(folder: Path, **changes: Any) -> dict[str, Any]:
    write_texts(folder)
    train_options = {"total_epochs": None, "total_iter": 10, **changes.pop("train", {})}
    return text_options(Path("texts.txt"), train=train_options, **changes)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_language_model_is_what_its_run_validated(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    """The averaged weights, where there are some; transformers finds the loss that the run measured."""
    run = trained(tmp_path, texts(tmp_path, train={"ema_decay": decay}), monkeypatch)
    logged = last_metrics(run / "validation.jsonl")
    said = ended("test", str(run), "--checkpoint", "latest", cwd=elsewhere).stdout
    assert f"perplexity {logged['perplexity']:.4g} (unigram" in said
    assert last_metrics(elsewhere / "results" / "tiny" / "metrics.jsonl") == logged
    assert ended("test", str(run), "--checkpoint", "5", cwd=elsewhere).stdout != said

    said = ended("export", str(run), "out", "--checkpoint", "latest", cwd=elsewhere).stdout
    assert "out: gpt2 of step 10" in said
    assert "GPT2LMHeadModel.from_pretrained('out')" in said
    network = GPT2LMHeadModel.from_pretrained(elsewhere / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(elsewhere / "out")
    assert len(tokenizer) == network.config.vocab_size
    kept = load_file(run / "model" / "model.safetensors")
    assert all(torch.equal(weight, kept[name]) for name, weight in network.state_dict().items() if name in kept)
    again = command("export", str(run), "out", cwd=elsewhere)
    assert again.returncode == 2
    assert "--overwrite replaces it" in again.stderr


def test_adapters_are_written_alone_or_merged(tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lora = {"lora": {"r": 2, "target_modules": ["c_attn"]}}
    base = texts(tmp_path)
    run = trained(tmp_path, {**base, "model": {**base["model"], **lora}}, monkeypatch)
    assert "PeftModel" in ended("export", str(run), "adapters", cwd=elsewhere).stdout
    assert (elsewhere / "adapters" / "adapter_model.safetensors").is_file()
    assert "GPT2LMHeadModel" in ended("export", str(run), "whole", "--merge", "--half", cwd=elsewhere).stdout
    weights = load_file(elsewhere / "whole" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert not any("lora" in name for name in weights)
    assert GPT2LMHeadModel.from_pretrained(elsewhere / "whole") is not None


def test_a_model_of_several_tasks(tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path, multitask_options(train={"total_epochs": None, "total_iter": 6}), monkeypatch)
    ended("test", str(run), cwd=elsewhere)
    found = last_metrics(elsewhere / "results" / "tiny" / "metrics.jsonl")
    assert found == last_metrics(run / "validation.jsonl")
    accuracies = json.loads((run / "accuracy.json").read_text())["val"]
    assert {task: found[f"accuracy_{task}"] for task in accuracies} == accuracies
    ended("export", str(run), "out", cwd=elsewhere)
    weights = load_file(elsewhere / "out" / "model.safetensors")
    kept = load_file(run / "checkpoints" / "step_00000006" / "model.safetensors")
    assert weights.keys() == kept.keys()
    assert all(torch.equal(weight, kept[name]) for name, weight in weights.items())
    assert (elsewhere / "out" / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("test", "RUN", "FOLDER"), "FOLDER means nothing to runs of several tasks"),
        (("test", "RUN", "--answers", "3"), "--answers means nothing to runs of several tasks"),
        (("test", "RUN", "--checkpoint", "77"), "has no checkpoint of step 77"),
        (("export", "RUN", "--format", "onnx"), "--format means nothing to runs of several tasks"),
        (("export", "RUN", "--merge"), "the model has no adapters"),
    ],
)
def test_what_means_nothing_is_refused(
    several: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], refusal: str
) -> None:
    monkeypatch.chdir(several.parents[2])
    done = command(*(str(several) if word == "RUN" else word for word in words), cwd=several.parents[2])
    assert done.returncode == 2
    assert refusal in " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        options = multitask_options(train={"total_epochs": None, "total_iter": 2})
        return trained(tmp_path_factory.mktemp("several"), options, patch)


def test_an_export_replaces_nothing_but_an_earlier_export(tmp_path: Path) -> None:
    """Least of all a folder that the run lies in."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for out, overwrite in ((tmp_path, True), (tmp_path / "run", True)):
        with pytest.raises(InputError, match="no folder that holds an export alone"):
            check_folder_of_export(out, overwrite=overwrite)
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="--overwrite replaces it"):
        check_folder_of_export(earlier, overwrite=False)
    for out in (earlier, tmp_path / "new"):
        check_folder_of_export(out, overwrite=True)
