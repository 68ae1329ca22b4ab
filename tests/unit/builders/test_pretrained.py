"""Starting from weights out of a file: taken whole, refused with what to write, or taken as far as they fit."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

from tests.made_runs import make_run, options_of
from tests.unit.tasks.sr.archs.test_legacy_keys import numbered
from trainauto.builders.image_model import build_network
from trainauto.builders.run_weights import named_weights
from trainauto.core.errors import InputError
from trainauto.options.load import load_options
from trainauto.tasks.sr.archs import ARCHS

TINY = {"num_feat": 4, "num_block": 1, "num_grow_ch": 2}


def built(folder: Path, network: dict[str, Any], scale: int, **path: Any) -> nn.Module:
    file = folder / "run.yml"
    file.write_text(
        yaml.safe_dump(options_of(network, scale, path={"pretrain_network_g": str(folder / "x.pth"), **path}))
    )
    return build_network(load_options(file))


def weights_of(folder: Path, name: str, **arguments: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    state = ARCHS.get(name)(**arguments).state_dict()
    torch.save({"params_ema": {f"module.{key}": value for key, value in state.items()}}, folder / "x.pth")
    return dict(state)


def test_weights_are_taken_and_the_log_says_which(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = weights_of(tmp_path, "rrdbnet", scale=2, **TINY)
    with caplog.at_level(logging.INFO):
        network = built(tmp_path, {"type": "esrgan", **TINY}, 2)
    assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())
    assert "x.pth: entry params_ema is taken, names without 'module.'" in caplog.text


def test_the_folder_of_a_run_stands_for_its_best_weights(tmp_path: Path) -> None:
    network = {"type": "compact", "num_feat": 8, "num_conv": 1}
    run = make_run(tmp_path, options_of(network), steps=(10, 20, 30), best=20)
    folder = tmp_path / "experiments" / "made"
    best, first = (run.checkpoints / f"step_{step:08d}" for step in (20, 10))
    for chosen, file in (
        (folder, best / "net_g_ema.safetensors"),
        (run.path, best / "net_g_ema.safetensors"),
        (first, first / "net_g_ema.safetensors"),
        (first / "net_g.safetensors", first / "net_g.safetensors"),
    ):
        state, kept = built(tmp_path, network, 2, pretrain_network_g=str(chosen)).state_dict(), load_file(file)
        assert all(torch.equal(tensor, kept[name]) for name, tensor in state.items()), chosen
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError, match="images is no run") as caught:
        built(tmp_path, network, 2, pretrain_network_g=str(tmp_path / "images"))
    place = caught.value.problems[0].place
    assert place is not None
    assert "pretrain_network_g" in place.text
    with pytest.raises(InputError, match=r"has no net_d\.safetensors in its checkpoint of step 20"):
        named_weights(str(folder), "d")


@pytest.mark.parametrize(
    ("name", "arguments", "options", "words"),
    [
        (
            "rrdbnet",
            {**TINY, "scale": 4},
            ({"type": "compact", "num_feat": 8}, 2),
            [
                "x.pth is ESRGAN x4, 4 features, 1 block, and network_g is Compact x2, 8 features, 16 convolutions",
                "Write `scale: 4` and `network_g: { type: rrdbnet, num_feat: 4, num_block: 1, num_grow_ch: 2 }`.",
                "None of its tensors fits this network.",
            ],
        ),
        (
            "rrdbnet",
            {**TINY, "scale": 4},
            ({"type": "rrdbnet", **TINY, "num_grow_ch": 3}, 4),
            [
                "Write `network_g: { type: rrdbnet, num_feat: 4, num_block: 1, num_grow_ch: 2 }`.",
                "strict_load_g: false",
            ],
        ),
        (
            "unetdiscriminatorsn",
            {"num_feat": 4},
            ({"type": "compact"}, 2),
            ["is U-Net discriminator, 4 features", "It judges images: name it as pretrain_network_d."],
        ),
    ],
)
def test_other_networks_are_named_with_what_to_write(
    name: str, arguments: dict[str, Any], options: tuple[dict[str, Any], int], words: list[str], tmp_path: Path
) -> None:
    weights_of(tmp_path, name, **arguments)
    with pytest.raises(InputError) as caught:
        built(tmp_path, *options)
    line = (tmp_path / "run.yml").read_text().split("pretrain_network_g")[0].count("\n") + 1
    assert str(caught.value).startswith(f"{tmp_path / 'run.yml'}:{line}:23: ")
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_another_scale_keeps_what_fits_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = weights_of(tmp_path, "rrdbnet", scale=4, **TINY)
    with pytest.raises(InputError, match=r"strict_load_g: false`, which takes the 41 of its 42 tensors that fit"):
        built(tmp_path, {"type": "rrdbnet", **TINY}, 2)
    network = built(tmp_path, {"type": "rrdbnet", **TINY}, 2, strict_load_g=False)
    own = network.state_dict()
    assert own["conv_first.weight"].shape == (4, 12, 3, 3)
    assert all(torch.equal(own[name], tensor) for name, tensor in state.items() if name != "conv_first.weight")
    for words in (
        "41 of 42 tensors of",
        "it is ESRGAN x4, 4 features, 1 block, the network ESRGAN x2, 4 features, 1 block",
        "1 of another shape, which begin anew: conv_first.weight: (4, 3, 3, 3) in the file, (4, 12, 3, 3) here",
    ):
        assert words in caplog.text


def test_all_that_is_left_out_is_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights_of(tmp_path, "compact", scale=2, num_feat=4, num_conv=9)
    built(tmp_path, {"type": "compact", "num_feat": 4, "num_conv": 2}, 2, strict_load_g=False)
    assert (
        "of another shape, which begin anew: body.6.weight: (4, 4, 3, 3) in the file, (12, 4, 3, 3) here" in caplog.text
    )
    assert "21 of the file without a place here: body.7 (1), body.8 (2), body.9 (1), " in caplog.text
    weights_of(tmp_path, "compact", scale=2, num_feat=4, num_conv=1)
    built(tmp_path, {"type": "compact", "num_feat": 4, "num_conv": 2}, 2, strict_load_g=False)
    assert "3 missing in the file, which begin anew: body.5.weight, body.6.weight, body.6.bias" in caplog.text


def test_weights_of_which_nothing_fits_are_refused_in_any_case(tmp_path: Path) -> None:
    weights_of(tmp_path, "compact", scale=2, num_feat=4, num_conv=2)
    with pytest.raises(InputError, match="None of its tensors fits this network"):
        built(tmp_path, {"type": "rrdbnet", **TINY}, 2, strict_load_g=False)


def test_strangers_are_told_by_what_differs(tmp_path: Path) -> None:
    torch.save({"stem.weight": torch.ones(3)}, tmp_path / "x.pth")
    with pytest.raises(InputError, match=r"are not of this network: .*1 unknown here \(stem.weight\)"):
        built(tmp_path, {"type": "compact"}, 2)


def test_a_variant_of_old_ESRGAN_is_named(tmp_path: Path) -> None:
    state = numbered(ARCHS.get("rrdbnet")(**TINY).state_dict(), 1, 2)
    torch.save({**state, "model.1.sub.0.RDB1.conv1x1.weight": torch.ones(2, 4, 1, 1)}, tmp_path / "x.pth")
    with pytest.raises(InputError, match=r"ESRGAN\+ adds 1x1 convolutions"):
        built(tmp_path, {"type": "rrdbnet", **TINY}, 2)
