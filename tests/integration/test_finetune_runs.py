"""Fine-tuning from option files as a person does it: runs, what they leave, how they end, what other commands say."""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from tests.integration.commands import command, step_records, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from trainauto.automations.stop_file import STOP_FILE
from trainauto.engine.batched_validation import BatchedValidation
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.conversation_model import ConversationModel
from trainauto.tasks.finetune.processors import load_processor

ADAPTERS = {"lora": {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}}
LEARNED, ASIDE = 9, 3
STEPS = [4, 3, 2] * 2
"""Conversations of each step of two epochs."""
STEPS_OF_AN_EPOCH = [1, 2, 3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and two sets of conversations."""
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_chats(folder / "chats.jsonl", LEARNED)
    write_chats(folder / "aside.jsonl", ASIDE, first=20)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    with chdir(tmp_path):
        yield tmp_path


def written(made: Path, file: Path, **changes: Any) -> Path:
    return write_options(file, finetune_options(made / "model", made / "chats.jsonl", **changes))


def measuring(made: Path) -> dict[str, Any]:
    return {"dataset": {"val": str(made / "aside.jsonl")}}


def newest(folder: Path) -> Path:
    return (folder / "training_output" / "current").resolve()


def flat(text: str) -> str:
    return " ".join(text.split())


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def log_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "training_log.json").read_text()))


def weights_of(run: Path, epoch: int) -> Mapping[str, torch.Tensor]:
    (file,) = (run / "checkpoints" / f"epoch_{epoch}").glob("*.safetensors")
    return load_file(file)


def linear(done: int, total: int, rate: float = 1e-2, warmup: float = 0.03, step: int = 4) -> float:
    """The rate of a step before which so many conversations were learned: by hand."""
    rises = warmup * total
    return rate * min(1.0, (done + step) / rises) * (1 - max(0.0, done - rises) / (total - rises))


@pytest.fixture(scope="module")
def whole(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of two epochs in steps of two passes, and what it said; the folder above has its file."""
    folder = tmp_path_factory.mktemp("whole")
    done = train(written(made, folder / "run.yml", **measuring(made)))
    assert done.returncode == 0, done.stderr
    return newest(folder), done.stdout


def test_a_run_leaves_all_of_it_in_a_folder_of_its_own(whole: tuple[Path, str]) -> None:
    """D18 to D22, D24, D38: named by its time, and `current` leads to it."""
    run, _ = whole
    assert re.fullmatch(r"\d{8}_\d{6}", run.name)
    assert {
        "options.yml", "given.yml", "config.json", "training.log", "training_log.json", "training_log.jsonl",
        "validation.jsonl", "checkpoints", "dashboard.html",
    } <= {path.name for path in run.iterdir()}  # fmt: skip
    folders = {path.name for path in (run / "checkpoints").iterdir()}
    assert folders == {"epoch_0", "epoch_1", "step_00000003", "step_00000006", "latest.json"}
    assert (run / "options.yml").read_text() == (run.parents[1] / "run.yml").read_text()
    assert list((run.parent / "tb" / run.name).iterdir())


def test_the_snapshot_of_its_options_is_whole(whole: tuple[Path, str]) -> None:
    """D20, D25: model and data, too, and what the file does not say."""
    config = json.loads((whole[0] / "config.json").read_text())
    assert config["name"] == "tiny"
    assert Path(config["model"]["name"]).name == "model"
    assert config["lora"] is None
    assert (config["training"]["lr_scheduler_type"], config["training"]["max_grad_norm"]) == ("linear", 1.0)
    assert config["training"]["gradient_accumulation_steps"] == 2
    assert all(config[name] == value for name, value in config["training"].items())  # as openadapt-ml has them
    options = RunDirectory(whole[0]).read_config()
    assert options.keys() - {"tensorboard"} == FinetuneOptions.model_fields.keys()
    assert options["training"] == config["training"]


def test_every_step_is_logged_with_the_rate_of_its_formula(whole: tuple[Path, str]) -> None:
    """D05, D06, D09, D14, D16: the last batches of an epoch are smaller, and count by what they hold."""
    records = step_records(whole[0])
    assert [record["step"] for record in records] == list(range(1, 7))
    assert [record["samples"] for record in records] == STEPS
    assert [record["first_sample"] for record in records] == [0, 4, 7, 9, 13, 16]
    rates = [record["lr"]["train"] for record in records]
    assert rates == pytest.approx([linear(record["first_sample"], 2 * LEARNED) for record in records], rel=1e-12)
    assert [record["plan"] for record in records] == [{"batch_size": 4, "micro_batches": 2}] * 6
    assert sum(record["images"] for record in records) == 2 * 9
    assert records[-1]["losses"]["loss"] < records[0]["losses"]["loss"] - 1


def test_training_log_json_is_what_the_source_has(whole: tuple[Path, str]) -> None:
    """D21, D50: an entry a logging step with epoch, step, loss, rate and time; how the run ended."""
    log, records = log_of(whole[0]), step_records(whole[0])
    assert (log["name"], log["status"], log["termination_status"]) == ("tiny", "completed", "auto_complete")
    assert [set(entry) for entry in log["losses"]] == [{"epoch", "step", "loss", "lr", "time"}] * 6
    assert [entry["step"] for entry in log["losses"]] == list(range(1, 7))
    assert [entry["loss"] for entry in log["losses"]] == [record["losses"]["loss"] for record in records]
    assert [entry["lr"] for entry in log["losses"]] == [record["lr"]["train"] for record in records]
    assert [entry["epoch"] for entry in log["losses"]] == pytest.approx([4 / 9, 7 / 9, 1, 13 / 9, 16 / 9, 2], abs=1e-3)


def test_what_is_set_aside_is_measured_after_each_epoch(whole: tuple[Path, str]) -> None:
    """D50: and the end says the last figure."""
    run, said = whole
    validations = lines_of(run / "validation.jsonl")
    assert [line["step"] for line in validations] == [3, 6]
    assert validations[0]["metrics"]["loss"] > validations[1]["metrics"]["loss"]
    assert f"measured loss {validations[1]['metrics']['loss']:.4g} on 3 set aside, perplexity" in flat(said)


def test_training_log_has_what_happened_by_the_time(whole: tuple[Path, str]) -> None:
    """D22."""
    lines = (whole[0] / "training.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", line) for line in lines)
    log = "\n".join(lines)
    assert re.search(r"run +tiny, 18 samples", log)
    assert "validation of val after step 3: 3 conversations in" in log
    assert "the model of epoch 1 is in" in log
    assert re.search(r"step 6  18/18 samples  loss ", log)


