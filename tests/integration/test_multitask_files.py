"""Option files of several tasks: a whole run, its resume, the commands that know such files, and the others."""

import json
import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.acceptance import only_in_acceptance
from tests.integration.commands import command, run_directory, step_records, train, write_options
from tests.integration.multitask_runs import built, multitask_options
from trainauto.core.errors import InputError
from trainauto.reporting.dashboard.page_file import page_in

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    with chdir(tmp_path):
        yield tmp_path


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_run_and_its_resume(here: Path) -> None:
    """Accuracy by task, files of metrics, weights; a resume ends with the weights of a run that did not stop."""
    options = write_options(here / "run.yml", multitask_options())
    done = train(options)
    assert done.returncode == 0, done.stderr
    said = flat(done.stdout)
    assert re.search(r"val accuracy T1 [\d.]+ %, T2 [\d.]+ %, T3 [\d.]+ %", said), said
    assert "tasks T1 48, T2 36, T3 36" in said
    assert "16 samples, in passes of 8 at first" in said
    assert "4/" in said
    assert "in passes of" in said
    run = run_directory(options)
    metrics = run / "training_metrics"
    for name in ("batch_metrics.json", "epoch_metrics.json", "training_report.json", "task_comparison.png"):
        assert (metrics / name).is_file(), name
    assert list(metrics.glob("training_curves*.png"))
    assert not list(run.rglob("events.out.tfevents.*"))  # use_tb_logger: false
    batches = json.loads((metrics / "batch_metrics.json").read_text())
    assert sum(batch["batch_size"] for batch in batches) == 2 * 120
    accuracies = json.loads((run / "accuracy.json").read_text())
    assert set(accuracies["val"]) == {"T1", "T2", "T3"}
    assert {"model.safetensors", "tokenizer.json"} <= {file.name for file in (run / "model").iterdir()}
    assert json.loads((run / "config.json").read_text())["task"] == "multitask"
    assert (run / "options.yml").read_text() == options.read_text()
    page = page_in(run / "dashboard.html")
    assert (page["title"], page["status"]["word"]) == ("tiny", "completed")
    losses = [block for section in page["sections"] for block in section["blocks"] if block["id"] == "tasks"]
    assert {series["name"] for series in losses[0]["series"]} == {"T1", "T2", "T3"}
    steps = (run / "training_log.jsonl").read_text().splitlines()
    assert json.loads(steps[0])["task_losses"].items() >= batches[0]["per_task_loss"].items()
    epochs = json.loads((metrics / "epoch_metrics.json").read_text())
    assert [(epoch["epoch"], epoch["total_samples"]) for epoch in epochs] == [(0, 120), (1, 120)]

    again = write_options(here / "again.yml", multitask_options(name="again"))
    stopped = train(again, "--force_yml", "train:total_epochs=null", "train:total_iter=10")
    assert stopped.returncode == 0, stopped.stderr
    other = run_directory(again, "again")
    assert (other / "checkpoints" / "step_00000010").is_dir()
    resumed = train(again, "--auto_resume", "--force_yml", "train:total_epochs=null", "train:total_iter=16")
    assert resumed.returncode == 0, resumed.stderr
    assert "after step 10" in flat(resumed.stdout)
    page = page_in(other / "dashboard.html")  # one for both starts
    assert page["grid"] == list(range(1, 17))
    twice = train(again, "--auto_resume", "--force_yml", "train:total_epochs=null", "train:total_iter=16")
    assert "it had finished before, at 16 steps" in flat(twice.stdout), twice.stderr
    straight = train(
        write_options(here / "straight.yml", multitask_options(name="straight")),
        "--force_yml",
        "train:total_epochs=null",
        "train:total_iter=16",
    )
    assert straight.returncode == 0, straight.stderr
    first, second = (
        load_file(run_directory(again, name) / "model" / "model.safetensors") for name in ("again", "straight")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_without_accumulation_steps_are_one_pass(here: Path) -> None:
    changes = {"train": {"use_gradient_accumulation": False, "total_epochs": None, "total_samples": 40}}
    changes["logger"] = {"use_tb_logger": True}
    options = write_options(here / "run.yml", multitask_options(**changes))
    done = train(options)
    assert done.returncode == 0, done.stderr
    assert "8 samples in one pass at first, up to 16 by memory" in flat(done.stdout)
    metrics = run_directory(options) / "training_metrics"
    batches = json.loads((metrics / "batch_metrics.json").read_text())
    assert sum(batch["batch_size"] for batch in batches) == 40
    check_curves(run_directory(options), batches)


def check_curves(run: Path, batches: list[dict[str, Any]]) -> None:
    """One event file holds what is written of every run, and what the monitor notes of tasks beside it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = run.parents[1].rglob("events.out.tfevents.*")
    assert not file.is_relative_to(run)
    events = EventAccumulator(str(file)).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"loss/total", "grad_norm/train", "speed/samples_per_s", "batch/samples", "epoch/avg_loss"} <= tags
    assert not {"loss/all_tasks", "gradient_norm", "learning_rate"} & tags
    points = {point.step: point.value for point in events.Scalars("loss_by_task/T1")}
    losses = {batch["batch_idx"] + 1: batch["per_task_loss"].get("T1") for batch in batches}
    assert points == {step: pytest.approx(loss, rel=1e-5) for step, loss in losses.items() if loss is not None}


def test_a_rate_is_for_the_samples_that_steps_begin_with(here: Path) -> None:
    """As in the pipeline: without accumulation steps grow from there, with it they have the target's at once."""
    for accumulates, samples in ((False, 8), (True, 16)):
        changes = {"train": {"use_gradient_accumulation": accumulates}}
        run = built(write_options(here / "run.yml", multitask_options(**changes)))
        assert run.train_set.mean_samples(run.first_plan()) == pytest.approx(samples, rel=0.5)
        assert run.rate_scaling == ("none" if accumulates else "sqrt")


def test_shares_are_kept_to_with_replacement(here: Path) -> None:
    shares = {"T1": 0.1, "T2": 0.1, "T3": 0.8}
    changes = {"task_distribution": shares, "sampling": "replacement", "total_epochs": 1}
    options = write_options(here / "run.yml", multitask_options(train=changes))
    done = train(options)
    assert done.returncode == 0, done.stderr
    batches = json.loads((run_directory(options) / "training_metrics" / "batch_metrics.json").read_text())
    of_t3 = sum(batch["per_task_samples"].get("T3", 0) for batch in batches)
    assert abs(of_t3 / sum(batch["batch_size"] for batch in batches) - 0.8) < 0.03


def test_automations_watch_a_run_of_several_tasks(here: Path) -> None:
    low = {"training_automations": {"StopAtLowLoss": {"loss": 1e9, "patience": 3}, "AdaptiveGradientClipping": {}}}
    done = train(write_options(here / "run.yml", multitask_options(**low)))
    assert done.returncode == 0, done.stderr
    assert "stopped the loss was at most 1e+09 for 3 steps, up to step 3" in flat(done.stdout)
    bounds = {"training_automations": {"DynamicBatchSizeOptimizer": {"max_batch_size": 8}}}
    refused = train(write_options(here / "bounds.yml", multitask_options(**bounds)))
    assert refused.returncode == 2
    assert "a run of several tasks has no max_batch_size" in flat(refused.stderr)
    assert "base_batch_size and target_batch_size under train" in flat(refused.stderr)


def test_nothing_to_resume_begins_anew(here: Path) -> None:
    options = write_options(here / "run.yml", multitask_options(train={"total_epochs": None, "total_iter": 1}))
    done = train(options, "--auto_resume")
    assert done.returncode == 0, done.stderr
    assert run_directory(options).is_dir()


def test_validate_trains_a_step_and_leaves_nothing(here: Path) -> None:
    write_options(here / "run.yml", multitask_options())
    tried = command("validate", "-opt", "run.yml", "--steps", "2", cwd=here)
    assert tried.returncode == 0, tried.stderr
    said = flat(tried.stdout)
    assert "T1 48, T2 36, T3 36" in said
    assert re.search(r"step 2 loss [\d.]+; gradient norm [\d.]+ ", said), said
    assert "tiny can be trained; nothing of this was saved" in said
    assert [path.name for path in here.iterdir()] == ["run.yml"]


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"model": {"type": "DigitModel"}}, "type", "there is no multitask-model named 'DigitModel'"),
        ({"model": {"type": "DigitsModel", "hiden_size": 8}}, "hiden_size", "has no argument 'hiden_size'"),
        ({"model": {"type": "DigitsModel", "hidden_size": 9}}, "model", "heads divides hidden_size"),
        ({"model": {"type": "DigitsModel", "hidden_size": 2**40}}, "hidden_size", "does not fit the memory of"),
        ({"datasets": {"train": {"type": "DigitTask"}}}, "type", "there is no sample-set named 'DigitTask'"),
        ({"datasets": {"train": {"type": "DigitTasks", "samples": 0}}}, "samples", "samples is 1 to 1048576, got 0"),
        ({"datasets": {"train": {"type": "DigitTasks", "part": "val"}}}, "part", "part"),
        ({"tokenizer": {"train": {"vocab_size": 9}}}, "vocab_size", "a vocabulary of 9 tokens"),
        ({"train": {"initial_task_loss_weights": {"T4": 1.0}}}, "T4", "is of task 'T4'"),
        ({"train": {"task_distribution": {"T1": 1.0, "T5": 1.0}}}, "T5", "is of task 'T5'"),
    ],
)
def test_what_cannot_be_used(here: Path, changes: dict, where: str, words: str) -> None:
    """Each problem has its place, and no folder of a run is made."""
    file = write_options(here / "run.yml", multitask_options(**changes))
    with pytest.raises(InputError) as caught:
        built(file)
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.place is not None
    assert where in problem.place.text
    assert not (here / "experiments").exists()


