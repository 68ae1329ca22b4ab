"""What would train to no end is refused, or said, before the first step, at the option that is at fault."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import gan_options, tiny_options, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from tests.integration.multitask_runs import multitask_options
from tests.integration.text_runs import text_options, write_texts

Write = Callable[..., Path]
COMPACT = {"type": "compact", "num_feat": 4, "num_conv": 1}


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        (
            {"train": {"losses": [{"type": "l1loss", "loss_weight": 0}]}},
            "loss_weight: 0",
            "every loss has loss_weight 0",
        ),
        ({"train": {"losses": [{"type": "l1loss", "loss_weight": -1.0}]}}, "loss_weight: -1.0", "0 or more, got -1.0"),
        (
            {"train": {"losses": [{"type": "l1loss", "loss_weight": float("inf")}]}},
            "loss_weight: .inf",
            "a finite number, but inf",
        ),
        (
            gan_options(train={"losses": [{"type": "l1loss"}, {"type": "ganloss", "loss_weight": -0.1}]}),
            "loss_weight: -0.1",
            "0 or more, got -0.1",
        ),
        ({"network_g": {**COMPACT, "num_in_ch": 4, "num_out_ch": 4}}, "num_in_ch: 4", "takes 4 channels"),
        ({"network_g": {"type": "rrdbnet", "num_block": 1, "num_in_ch": 4}}, "num_in_ch: 4", "takes 4 channels"),
    ],
)
def test_options_that_train_nothing(
    changes: dict[str, Any], place: str, said: str, tmp_path: Path, write_images: Write
) -> None:
    options = write_options(tmp_path / "x.yml", tiny_options(write_images("gt", 1), **changes))
    number = next(number for number, line in enumerate(options.read_text().splitlines(), 1) if place in line)
    done = train(options)
    assert done.returncode == 2
    assert f"x.yml:{number}:" in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "experiments").exists()


TRAINED = ("datasets", "train")
ADAM = ("train", "optim_g")
CLIPPING = ("training_automations", "AdaptiveGradientClipping")
STEERED = ("training_automations", "DynamicBatchSizeOptimizer")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((*TRAINED, "lq_size"), 10**9, "at most 65536"),
        ((*TRAINED, "lq_size"), 65536, "are free here"),
        ((*TRAINED, "batch_size_per_gpu"), 2**62, "at most 65536"),
        ((*TRAINED, "accum_iter"), 50_000, "samples is larger than any"),
        ((*TRAINED, "lookahead"), 10**9, "at most 65536"),
        ((*TRAINED, "dataroot_gt"), "a/" * 2500, "5000 bytes is longer than disks take"),
        ((*TRAINED, "dataroot_gt"), "a" * 256, "a name in a path of 256 bytes"),
        ((*TRAINED, "dataroot_gt"), "a\0b", "holds a zero character"),
        ((*TRAINED, "dataroot_gt"), "a\nb", "no line break"),
        (("path", "pretrain_network_g"), "a" * 5000, "longer than disks take"),
        (("path", "experiments_root"), "a" * 5000, "longer than disks take"),
        (("plugins",), ["a" * 5000], "longer than disks take"),
        (("network_g", "num_conv"), 10**8, "num_conv is above 65536"),
        (("num_threads",), 10**9, "at most 1024"),
        ((*ADAM, "lr"), float("inf"), "takes a finite number, but inf is given"),
        ((*ADAM, "lr"), float("nan"), "takes a finite number, but nan is given"),
        ((*ADAM, "lr"), 1e300, "more than 32 bits"),
        ((*ADAM, "lr"), -1.0, "a learning rate of -1.0 increases the loss"),
        (("memory", "budget"), "1KiB", "write 1MiB at least"),
        (("memory", "budget"), "9" * 400 + "GiB", "is no size"),
        ((*CLIPPING, "percentile"), 0.9, "write 90"),
        ((*STEERED, "max_adjustments"), -5, "at least 0, got -5"),
        ((*STEERED, "min_batch_size"), 2**62, "no batch_size lies in"),
    ],
)
def test_values_that_nobody_means(
    path: tuple[str, ...], value: object, said: str, tmp_path: Path, write_images: Write
) -> None:
    changes: Any = value
    for key in reversed(path):
        changes = {key: changes}
    options = write_options(tmp_path / "x.yml", tiny_options(write_images("gt", 1), **changes))
    begun = time.monotonic()
    done = train(options, own_process=False)
    assert time.monotonic() - begun < 5
    assert done.returncode == 2
    told = next(line for line in done.stderr.splitlines() if said in line)
    if path[-1] not in told.split(":", 3)[-1]:  # else the message names the option
        number = int(told.split(":")[1])
        assert f"{path[-1]}:" in "".join(options.read_text().splitlines()[number - 2 : number])
    assert not (tmp_path / "experiments").exists()


def test_one_of_several_losses_may_weigh_nothing(tmp_path: Path, write_images: Write) -> None:
    losses = [{"type": "l1loss"}, {"type": "mseloss", "loss_weight": 0}]
    changes = {"train": {"losses": losses, "total_iter": 1}, "val": {"val_enabled": False}}
    done = train(write_options(tmp_path / "x.yml", tiny_options(write_images("gt", 1), **changes)))
    assert done.returncode == 0, done.stderr


def test_images_that_are_trained_on_are_said(
    tmp_path: Path, write_images: Write, caplog: pytest.LogCaptureFixture
) -> None:
    trained = write_images("gt", 2)
    validated = write_images("val", 1, (48, 60))
    for number in range(2):
        (validated / f"linked_{number}.png").symlink_to(trained / f"image_00{number}.png")
    changes: dict[str, Any] = {"datasets": {"val": {"dataroot_gt": str(validated)}}, "train": {"total_iter": 1}}
    assert train(write_options(tmp_path / "x.yml", tiny_options(trained, **changes))).returncode == 0
    (said,) = [record.getMessage() for record in caplog.records if "shares" in record.getMessage()]
    assert said.startswith("dataset 'val' shares 2 of its 3 images with the training set (linked_0, ...): its metrics")
    caplog.clear()
    changes["datasets"]["val"]["dataroot_gt"] = str(validated / "image_000.png")
    assert train(write_options(tmp_path / "x.yml", tiny_options(trained, **changes))).returncode == 0
    assert "shares" not in caplog.text


@pytest.mark.parametrize(
    ("task", "path", "value", "said"),
    [
        ("several tasks", ("model", "layers"), 10**8, "layers is above 65536"),
        ("several tasks", ("model", "heads"), 0, "heads is 1 or more, got 0"),
        ("several tasks", ("model", "hidden_size"), 65536, "memory"),
        ("several tasks", ("datasets", "train", "samples"), 10**9, "samples is 1 to 1048576"),
        ("several tasks", ("train", "learning_rate"), 1e300, "more than 32 bits"),
        ("text", ("model", "config", "n_embd"), 65536, "memory"),
        ("text", ("model", "config", "n_positions"), 0, "n_positions is 0"),
        ("text", ("model", "lora"), {"lora_alpha": 10**18}, "at most 1048576"),
        ("fine-tuning", ("lora", "r"), 60_000, "r is 60000, above the"),
    ],
)
def test_sizes_of_other_tasks_that_nobody_means(
    task: str, path: tuple[str, ...], value: object, said: str, tmp_path: Path
) -> None:
    changes: Any = value
    for key in reversed(path):
        changes = {key: changes}
    if task == "text":
        options = text_options(write_texts(tmp_path, 8), **changes)
    elif task == "several tasks":
        options = multitask_options(**changes)
    else:
        options = finetune_options(write_model(tmp_path / "model"), write_chats(tmp_path / "chats.jsonl"), **changes)
    file = write_options(tmp_path / "x.yml", options)
    done = train(file, own_process=False)
    assert done.returncode == 2
    (told,) = [line for line in done.stderr.splitlines() if "x.yml:" in line]
    assert said in told
    number, key = int(told.split(":")[1]), next(iter(value)) if isinstance(value, dict) else path[-1]
    assert f"{key}:" in file.read_text().splitlines()[number - 1]
    assert not list(tmp_path.glob("*experiments*/*/*"))