def test_the_console_says_what_there_is_and_what_comes_of_it(whole: tuple[Path, str]) -> None:
    """In 80 columns: a start, a line each logging step with how many steps there will be, an end."""
    run, said = whole
    lines = said.splitlines()
    model = next(line for line in lines if line.startswith("model "))
    assert max(len(line) for line in lines if line != model) <= 80
    assert re.search(r"train +9 conversations, 9 pictures; \d+ tokens on average, \d+ at most", said)
    assert re.search(r"val +3 conversations, 3 pictures", said)
    assert re.search(r"steps +4 conversations each, in passes of 2 at first, then as memory allows", said)
    assert "rates 0.01, linear, rising for 0.03 of the run, 2 epochs" in flat(said)
    steps = [line for line in lines if re.match(r"step \d+  \d+/18 samples  loss ", line)]
    assert [line.split()[1] for line in steps] == [str(step) for step in range(1, 7)]
    assert "batch_size 4/2" in flat(said)
    assert "completed training finished" in flat(said)
    assert "trained 6 steps, 18 samples in" in flat(said)
    assert f"model training_output/{run.name}/checkpoints/epoch_1" in flat(said)


def test_models_of_epochs_are_loaded_by_transformers(whole: tuple[Path, str], made: Path) -> None:
    """D24: weights, and the processor beside them; each as it was at its end."""
    run, _ = whole
    last = run / "checkpoints" / "epoch_1"
    model = AutoModelForImageTextToText.from_pretrained(last)
    assert torch.equal(dict(model.named_parameters())["lm_head.weight"], weights_of(run, 1)["lm_head.weight"])
    assert load_processor(last).chat_template == load_processor(made / "model").chat_template
    first, second = weights_of(run, 0), weights_of(run, 1)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert json.loads((last / "progress.json").read_text()) == {"epoch": 1, "step": 6, "samples": 18}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by names that it is to drop