PLUGIN = """\
import torch
from torch import nn
from trainauto.tasks.multitask.registry import MULTITASK_MODELS, SAMPLE_SETS

@SAMPLE_SETS.register("Words")
class Words:
    def __init__(self, samples: int = 24):
        self.samples = samples
    def __len__(self):
        return self.samples
    def __getitem__(self, idx):
        task = "even" if idx % 2 == 0 else "odd"
        return {"text": "a word " * (1 + idx % 3), "images": [], "task_type": task, "label": idx % 4}
    def get_sample_metadata(self, idx):
        return {"task_type": "even" if idx % 2 == 0 else "odd", "num_images": 0}

@MULTITASK_MODELS.register("Bag")
class Bag(nn.Module):
    def __init__(self, vocabulary_size: int, width: int = 8):
        super().__init__()
        self.words, self.head = nn.Embedding(vocabulary_size, width), nn.Linear(width, 4)
    def forward(self, input_ids, attention_mask, labels=None):
        logits = self.head((self.words(input_ids) * attention_mask.unsqueeze(-1)).mean(1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}
"""


def test_samples_and_models_of_ones_own(here: Path) -> None:
    """What a plugin registers is trained by its names; a model that says no predictions has no accuracy."""
    (here / "my_words.py").write_text(PLUGIN)
    changes = {
        "plugins": ["my_words"],
        "model": {"type": "Bag", "width": 8},
        "datasets": {"train": {"type": "Words", "samples": 24}, "val": {"type": "Words", "samples": 8}},
    }
    options = multitask_options(train={"total_epochs": 1, "initial_task_loss_weights": {"odd": 2.0}})
    options = {**options, **changes}
    done = train(write_options(here / "own.yml", options), own_process=True)
    assert done.returncode == 0, done.stderr
    assert "tasks even 12, odd 12" in flat(done.stdout)
    assert "Bag gives no predictions" in flat(done.stdout)


