"""Several ranks train texts, conversations and several tasks as one process does, which repeats their log."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.integration.commands import command, merged, step_records, tiny_options, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model, write_picture
from tests.integration.multitask_runs import multitask_options
from tests.integration.ranks import finish, start, train_ranks
from tests.integration.test_elastic import ranks_under, torchrun, wait_for_steps
from tests.integration.text_runs import text_options, write_texts

STEPS, LONGER = (32, 40) if ACCEPTANCE else (8, 12)
KILLED_AFTER, WHOLE = 12, 24
SLOW = Path(__file__).parents[1] / "assets" / "plugins" / "slow.py"
NO_CONTROLLER = {"DynamicBatchSizeOptimizer": {"enabled": False}}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}


def texts(folder: Path, **train: Any) -> dict[str, Any]:
    base = text_options(write_texts(folder), train={"total_epochs": None, "total_iter": STEPS, **train})
    sgd = {"model": {"config": NO_DROPOUT}, "train": {"optim": {"type": "SGD", "lr": 0.1}, "tokens_per_batch": 64}}
    return merged(base, sgd)


def rows(folder: Path) -> dict[str, Any]:
    return texts(folder, packed=True)


def conversations(folder: Path) -> dict[str, Any]:
    training = {"max_steps": STEPS, "save_steps": STEPS // 2, "learning_rate": 1e-4}
    return finetune_options(write_model(folder / "model"), write_chats(folder / "chats.jsonl", 11), training=training)


def pictured(folder: Path) -> dict[str, Any]:
    """Each conversation has a picture."""
    options = conversations(folder)
    chats = folder / "chats.jsonl"
    chats.write_text("".join(line for line in chats.read_text().splitlines(keepends=True) if '"image"' in line))
    return options


def several(_folder: Path, **train: Any) -> dict[str, Any]:
    # Of AdamW alone, which moves a weight by the rate in the direction of a sum that rounding may decide.
    sizes = {"base_batch_size": 4, "target_batch_size": 12, "learning_rate": 3e-6}
    length = {"total_epochs": None, "total_iter": STEPS}
    return multitask_options(train={**sizes, **length, **train}, datasets={"train": {"samples": 43}})


def packed_tasks(folder: Path) -> dict[str, Any]:
    return several(folder, use_gradient_accumulation=False)


def run_of(folder: Path) -> Path:
    root = folder / "training_output"
    return ((root if root.is_dir() else folder / "experiments" / "tiny") / "current").resolve()


def weights(run: Path) -> Mapping[str, torch.Tensor]:
    pointer = json.loads((run / "checkpoints" / "latest.json").read_text())
    folder = run / "checkpoints" / pointer["folder"]
    (file,) = (file for file in folder.glob("*.safetensors") if not file.stem.endswith("_ema"))
    return load_file(file)


def trained(file: Path, ranks: int, *more: str, each: Sequence[str] = ()) -> list[dict[str, Any]]:
    ended = finish(train_ranks(file, ranks, *more, each=each))
    assert [code for code, _ in ended] == [0] * ranks, "\n".join(said for _, said in ended)
    return step_records(run_of(file.parent))


def covers_epochs(records: list[dict[str, Any]], samples: int) -> None:
    """Draws follow each other, and none goes beyond the end of an epoch: each sample comes once."""
    position = 0
    for record in records:
        assert record["first_sample"] == position
        position += record["samples"]
        assert (position - 1) // samples == record["first_sample"] // samples


def images(folder: Path) -> dict[str, Any]:
    gt = folder / "gt"
    gt.mkdir()
    for number in range(11):
        write_picture(gt / f"image_{number:03}.png", number, (48, 40))
    train_options = {"total_iter": STEPS, "optim_g": {"type": "SGD", "lr": 0.01}, "ema_decay": 0}
    return tiny_options(gt, datasets={"train": {"batch_size_per_gpu": 2}}, train=train_options, val={"val_freq": 10})


def again(folder: Path) -> dict[str, Any]:
    """Blocks run again in the backward pass."""
    return merged(rows(folder), {"memory": {"gradient_checkpointing": True}})


def adapters(folder: Path) -> dict[str, Any]:
    return merged(conversations(folder), {"lora": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}})


OTHERS = {make: ["chats.jsonl"] for make in (conversations, pictured, adapters)}
"""What the models of runs without a validation set are tested on."""

CASES = {
    (several, ""): True,
    (adapters, "fully_shard"): True,
    **dict.fromkeys([(rows, ""), (texts, ""), (conversations, ""), (packed_tasks, ""), (images, "")], False),
    **dict.fromkeys([(rows, "fully_shard"), (again, "fully_shard"), (pictured, "fully_shard")], False),
    **dict.fromkeys([(each, "ddp_overlap") for each in (texts, again, conversations, several, packed_tasks)], False),
}
"""Runs, how ranks meet in their backward passes, and whether they are tried in every run of the tests."""


@pytest.mark.parametrize(
    ("make", "key"), [pytest.param(*case, marks=() if quick else only_in_acceptance) for case, quick in CASES.items()]
)
def test_two_ranks_train_what_one_process_repeats(
    tmp_path: Path, make: Callable[[Path], dict[str, Any]], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and weights, over a resume on another number of ranks, too; the weights of tasks follow all ranks."""
    monkeypatch.chdir(tmp_path)
    options = merged(make(tmp_path), {"distributed": {key: True} if key else {}})
    file = write_options(tmp_path / "run.yml", options)
    trained(file, 2)
    length = "training:max_steps" if "training" in options else "train:total_iter"
    records = trained(file, 3, "--auto_resume", "--force_yml", f"{length}={LONGER}")
    assert [record["step"] for record in records] == list(range(1, LONGER + 1))
    assert [record["ranks"]["count"] for record in records] == [2] * STEPS + [3] * (LONGER - STEPS)
    if make is not images:  # whose steps go beyond the end of an epoch
        covers_epochs(records, json.loads((run_of(tmp_path) / "origin.json").read_text())["samples"])

    run = run_of(tmp_path)
    is_repeated_by_one_process(run, records)
    if ACCEPTANCE:
        for words in (["validate", "-opt", file.name], ["test", str(run), *OTHERS.get(make, [])]):
            looked_at = command(*words, cwd=tmp_path)
            assert looked_at.returncode == 0, looked_at.stderr