def test_adapters_of_epochs_are_loaded_by_peft(made: Path, here: Path) -> None:
    """D20, D29 to D31: only they are written, and what they change is what was learned."""
    done = train(written(made, here / "run.yml", **ADAPTERS, training={"num_train_epochs": 1}))
    assert done.returncode == 0, done.stderr
    assert re.search(r"model (896|0\.9 K) of [\d.]+ K parameters learn", flat(done.stdout)), done.stdout
    run = newest(here)
    folder = run / "checkpoints" / "epoch_0"
    assert "adapter_config.json" in {path.name for path in folder.iterdir()}
    config = json.loads((run / "config.json").read_text())
    assert config["lora"] == ADAPTERS["lora"]
    import peft

    model = peft.PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(made / "model"), folder)
    changed = {name: weight for name, weight in model.named_parameters() if "lora_B" in name}
    assert changed
    assert all(weight.abs().max() > 0 for weight in changed.values())


def test_max_steps_wins_and_is_said(made: Path, here: Path) -> None:
    """D32: steps are then what rates count, too; the model of the part of an epoch is there."""
    changes = {"training": {"max_steps": 4, "lr_scheduler_type": "cosine", "warmup_ratio": 0.5}}
    done = train(written(made, here / "run.yml", **measuring(made), **changes))
    assert done.returncode == 0, done.stderr
    assert "0.01, cosine, rising for 0.5 of the run, 4 steps; max_steps wins over num_train_epochs" in flat(done.stdout)
    run = newest(here)
    assert [record["lr"]["train"] for record in step_records(run)] == pytest.approx([5e-3, 1e-2, 1e-2, 5e-3])
    assert json.loads((run / "checkpoints" / "epoch_1" / "progress.json").read_text())["step"] == 4
    assert [line["step"] for line in lines_of(run / "validation.jsonl")] == [3, 4]


def test_a_resume_at_another_rate_writes_the_models_it_comes_to(made: Path, here: Path) -> None:
    """Also after the same step as one that is there."""
    changes: dict[str, Any] = {"training": {"max_steps": 4, "lr_scheduler_type": "constant"}}
    assert train(written(made, here / "run.yml", **changes)).returncode == 0
    run = newest(here)
    before = weights_of(run, 1)
    shutil.rmtree(run / "checkpoints" / "step_00000004")
    changes["training"]["learning_rate"] = 0.02
    resumed = train(written(made, here / "run.yml", **changes), "--auto_resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after step 3" in flat(resumed.stdout)
    assert any(not torch.equal(weight, before[name]) for name, weight in weights_of(run, 1).items())


def test_other_samples_are_not_accepted(made: Path, here: Path) -> None:
    """Its runs begin anew with them."""
    refused = train(written(made, here / "run.yml"), "--auto_resume", "--accept_samples")
    assert refused.returncode == 2
    assert "--accept_samples is for runs of images and language models" in flat(refused.stderr)


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Any) -> None:
    """Have something happen while a step is on its way."""
    given = ConversationModel.begin_step

    def begin_step(self: ConversationModel, number: int | None) -> None:
        if number == step:
            act()
        given(self, number)

    monkeypatch.setattr(ConversationModel, "begin_step", begin_step)


