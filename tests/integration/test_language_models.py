"""Language models from option files: a whole run, its resume, the commands that know such files, and the others."""

import json
import time
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from tests.acceptance import only_in_acceptance
from tests.integration.commands import (
    command,
    latest_weights,
    merged,
    run_directory,
    step_records,
    train,
    write_options,
)
from tests.integration.text_runs import text_options, write_texts
from trainauto.build import build_run
from trainauto.core.automation import Automation
from trainauto.core.decisions import Stop
from trainauto.core.errors import InputError
from trainauto.core.records import StepRecord
from trainauto.engine.loop import train as train_run
from trainauto.options.load import load_options


class StopsAfter(Automation):
    """Ends a run after some steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_step_end(self, record: StepRecord) -> Stop | None:
        return Stop("enough") if record.step >= self._steps else None


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    with chdir(tmp_path):
        yield tmp_path


def test_a_run_and_its_resume_in_mid_epoch(here: Path) -> None:
    """Every text once an epoch; weights of a resumed run equal to the bit; perplexity beside a unigram model."""
    texts = write_texts(here)
    options = write_options(here / "run.yml", text_options(texts))
    done = train(options)
    assert done.returncode == 0, done.stderr
    run = run_directory(options)
    records = step_records(run)
    assert sum(record["samples"] for record in records) == 3 * 72
    assert records[-1]["losses"]["loss"] < records[0]["losses"]["loss"]
    assert "perplexity" in done.stdout
    assert ", a unigram model of the training text " in done.stdout
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in (run / "model").iterdir()}
    assert json.loads((run / "config.json").read_text())["task"] == "text"
    # Every epoch ends with a batch of its own, and each text comes in each once.
    ends = [sum(record["samples"] for record in records[: place + 1]) for place in range(len(records))]
    assert {72, 144, 216} <= set(ends)
    assert (run / "training.log").read_text().count("has ended: all 72 texts") == 3

    again = write_options(here / "again.yml", text_options(texts, name="again"))
    with build_run(load_options(again)) as stopped:
        stopped.journal.automations = [StopsAfter(7)]
        train_run(stopped)
    resumed = train(again, "--auto_resume", "--force_yml", "logger:print_freq=5")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed" in resumed.stdout
    assert latest_weights(run_directory(again, "again")) == latest_weights(run)

    complete = train(again, "--auto_resume")
    assert "raise total_epochs under train to continue" in " ".join(complete.stdout.split())
    refused = train(again, "--auto_resume", "--force_yml", "tokenizer:train:vocab_size=310")
    assert refused.returncode == 2
    assert "the run that is resumed has another tokenizer" in " ".join(refused.stderr.split())
    elsewhere = [f"tokenizer:pretrained={run / 'model'}", "tokenizer:train=null"]
    resumed = train(again, "--auto_resume", "--force_yml", *elsewhere, "logger:print_freq=4", "train:total_iter=40")
    assert resumed.returncode == 0, resumed.stderr


def test_the_trained_model_is_one_of_transformers(here: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = write_options(
        here / "run.yml",
        text_options(
            write_texts(here), train={"total_epochs": None, "total_iter": 2, "packed": True, "row_length": 48}
        ),
    )
    assert train(options).returncode == 0
    run = run_directory(options)
    # Five rows of at most 48 tokens, of which texts fill most.
    assert all(record["tokens"] <= 240 and record["units"] > 0.7 * record["tokens"] for record in step_records(run))
    model = AutoModelForCausalLM.from_pretrained(run / "model", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(run / "model", local_files_only=True)
    with torch.no_grad():
        loss = model(**(ids := tokenizer("the cat sat", return_tensors="pt")), labels=ids["input_ids"]).loss
    assert 0 < float(loss) < 10
    # The same model, with adapters, from its folder; nobody asks the network.
    adapted = text_options(
        here / "texts.txt",
        name="adapted",
        model={"config": None, "pretrained": str(run / "model"), "lora": {"r": 2, "target_modules": ["c_attn"]}},
        tokenizer={"train": None},
        memory={"gradient_checkpointing": True},
        train={"total_epochs": 1, "scheduler": {"type": "constant"}},
    )
    file = write_options(here / "adapted.yml", adapted)
    done = train(file)
    assert done.returncode == 0, done.stderr
    assert "gpt2, LoRA of rank 2" in done.stdout
    again = run_directory(file, "adapted")
    assert (again / "model" / "adapter_model.safetensors").is_file()
    # Checkpoints hold what is trained alone; a resume takes the rest from where it was.
    held = [name for tensors in latest_weights(again).values() for name in load(tensors)]
    assert held
    assert all("lora_" in name for name in held)
    whole = write_options(here / "whole.yml", merged(adapted, {"name": "whole", "train": {"total_epochs": 2}}))
    assert train(whole).returncode == 0
    resumed = train(file, "--auto_resume", "--force_yml", "train:total_epochs=2")
    assert resumed.returncode == 0, resumed.stderr
    assert latest_weights(again) == latest_weights(run_directory(whole, "whole"))
    base = run / "model" / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(base).items()}, base, {"format": "pt"})
    refused = train(file, "--auto_resume", "--force_yml", "train:total_epochs=3")
    assert refused.returncode != 0
    assert "holds other weights than those that the checkpoint was trained beside" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"datasets": {"train": {"path": "text.txt"}}}, "path", "there is no text.txt"),
        ({"model": {"config": {"model_type": "gpt3"}}}, "config", "transformers knows no model_type 'gpt3'"),
        ({"model": {"config": {"n_embedd": 4}}}, "config", "a gpt2 model has no 'n_embedd'"),
        (
            {"model": {"lora": {"target_modules": ["query"]}}},
            "target_modules",
            "no layer of the model is called 'query'",
        ),
        ({"model": {"lora": {"r": 1000}}}, "r: 1000", "r is 1000, above the "),
        ({"model": {"pretrained": "./none", "config": None}}, "pretrained", "there is no model ./none"),
        ({"train": {"optim": {"type": "AdamV"}}}, "type", "there is no optimizer named 'AdamV'"),
        (
            {"training_automations": {"DynamicBatchSizeOptimizer": {"max_batch_size": 4}}},
            "max_batch_size",
            "what changes in this run is tokens",
        ),
    ],
)
def test_what_cannot_be_used(here: Path, changes: dict[str, Any], where: str, words: str) -> None:
    file = write_options(here / "run.yml", text_options(write_texts(here), **changes))
    with pytest.raises(InputError) as caught, build_run(load_options(file)):
        pass
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.place is not None
    assert where in problem.place.text
    assert not (here / "experiments").exists()


@only_in_acceptance
def test_a_budget_is_filled_by_tokens(here: Path) -> None:
    """The first plan comes from a trace, within the target; the tokens of a batch grow to it."""
    options = write_options(
        here / "run.yml",
        text_options(
            write_texts(here, 400),
            model={"config": {"n_embd": 64}},
            train={"total_epochs": 2},
            memory={"budget": "64MiB"},
            training_automations={"DynamicBatchSizeOptimizer": {"adjustment_frequency": 4}},
        ),
    )
    done = train(options, own_process=True, afresh=True, timeout_s=250)
    assert done.returncode == 0, done.stderr
    run = run_directory(options)
    records = step_records(run)
    assert sum(record["samples"] for record in records) == 2 * 360
    assert records[-1]["plan"]["tokens"] > 256
    forecast = json.loads((run / "foresight.json").read_text())
    assert len(forecast["traced"]) >= 3
    limit = 64 * 2**20
    assert max(record["peak"]["allocated"] for record in records) <= limit


LLAMA_1B = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
}


@only_in_acceptance
def test_a_billion_parameters_are_planned_for_a_card_in_25_seconds(here: Path) -> None:
    """Without weights and without texts; precision, LoRA and gradient checkpointing as in the file."""
    base = text_options(
        here / "none",
        model={"config": None},
        tokenizer={"train": {"vocab_size": 32_000}},
        datasets={"train": {"max_length": 2048}},
        train={"tokens_per_batch": 2048},
        use_amp=True,
    )
    base["model"]["config"] = LLAMA_1B
    rows = []
    for changes in ({"model": {"lora": {"r": 8}}, "memory": {"gradient_checkpointing": True}}, {}):
        file = write_options(here / "billion.yml", merged(base, changes))
        start = time.perf_counter()
        done = command("plan", "-opt", file.name, "--card", "RTX 4090 24GB", "--json", cwd=here, afresh=True)
        assert done.returncode == 0, done.stderr
        assert time.perf_counter() - start < 25
        (card,) = json.loads(done.stdout)["cards"]
        rows.append(card["plan"]["batch_size"] if card["plan"] else 0)
    assert rows[0] > 4 * rows[1]
