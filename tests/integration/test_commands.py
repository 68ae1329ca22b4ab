"""The doors as a person meets them: what is printed, what is left behind, which exit code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import (
    command,
    gan_options,
    plugins_forgotten,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)

Write = Callable[..., Path]

PLUGIN_NETWORK = """
import torch
from torch import nn
from trainauto.tasks.sr.archs import ARCHS

@ARCHS.register("my_net")
class MyNet(nn.Module):
    def __init__(self, width: int = 8, scale: int = 4):
        super().__init__()
        self.scale = scale
        layers = nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3 * scale**2, 3, padding=1)
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return nn.functional.pixel_shuffle(self.body(x), self.scale)
"""


def test_a_plugin_network_beside_the_option_file(tmp_path: Path, write_images: Write) -> None:
    (tmp_path / "my_module.py").write_text(PLUGIN_NETWORK)
    options = tiny_options(write_images("gt", 3), plugins=["my_module"], network_g={"type": "my_net", "width": 6})
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 0, done.stderr
    assert "my_net x2" in done.stdout
    assert len(step_records(run_directory(file))) == 12


def test_plain_output_fits_80_columns_and_holds_the_facts(tmp_path: Path, write_images: Write) -> None:
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 3)))
    done = train(file)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    for word in ("tiny", "compact x2", "batch_size 4, lq_size 16", "psnr", "bicubic", "completed", "checkpoint"):
        assert word in done.stdout
    log = (run_directory(file) / "training.log").read_text()
    assert "completed" in log


def broken(**changes: Any) -> dict[str, Any]:
    return changes


BROKEN: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "unknown network": (
        {"network_g": {"type": "compakt"}},
        "type: compakt",
        ["there is no network named 'compakt'", "Did you mean 'compact'?"],
    ),
    "unknown network argument": (
        {"network_g": {"type": "compact", "num_feats": 8}},
        "num_feats: 8",
        ["num_feats", "Did you mean 'num_feat'?"],
    ),
    "refused network argument": (
        {"network_g": {"type": "compact", "act_type": "tanh"}},
        "act_type: tanh",
        ["act_type", "prelu"],
    ),
    "wrong type of an argument": (
        {"network_g": {"type": "compact", "num_feat": "many"}},
        "num_feat: many",
        ["num_feat"],
    ),
    "unknown loss": ({"train": {"losses": [{"type": "l1los"}]}}, "type: l1los", ["Did you mean 'L1Loss'?"]),
    "unknown optimizer argument": (
        {"train": {"optim_g": {"type": "Adam", "lr": 0.1, "beta": [0.9, 0.9]}}},
        "beta:",
        ["Did you mean 'betas'?"],
    ),
    "optimizer without a rate it accepts": (
        {"train": {"optim_g": {"type": "Adam", "lr": -1.0}}},
        "lr:",
        ["a learning rate of -1.0 increases the loss"],
    ),
    "unknown schedule": ({"train": {"scheduler": {"type": "cosin"}}}, "type: cosin", ["Did you mean 'cosine'?"]),
    "unknown metric": ({"val": {"metrics": {"psnr": {"type": "psnrr"}}}}, "type: psnrr", ["Did you mean"]),
    "unknown dataset type": (
        {"datasets": {"train": {"type": "GTImagDataset", "dataroot_gt": "gt"}}},
        "type: GTImagDataset",
        ["Did you mean 'GTImageDataset'?"],
    ),
    "unknown automation": (
        {"training_automations": {"PlanSchedul": {"changes": []}}},
        "PlanSchedul:",
        ["Did you mean 'PlanSchedule'?"],
    ),
    "plan out of bounds": (
        {"training_automations": {"PlanSchedule": {"changes": [{"step": 3, "lq_size": 4000}]}}},
        "PlanSchedule:",
        ["lq_size 4000 at step 3", "Take 1 to 32 px"],
    ),
    "missing folder": (
        {"datasets": {"train": {"dataroot_gt": "nowhere"}}},
        "dataroot_gt: nowhere",
        ["there is no nowhere"],
    ),
    "missing weights": ({"path": {"pretrain_network_g": "net.pth"}}, "pretrain_network_g", ["net.pth"]),
    "missing plugin": ({"plugins": ["not_there"]}, "not_there", ["there is no plugin 'not_there'"]),
    "broken plugin": ({"plugins": ["broken_plugin"]}, "broken_plugin", ["ZeroDivisionError", "broken_plugin.py:2"]),
    "scale the network does not do": (
        {"plugins": ["fixed"], "network_g": {"type": "fixed_x4"}},
        "network_g:",
        ["makes 1x3x32x32 of 1x3x8x8", "scale: 2"],
    ),
    "size the network does not take": (
        {
            "network_g": {"type": "swinir_light", "embed_dim": 12, "depths": [1], "num_heads": [2]},
            "datasets": {"train": {"lq_size": 21}},
        },
        "lq_size: 21",
        ["multiples of 8", "The nearest is 16, or 24"],
    ),
    "cache folder that is a file": ({"datasets": {"train": {"cache_dir": "run.yml"}}}, "cache_dir", ["cannot be made"]),
    "runs in a file": ({"path": {"experiments_root": "run.yml"}}, "experiments_root", ["cannot be made"]),
    "a GAN without its parts": (
        {"model_type": "SRGANModel"},
        "model_type: SRGANModel",
        [
            "needs network_d",
            "Add `network_d: {type: unetdiscriminatorsn}`",
            "needs train.optim_d",
            "needs a ganloss among train.losses",
            "Add `- {type: ganloss",
        ],
    ),
    "parts of a GAN without a discriminator": (
        {
            "network_d": {"type": "unetdiscriminatorsn"},
            "train": {"optim_d": {"type": "Adam"}, "losses": [{"type": "ganloss"}]},
            "path": {"strict_load_d": False},
        },
        "network_d:",
        [
            "network_d is about a discriminator, and model_type SRModel has none",
            "train.optim_d is about",
            "path.strict_load_d is about",
            "ganloss needs a discriminator",
            "Write model_type: SRGANModel, or remove it.",
        ],
    ),
    "two GAN losses": (
        gan_options(train={"losses": [{"type": "gan"}, {"type": "ganloss", "gan_type": "hinge"}]}),
        "type: ganloss",
        ["more than one ganloss"],
    ),
    "a discriminator that enlarges": (
        gan_options(network_d={"type": "span"}),
        "type: span",
        ["'span' enlarges images and judges none", "unetdiscriminatorsn"],
    ),
    "a generator that judges": (
        {"network_g": {"type": "unetdiscriminatorsn"}},
        "type: unetdiscriminatorsn",
        ["judges images and enlarges none", "network_d"],
    ),
    "a discriminator of other images": (
        gan_options(network_d={"type": "unetdiscriminatorsn", "num_in_ch": 1, "num_feat": 4}),
        "network_d:",
        ["judges images of 1 channels, and there are 3", "Write num_in_ch: 3."],
    ),
    "missing weights of the discriminator": (
        gan_options(path={"pretrain_network_d": "net_d.pth"}),
        "pretrain_network_d",
        ["net_d.pth"],
    ),
    "hinge with labels": (
        gan_options(train={"losses": [{"type": "ganloss", "gan_type": "hinge", "real_label_val": 0.9}]}),
        "gan_type: hinge",
        ["hinge has no labels"],
    ),
    "no cuda here": ({"device": "cuda"}, "device: cuda", ["no CUDA device"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_only_building_can_find_is_one_block(
    tmp_path: Path, write_images: Write, case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    if case == "no cuda here" and torch.cuda.is_available():
        pytest.skip("there is CUDA here")
    from trainauto.cli import main

    changes, line, words = BROKEN[case]
    (tmp_path / "broken_plugin.py").write_text("# a comment\n1 / 0\n")
    (tmp_path / "fixed.py").write_text(
        PLUGIN_NETWORK.replace('"my_net"', '"fixed_x4"').replace("self.scale = scale", "scale = self.scale = 4")
    )
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2), **changes))
    monkeypatch.chdir(tmp_path)
    with plugins_forgotten(tmp_path):
        code = main(["train", "-opt", "run.yml"])
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert f"run.yml:{_line_number(file, line)}:" in printed.err
    for word in words:
        assert word in printed.err, printed.err
    assert "Traceback" not in printed.err
    assert not (tmp_path / "experiments").exists()


def _line_number(file: Path, text: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line)


def test_an_image_that_goes_bad_in_mid_run_ends_it_with_a_checkpoint(tmp_path: Path, write_images: Write) -> None:
    gt = write_images("gt", 3)
    plugin = f"""