INTERRUPTED = """\
import os, signal
from trainauto.tasks.multitask.digits_model import DigitsModel
from trainauto.tasks.multitask.registry import MULTITASK_MODELS

@MULTITASK_MODELS.register("Interrupted")
class Interrupted(DigitsModel):
    def _read(self, *inputs):
        Interrupted.calls = getattr(Interrupted, "calls", 0) + 1
        if Interrupted.calls == AT:
            os.kill(os.getpid(), signal.SIGINT)
        return super()._read(*inputs)
"""


def test_ctrl_c_finishes_the_step_and_saves(here: Path) -> None:
    (here / "interrupted.py").write_text(INTERRUPTED.replace("AT", "12"))
    options = multitask_options(plugins=["interrupted"], train={"total_epochs": None, "total_iter": 60})
    file = write_options(here / "run.yml", {**options, "model": {**options["model"], "type": "Interrupted"}})
    stopped = train(file, own_process=True)
    assert stopped.returncode == 130, stopped.stderr
    said = flat(stopped.stdout)
    assert "SIGINT received" in said
    assert "--auto_resume" in said
    steps = [record["step"] for record in step_records(run_directory(file))]
    assert 0 < steps[-1] < 60
    assert (run_directory(file) / "checkpoints" / f"step_{steps[-1]:08d}").is_dir()
    assert not (run_directory(file) / "model" / "model.safetensors").exists()


@only_in_acceptance
@pytest.mark.timeout(1800)
def test_the_shipped_file_learns_all_tasks(here: Path) -> None:
    """options/multitask/digits.yml as it is: minutes on two cores."""
    options = here / "digits.yml"
    options.write_text((REPOSITORY / "options" / "multitask" / "digits.yml").read_text())
    done = train(options, "--force_yml", "device=cpu", timeout_s=1500)
    assert done.returncode == 0, done.stderr
    accuracies = json.loads((run_directory(options, "digits") / "accuracy.json").read_text())["val"]
    assert accuracies["T1"] > 0.97
    assert accuracies["T2"] > 0.95
    assert accuracies["T3"] > 0.90
