"""Runs whose optimizer is schedule-free: its average is what is validated and kept, and training goes on without it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.integration.commands import gan_options, merged, step_records, tiny_options, train_loaded, write_options
from tests.integration.text_runs import text_options, write_texts
from trainauto.core.errors import InputError
from trainauto.options.load import load_options

FREE = {"type": "AdanScheduleFree", "lr": 1e-2, "warmup_steps": 4}


def images(gt: Path) -> dict[str, Any]:
    return tiny_options(gt, train={"optim_g": FREE}, val={"val_freq": 5})


def judged(gt: Path) -> dict[str, Any]:
    return merged(tiny_options(gt), gan_options(train={"optim_g": FREE, "optim_d": {**FREE, "type": "adamw_sf"}}))


def texts(gt: Path) -> dict[str, Any]:
    train = {"optim": {"type": "AdamWScheduleFree", "lr": 1e-2, "warmup_steps": 4}, "scheduler": {"type": "constant"}}
    return text_options(write_texts(gt.parent), train={**train, "total_epochs": None, "total_iter": 12})


def checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Return the weights in training, their average, and the optimizer's state of the newest checkpoint."""
    run = (folder / "experiments" / "tiny" / "current").resolve()
    pointer = json.loads((run / "checkpoints" / "latest.json").read_text())
    newest = run / "checkpoints" / pointer["folder"]
    average = next(file for file in newest.glob("*_ema.safetensors"))
    state = torch.load(newest / "state.pt", weights_only=True)["model"]["optimizers"]
    plain = load_file(newest / average.name.replace("_ema", ""))
    return plain, load_file(average), next(iter(state.values()))


@pytest.mark.parametrize("make", [images, judged, texts])
def test_the_average_is_kept_and_a_resume_goes_on_to_the_bit(
    make: Any, tmp_path: Path, write_images: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {}
    for name, lengths in {"straight": [12], "resumed": [7, 12]}.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        options = make(write_images("gt", 6))
        for number, length in enumerate(lengths):
            file = write_options(folder / "run.yml", merged(options, {"train": {"total_iter": length}}))
            assert train_loaded(load_options(file), auto_resume=number > 0) == 0
        ended[name] = checkpoint(folder)
    plain, average, optimizer = ended["resumed"]
    assert all(torch.equal(plain[key], tensor) for key, tensor in ended["straight"][0].items())
    assert all(torch.equal(average[key], tensor) for key, tensor in ended["straight"][1].items())
    assert optimizer["param_groups"][0]["k"] == 12

    beta = optimizer["param_groups"][0]["betas"][0]
    ends = [state["z"] for _, state in sorted(optimizer["state"].items())]
    moved = 0
    for weight, mean in zip(plain.values(), average.values(), strict=True):
        end = next(one for one in ends if one.shape == weight.shape and _is_end(one, weight, mean, beta))
        moved += int(not torch.equal(end, mean))
    assert moved


def _is_end(end: Tensor, weight: Tensor, mean: Tensor, beta: float) -> bool:
    """Say whether weights in training lie between an end and an average as they should."""
    return torch.allclose((1 - beta) * end + beta * mean, weight, rtol=1e-4, atol=1e-6)


def test_the_average_is_validated(tmp_path: Path, write_images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed for no step at all with other weights in training: what is measured stays."""
    from trainauto.builders.image_model import build_model, build_network
    from trainauto.builders.precision import choose_precision

    monkeypatch.chdir(tmp_path)
    loaded = load_options(write_options(tmp_path / "run.yml", images(write_images("gt", 6))))
    assert loaded.options.train.ema_decay == 0
    torch.manual_seed(0)
    model: Any = build_model(loaded, build_network(loaded), choose_precision(loaded))
    lq = torch.rand(1, 3, 8, 8)
    before = model.enlarge(lq)
    for weight in model.networks["net_g"].parameters():
        weight.data.add_(0.1)
    assert torch.equal(model.enlarge(lq), before)
    model.after_step()
    assert not torch.equal(model.enlarge(lq), before)


def test_rates_rise_once(tmp_path: Path, write_images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``warmup_steps`` of the run and of the optimizer are the same, and one at a time is given."""
    ended = []
    for name, train in {"run": {"warmup_steps": 4}, "own": {}}.items():
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        optimizer = {"type": "adan_sf", "lr": 1e-2} | ({} if train else {"warmup_steps": 4})
        options = tiny_options(write_images("gt", 6), train={**train, "optim_g": optimizer, "total_iter": 8})
        assert train_loaded(load_options(write_options(folder / "run.yml", options))) == 0
        ended.append(checkpoint(folder)[0])
        assert len(step_records((folder / "experiments" / "tiny" / "current").resolve())) == 8
    for key, tensor in ended[0].items():
        torch.testing.assert_close(tensor, ended[1][key], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"ema_decay": 0.999}, "(?s)AdanScheduleFree keeps the average itself.*Remove ema_decay"),
        ({"ema_power": 0.75}, "(?s)AdanScheduleFree keeps the average itself.*Remove ema_power"),
        ({"warmup_steps": 3}, "(?s)warm-up is given twice.*Remove one"),
    ],
)
def test_what_would_be_done_twice_is_refused(train: dict[str, Any], message: str, tmp_path: Path) -> None:
    options = tiny_options(tmp_path, train={"optim_g": FREE, **train})
    with pytest.raises(InputError, match=message) as caught:
        load_options(write_options(tmp_path / "run.yml", options))
    assert len(caught.value.problems) == 1