from pathlib import Path
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.tasks.sr.data import image_dataset
room_bytes = image_dataset.room_bytes
image_dataset.room_bytes = lambda: 0  # a set that is too large to stay decoded
@AUTOMATIONS.register("Vandal")
class Vandal(Automation):
    def on_step_end(self, record):
        image_dataset.room_bytes = room_bytes
        if record.step == 4:
            Path({str(gt / "image_001.png")!r}).write_bytes(b"gone")
"""
    (tmp_path / "vandal.py").write_text(plugin)
    options = tiny_options(gt, plugins=["vandal"], training_automations={"Vandal": {}})
    file = write_options(tmp_path / "run.yml", options)
    shutil.copy(gt / "image_001.png", tmp_path / "kept.png")
    done = train(file)
    assert done.returncode == 2
    assert "image_001.png" in done.stderr
    assert "Traceback" not in done.stderr
    run = run_directory(file)
    assert '"step": 4' in (run / "checkpoints" / "latest.json").read_text()
    shutil.copy(tmp_path / "kept.png", gt / "image_001.png")
    done = train(file, "--auto_resume", "--force_yml", "plugins=[]", "training_automations={}")
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in step_records(run)] == list(range(1, 13))


def test_nan_names_term_and_files_and_keeps_the_checkpoint(tmp_path: Path, write_images: Write) -> None:
    options = tiny_options(write_images("gt", 3), train={"optim_g": {"type": "SGD", "lr": 1e30}})
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 1
    assert "loss term 'l1loss'" in done.stderr
    assert "image_00" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_wrong_arguments(tmp_path: Path) -> None:
    for arguments, code, word in (
        (["--help"], 0, "train"),
        (["train", "--help"], 0, "--auto_resume"),
        (["train"], 2, "-opt"),
        (["tarin"], 2, "tarin"),
        (["train", "-opt", "nowhere.yml"], 2, "nowhere.yml"),
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert word in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


BROKEN_FILES = Path(__file__).parents[1] / "assets" / "broken_options"


@pytest.mark.parametrize("name", ["unknown_network", "unknown_argument"])
def test_broken_files_that_only_building_can_judge(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainauto.cli import main

    text = (BROKEN_FILES / f"{name}.yml").read_text()
    expected = next(line for line in text.splitlines() if line.startswith("# expect: ")).removeprefix("# expect: ")
    place, _, words = expected.partition(" ")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-opt", str(BROKEN_FILES / f"{name}.yml")]) == 2
    printed = capsys.readouterr().err
    assert f"{name}.yml:{place}:" in printed
    for fragment in words.split(" | "):
        assert fragment.strip() in printed
    assert not list(tmp_path.iterdir())


def test_list_alone_says_what_may_be_listed(tmp_path: Path) -> None:
    done = command("list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for kind in ("archs", "schedules", "cards"):
        assert f"list {kind} " in done.stdout
    assert "cards" in json.loads(command("list", "--json", cwd=tmp_path).stdout)