def is_repeated_by_one_process(run: Path, records: list[dict[str, Any]]) -> None:
    repeated = command("replay", str(run), cwd=Path.cwd())
    assert repeated.returncode == 0, repeated.stderr
    root = run.parent
    copy = (root.with_name(f"{root.name}_replay") / "current").resolve()
    alone = step_records(copy)
    assert [record["first_sample"] for record in alone] == [record["first_sample"] for record in records]
    for mine, theirs in zip(records, alone, strict=True):
        assert sum(mine["losses"].values()) == pytest.approx(sum(theirs["losses"].values()), abs=5e-6)
    for name, weight in weights(copy).items():  # beside adapters, shards hold the weights that they stand in
        torch.testing.assert_close(weight, weights(run)[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "make", [rows, *(pytest.param(make, marks=only_in_acceptance) for make in (texts, conversations, packed_tasks))]
)
def test_batches_that_follow_memory_are_what_one_process_repeats(
    tmp_path: Path, make: Callable[[Path], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank may use half of what the other may: it has about half as many samples, and each still comes once."""
    monkeypatch.chdir(tmp_path)
    changes = {"distributed": {"batches": "memory"}, "training_automations": NO_CONTROLLER}
    file = write_options(tmp_path / "run.yml", merged(make(tmp_path), changes))
    records = trained(file, 2, "--force_yml", "memory:budget={each}", each=["512MiB", "256MiB"])
    assert [record["ranks"]["shares"] for record in records] == [[1.0, 0.5]] * STEPS
    covers_epochs(records, json.loads((run_of(tmp_path) / "origin.json").read_text())["samples"])
    is_repeated_by_one_process(run_of(tmp_path), records)


@only_in_acceptance
@pytest.mark.parametrize("make", [rows, several, texts, conversations, packed_tasks])
def test_a_killed_rank_resumes_to_the_bit(tmp_path: Path, make: Callable[[Path], dict[str, Any]]) -> None:
    runs = {}
    for name in ("killed", "whole"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(SLOW, folder)
        slow = {"plugins": ["slow"], "training_automations": {"Slow": {"seconds": 0.05}}}
        length = {"training": {"max_steps": WHOLE}} if make is conversations else {"train": {"total_iter": WHOLE}}
        file = write_options(folder / "run.yml", merged(make(folder), {**slow, **length}))
        if name == "whole":
            trained(file, 2)
        else:
            agent = torchrun(file)
            root = folder / ("training_output" if make is conversations else "experiments/tiny")
            wait_for_steps(root / "current" / "training_log.jsonl", KILLED_AFTER)
            os.kill(ranks_under(agent.pid)[1], signal.SIGKILL)
            ((code, said),) = finish([agent], 200)
            assert code == 0, said
        runs[name] = run_of(folder)
        assert [record["step"] for record in step_records(runs[name])] == list(range(1, WHOLE + 1))
    assert (runs["killed"] / "training.log").read_text().count("directory ") == 2, "it was lost once, and went on once"
    for name, weight in weights(runs["whole"]).items():
        assert torch.equal(weight, weights(runs["killed"])[name]), name


@only_in_acceptance
@pytest.mark.parametrize("each", [("512MiB", "512MiB"), ("512MiB", "128MiB")])
@pytest.mark.parametrize("make", [conversations, packed_tasks])
def test_rates_are_those_of_the_steps_that_a_run_began_with(
    tmp_path: Path,
    make: Callable[[Path], dict[str, Any]],
    each: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a run is counted in samples, its warm-up counts the steps of the ranks it began with, and their shares."""
    monkeypatch.chdir(tmp_path)
    options = make(tmp_path)
    if make is conversations:
        options["training"] |= {"max_steps": None, "num_train_epochs": 6, "warmup_steps": 5}
    else:
        options["train"] |= {"total_iter": None, "total_epochs": 4, "warmup_steps": 8}
    options = merged(options, {"distributed": {"batches": "memory"}, "training_automations": NO_CONTROLLER})
    file = write_options(tmp_path / "run.yml", options)
    records = trained(file, 2, "--force_yml", "memory:budget={each}", each=each)
    assert len({record["lr"][next(iter(record["lr"]))] for record in records[:3]}) == 3, "it warms up"
    if make is conversations:  # of a rate of 1e-4, over 5 steps of the file's batch
        warmup, (key,) = 5 * (4 + (4 if each[1] == each[0] else 1)), records[0]["lr"]
        step = warmup / 5
        assert records[1]["lr"][key] == pytest.approx(1e-4 * (records[1]["first_sample"] + step) / warmup)
    assert command("replay", str(run_of(tmp_path)), cwd=tmp_path).returncode == 0
    root = run_of(tmp_path).parent
    alone = step_records((root.with_name(f"{root.name}_replay") / "current").resolve())
    for mine, theirs in zip(records, alone, strict=True):
        assert mine["lr"] == pytest.approx(theirs["lr"]), mine["step"]
        assert sum(mine["losses"].values()) == pytest.approx(sum(theirs["losses"].values()), abs=5e-6)


@only_in_acceptance
def test_a_picture_that_cannot_be_read_ends_all_ranks_with_a_checkpoint(tmp_path: Path) -> None:
    shutil.copy(SLOW, tmp_path)
    slow = {"plugins": ["slow"], "training_automations": {"Slow": {"seconds": 0.2}}, "training": {"max_steps": 200}}
    file = write_options(tmp_path / "run.yml", merged(conversations(tmp_path), slow))
    ranks = train_ranks(file, 2)
    wait_for_steps(tmp_path / "training_output" / "current" / "training_log.jsonl", 3)
    for picture in (tmp_path / "chats").glob("*.png"):
        picture.unlink()
    ended = finish(ranks)
    assert 2 in {code for code, _ in ended} <= {1, 2}, ended
    assert any(".png" in said for _, said in ended)
    run = run_of(tmp_path)
    saved = json.loads((run / "checkpoints" / "latest.json").read_text())["step"]
    assert saved == step_records(run)[-1]["step"]


@only_in_acceptance
@pytest.mark.parametrize("key", ["ddp_overlap", "fully_shard"])
def test_out_of_memory_within_the_backward_pass_goes_on_under_a_smaller_plan(tmp_path: Path, key: str) -> None:
    """All ranks end, torchrun starts them again, and they begin with what is left of the plan that failed."""
    changes = {
        "distributed": {key: True},
        "memory": {"budget": "24MiB"},
        "train": {"tokens_per_batch": 8192},
        "training_automations": NO_CONTROLLER,
    }
    options = merged(texts(tmp_path), changes)
    write_texts(tmp_path, 1200)  # more than fit into a batch
    file = write_options(tmp_path / "run.yml", options)
    ((code, said),) = finish([torchrun(file)], 200)
    assert code == 0, said
    assert "ranks synchronize inside the backward pass" in " ".join(said.split())
    steps = step_records(run_of(tmp_path))
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert steps[0]["plan"]["tokens"] < 0.75 * 0.75 * 8192, "it shrinks further where a start has failed again"


OF_TEXTS = {"model": {"config": {"n_embd": 64}}, "train": {"total_iter": 160, "tokens_per_batch": 2048}}
OF_TASKS = {
    "train": {"total_iter": 160, "base_batch_size": 256, "target_batch_size": 512},
    "datasets": {"train": {"samples": 1200}},
}
LARGE = {
    rows: OF_TEXTS,
    texts: OF_TEXTS,
    conversations: {
        "training": {"max_steps": 160, "per_device_train_batch_size": 48, "gradient_accumulation_steps": 1}
    },
    several: OF_TASKS,
    packed_tasks: OF_TASKS,
}
"""Steps that take more than the libraries that run them."""


@only_in_acceptance
@pytest.mark.parametrize("make", list(LARGE))
def test_a_short_rank_of_two_runs_out_of_memory_and_nobody_hangs(
    tmp_path: Path, make: Callable[[Path], dict[str, Any]]
) -> None:
    """Its samples come in pieces or again in smaller batches; both ranks end with the same weights."""
    options = merged(make(tmp_path), LARGE[make])
    if make in (rows, texts):
        write_texts(tmp_path, 1200)
    if make is conversations:
        write_chats(tmp_path / "chats.jsonl", 120)
    file = write_options(tmp_path / "run.yml", merged(options, {"training_automations": NO_CONTROLLER}))
    done = finish(start(["-m", "tests.integration.short_rank", file.name, "seen_{rank}.json"], 2, tmp_path), 240)
    assert [code for code, _ in done] == [0, 0], "\n".join(said for _, said in done)
    first, second = (json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in (0, 1))
    assert first["steps"] == second["steps"] == 160
    assert first.get("given back") == second.get("given back")
    assert second.get("in pieces", 0) + second.get("given back", 0) >= 60
    assert not first.get("in pieces")