def test_a_file_ends_the_run_and_a_resume_goes_on(
    made: Path, here: Path, whole: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D50: STOP_TRAINING, after its step; what the run comes to is as if nobody had asked."""
    options = written(made, here / "run.yml", **measuring(made))
    with monkeypatch.context() as patched:
        at_step(patched, 5, lambda: (newest(here) / STOP_FILE).touch())
        stopped = train(options)
    assert stopped.returncode == 0, stopped.stderr
    run = newest(here)
    assert not (run / STOP_FILE).exists()
    assert "stopped STOP_TRAINING requested it after step 5" in flat(stopped.stdout)
    assert (log_of(run)["status"], log_of(run)["termination_status"]) == ("stopped", "user_stop")
    assert json.loads((run / "checkpoints" / "epoch_1" / "progress.json").read_text())["step"] == 5
    assert [line["step"] for line in lines_of(run / "validation.jsonl")] == [3, 5]
    resumed = train(options, "--auto_resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after step 5" in flat(resumed.stdout)
    assert newest(here) == run
    same_as_straight(run, whole[0])
    assert (log_of(run)["status"], log_of(run)["termination_status"]) == ("completed", "auto_complete")
    twice = train(options, "--auto_resume")
    assert "raise num_train_epochs under training to continue" in flat(twice.stdout), twice.stderr
    assert [line["step"] for line in lines_of(run / "validation.jsonl")] == [3, 5, 6]
    assert "measured loss" in flat(twice.stdout)
    assert "single sample" not in twice.stderr


def test_a_signal_in_the_validation_of_an_epoch_leaves_it_to_the_resume(
    made: Path, here: Path, whole: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = written(made, here / "run.yml", **measuring(made))

    def interrupted(*_given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it was not heard")

    with monkeypatch.context() as patched:
        patched.setattr(BatchedValidation, "_sums_of", interrupted)
        stopped = train(options)
    assert stopped.returncode == 130, stopped.stderr
    run = newest(here)
    assert [record["step"] for record in step_records(run)] == STEPS_OF_AN_EPOCH
    assert not (run / "validation.jsonl").exists()
    assert train(options, "--auto_resume").returncode == 0
    assert [line["step"] for line in lines_of(run / "validation.jsonl")] == [3, 6]
    same_as_straight(run, whole[0])


def same_as_straight(run: Path, straight: Path) -> None:
    """See that a run had the steps, and has the weights, of one that nothing stopped."""
    kept = ("step", "first_sample", "samples", "losses", "lr", "grad_norm")
    assert [[one[key] for key in kept] for one in step_records(run)] == [
        [one[key] for key in kept] for one in step_records(straight)
    ]
    for epoch in (0, 1):
        first, second = weights_of(run, epoch), weights_of(straight, epoch)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_low_loss_ends_the_run_and_a_resume_goes_on_counting(
    made: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D36, D37: four steps one after another, of which two were before the run was stopped."""
    low = {"training": {"num_train_epochs": 5, "early_stop_loss": 100.0, "early_stop_patience": 4}}
    options = written(made, here / "run.yml", **measuring(made), **low)
    with monkeypatch.context() as patched:
        at_step(patched, 2, lambda: (newest(here) / STOP_FILE).touch())
        assert train(options).returncode == 0
    ended = train(options, "--auto_resume")
    assert ended.returncode == 0, ended.stderr
    run = newest(here)
    assert [record["step"] for record in step_records(run)] == [1, 2, 3, 4]
    assert "stopped the loss was at most 100 for 4 steps, up to step 4" in flat(ended.stdout)
    assert (log_of(run)["status"], log_of(run)["termination_status"]) == ("stopped", "auto_low_loss")
    assert json.loads((run / "checkpoints" / "epoch_1" / "progress.json").read_text())["step"] == 4
    measured = lines_of(run / "validation.jsonl")
    assert [line["step"] for line in measured] == [2, 3, 4]
    (run / "validation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in measured[:2]))
    twice = train(options, "--auto_resume")
    assert "stopped the loss was at most 100 for 4 steps, up to step 4" in flat(twice.stdout), twice.stderr
    again = lines_of(run / "validation.jsonl")
    assert (again[-1]["step"], again[-1]["metrics"]) == (4, measured[-1]["metrics"])  # a kill came before it
    assert [record["step"] for record in step_records(run)] == [1, 2, 3, 4]


def test_a_loss_that_is_no_number_ends_the_run_with_what_helps(
    made: Path, here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D44: exit code 1, nothing written over the last checkpoint, which a smaller rate resumes from."""
    options = written(made, here / "run.yml", **measuring(made))
    given, factor = ConversationModel._computed, {"of": 1.0}

    def computed(self: ConversationModel, *arguments: Any) -> Any:
        return given(self, *arguments) * factor["of"]

    with monkeypatch.context() as patched:
        patched.setattr(ConversationModel, "_computed", computed)
        at_step(patched, 5, lambda: factor.update(of=float("nan")))
        failed = train(options)
    assert failed.returncode == 1
    assert "loss term 'loss' of pass 'train' is nan" in failed.stderr
    assert "Try training: {learning_rate: 0.001, warmup_ratio: 0.2}" in flat(failed.stderr)
    assert "chats.jsonl:" in failed.stderr
    assert "Traceback" not in failed.stderr
    run = newest(here)
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"epoch_0", "step_00000003", "latest.json"}
    assert log_of(run)["status"] == "failed"
    assert [record["step"] for record in step_records(run)] == [1, 2, 3, 4]
    assert all(torch.isfinite(weight).all() for weight in weights_of(run, 0).values())
    smaller = ("--force_yml", "training:learning_rate=0.001", "training:warmup_ratio=0.2")
    resumed = train(options, "--auto_resume", *smaller)
    assert resumed.returncode == 0, resumed.stderr
    assert "training.learning_rate: 0.01 -> 0.001" in caplog.text
    rates = [record["lr"]["train"] for record in step_records(run)]
    assert rates[3:] == pytest.approx([linear(done, 2 * LEARNED, 1e-3, 0.2) for done in (9, 13, 16)], rel=1e-12)


def test_a_run_that_a_trainer_wrote_is_refused_with_what_to_do(made: Path, here: Path) -> None:
    """Of an earlier version: its checkpoints are another kind, its models begin a new run."""
    options = written(made, here / "run.yml", training={"max_steps": 1})
    assert train(options).returncode == 0
    checkpoints = newest(here) / "checkpoints"
    for step in checkpoints.glob("step_*"):
        step.rename(checkpoints / "checkpoint-1")
    refused = train(options, "--auto_resume")
    assert refused.returncode == 2, refused.stdout
    assert "checkpoint-1 was written by an earlier version, whose runs cannot be resumed" in flat(refused.stderr)
    assert "from the model of an epoch" in flat(refused.stderr)


def test_a_rate_that_is_much_too_high(made: Path, here: Path) -> None:
    """D44: as it happens to a person."""
    failed = train(written(made, here / "run.yml", training={"learning_rate": 1e9}))
    assert failed.returncode == 1
    assert re.search(r"(loss term 'loss'|the gradient norm) of pass 'train' is (nan|inf)", failed.stderr)
    assert "learning_rate: 1e+08" in failed.stderr
    assert not (newest(here) / "checkpoints" / "epoch_0").exists()


def test_a_broken_line_of_data_is_shown(made: Path, here: Path) -> None:
    """File, line, column, and the line; nothing of a run is there."""
    lines = (made / "chats.jsonl").read_text().splitlines()
    (here / "broken.jsonl").write_text("\n".join([lines[0], '{"messages": [}', lines[3]]))
    refused = train(write_options(here / "run.yml", finetune_options(made / "model", Path("broken.jsonl"))))
    assert refused.returncode == 2
    shown = refused.stderr.splitlines()
    place = next(number for number, line in enumerate(shown) if "broken.jsonl:2:15: this line is no JSON" in line)
    assert shown[place + 1].strip() == '{"messages": [}'
    assert shown[place + 2].rstrip().endswith("^")
    assert not (here / "training_output").exists()


def test_report_looks_at_a_run_and_at_two(made: Path, whole: tuple[Path, str], here: Path) -> None:
    """D25: two runs are compared by what differs in their options, and by what they came to."""
    assert train(written(made, here / "run.yml", **measuring(made), training={"learning_rate": 1e-3})).returncode == 0
    one = command("report", str(newest(here)), cwd=here)
    assert one.returncode == 0, one.stderr
    assert "6; plan changes: 0" in flat(one.stdout)
    both = command("report", str(whole[0]), str(newest(here)), "--json", cwd=here)
    assert both.returncode == 0, both.stderr
    found = json.loads(both.stdout)
    assert found["options"]["training.learning_rate"] == [0.01, 0.001]
    assert [metric["name"] for metric in found["metrics"]] == ["loss"]
