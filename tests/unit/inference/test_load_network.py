"""Networks out of runs, and out of option files with weights."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from tests.made_runs import make_run, options_of
from tests.unit.tasks.sr.archs.test_legacy_keys import numbered
from trainauto.archs import ARCHS
from trainauto.builders.image_model import build_network
from trainauto.cli import main
from trainauto.commands.common_arguments import check_network, named_network, takes_network
from trainauto.core.errors import CheckpointError, InputError
from trainauto.inference.load_network import load_network, network_from_weights
from trainauto.options.load import load_options

CPU = torch.device("cpu")
COMPACT = {"type": "compact", "num_feat": 8, "num_conv": 1}
PLUGIN = """
from torch import nn
from trainauto.tasks.sr.archs import ARCHS

@ARCHS.register("NAME")
class Doubling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 12, 1), nn.PixelShuffle(2))

    def forward(self, image):
        return self.body(image)
"""


def folder_of(step: int, run: Any) -> Path:
    return run.checkpoints / f"step_{step:08d}"


@pytest.mark.parametrize(
    ("wanted", "best", "step"),
    [("best", 20, 20), ("best", None, 30), ("latest", 20, 30), ("10", 20, 10), ("Latest", None, 30)],
)
def test_the_checkpoint_asked_for(tmp_path: Path, wanted: str, best: int | None, step: int) -> None:
    run = make_run(tmp_path, options_of(COMPACT), steps=(10, 20, 30), best=best)
    found = load_network(tmp_path / "experiments" / "made", wanted, CPU)
    assert (found.step, found.scale, found.channels, found.name) == (step, 2, 3, "made")
    assert found.weights_file == folder_of(step, run) / "net_g_ema.safetensors"
    assert found.is_average
    kept = load_file(found.weights_file)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in found.network.state_dict().items())
    assert not found.network.training
    assert found.network(torch.rand(1, 3, 5, 7)).shape == (1, 3, 10, 14)


def test_a_run_without_averages(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT), averages=False)
    found = load_network(run.path, "best", CPU)
    assert not found.is_average
    assert found.weights_file.name == "net_g.safetensors"


def test_a_best_that_is_gone_is_the_latest(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT), steps=(10, 20), best=10)
    shutil.rmtree(folder_of(10, run))
    assert load_network(run.path, "best", CPU).step == 20


def test_looking_leaves_a_writer_of_now_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT))
    half_written = run.checkpoints / f".step_00000020.{'0a' * 16}.tmp"
    half_written.mkdir()
    load_network(run.path, "best", CPU)
    assert half_written.is_dir()


def test_options_are_those_of_the_step(tmp_path: Path) -> None:
    """A run that was gone on with another network still has its old checkpoints."""
    run = make_run(tmp_path, options_of(COMPACT), steps=(10, 20))
    changed = options_of({**COMPACT, "num_feat": 12})
    run.given.replace(run.until_step(run.given, 20))
    run.given.write_text(yaml.safe_dump(changed))
    assert load_network(run.path, "20", CPU).loaded.options.network_g.arguments["num_feat"] == 8


def test_a_plugin_lies_where_the_run_found_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "plugin_of_a_run.py").write_text(PLUGIN.replace("NAME", "doubling_of_a_run"))
    options = options_of({"type": "doubling_of_a_run"}, plugins=["plugin_of_a_run"])
    run = make_run(tmp_path / "here", options, plugins=tmp_path / "there")
    found = load_network(run.path, "best", CPU)
    assert found.loaded.folder == tmp_path / "there"
    assert found.channels == 3  # it does not say
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    origin = json.loads(run.origin.read_text())
    run.origin.write_text(json.dumps({**origin, "folder": str(tmp_path / "gone")}))
    assert load_network(run.path, "best", CPU).loaded.folder == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("15", ["has no checkpoint of step 15", "10, 20", "best and latest"]),
        ("lates", ["--checkpoint lates", "Did you mean 'latest'?"]),
        ("-5", ["neither best nor latest"]),
    ],
)
def test_checkpoints_that_are_not_there(tmp_path: Path, wanted: str, words: list[str]) -> None:
    run = make_run(tmp_path, options_of(COMPACT), steps=(10, 20))
    with pytest.raises(InputError) as caught:
        load_network(run.path, wanted, CPU)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT), steps=())
    with pytest.raises(InputError, match=r"no checkpoint yet\n.*save_checkpoint_freq"):
        load_network(run.path, "best", CPU)


def test_a_damaged_checkpoint_and_an_old_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT))
    (folder_of(10, run) / "net_g_ema.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"cannot load .*net_g_ema"):
        load_network(run.path, "best", CPU)
    run.given.unlink()
    with pytest.raises(InputError, match=r"has no given.yml"):
        load_network(run.path, "best", CPU)


def test_an_option_file_with_weights(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT))
    state = load_file(folder_of(10, run) / "net_g.safetensors")
    torch.save({"params": state, "params_ema": {k: 2 * v for k, v in state.items()}}, tmp_path / "other.pth")
    loaded = load_options(run.given)
    found = {
        key: network_from_weights(loaded, tmp_path / "other.pth", key, CPU) for key in (None, "params", "params_ema")
    }
    bias = {key: one.network.state_dict()["body.0.bias"] for key, one in found.items()}
    assert torch.equal(bias["params"], state["body.0.bias"])
    assert torch.equal(bias["params_ema"], 2 * state["body.0.bias"])
    assert torch.equal(bias[None], bias["params_ema"])
    assert [one.is_average for one in found.values()] == [True, False, True]
    assert (found[None].name, found[None].step) == ("other", None)


def test_weights_of_another_network(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT))
    other = make_run(tmp_path / "other", options_of({**COMPACT, "num_feat": 12}))
    with pytest.raises(InputError) as caught:
        network_from_weights(load_options(run.given), folder_of(10, other) / "net_g.safetensors", None, CPU)
    assert "Compact x2, 12 features, 1 convolution, and network_g is Compact x2, 8 features" in str(caught.value)
    assert f"{run.given}: Write `network_g: {{ type: compact, num_feat: 12, num_conv: 1 }}`" in str(caught.value)
    assert "strict_load" not in str(caught.value)
    with pytest.raises(InputError, match=r"Did you mean 'net_g.safetensors'"):
        network_from_weights(load_options(run.given), folder_of(10, run) / "netg.safetensors", None, CPU)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    takes_network(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "which network?\n"),
        (("-opt", "a.yml"), "--weights must be given with -opt"),
        (("--param_key", "params"), "--weights must be given with --param_key"),
        (("--weights", "a.pth", "--force_yml", "scale=2"), "--force_yml sets options of a file, and none is given"),
        (("run", "-opt", "a.yml"), "RUN and -opt are given"),
        (("run", "--force_yml", "scale=2"), "RUN and --force_yml are given"),
        (("run", "--param_key", "params"), "RUN and --param_key are given"),
        (("-opt", "a.yml", "--weights", "a.pth", "--checkpoint", "5"), "--checkpoint chooses among those of a RUN"),
    ],
)
def test_arguments_that_name_no_network_or_two(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_network(parsed(*arguments))
    assert words in str(caught.value)


def test_both_ways_of_naming_a_network(tmp_path: Path) -> None:
    run = make_run(tmp_path, options_of(COMPACT), steps=(10, 20), best=10)
    assert named_network(parsed(str(run.path)), CPU).step == 10
    assert named_network(parsed(str(run.path), "--checkpoint", "latest"), CPU).step == 20
    file = folder_of(20, run) / "net_g_ema.safetensors"
    found = named_network(parsed("-opt", str(run.given), "--weights", str(file)), CPU)
    assert (found.weights_file, found.is_average, found.name) == (file, True, "net_g_ema")
    scale_3 = parsed("-opt", str(run.given), "--weights", str(file), "--force_yml", "scale=3")
    with pytest.raises(InputError, match=r"is Compact x2, .* and network_g is Compact x3"):
        named_network(scale_3, CPU)


def test_weights_alone_tell_their_network(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = ARCHS.get("rrdbnet")(scale=2, num_feat=4, num_block=2, num_grow_ch=2).eval()
    torch.save({"params_ema": numbered(network.state_dict(), 2, 2)}, tmp_path / "2x_old.pth")
    found = named_network(parsed("--weights", str(tmp_path / "2x_old.pth")), CPU)
    assert (found.name, found.scale, found.channels, found.is_average, found.step) == ("2x_old", 2, 3, True, None)
    assert found.loaded.options.network_g.type == "rrdbnet"
    assert not found.network.training
    image = torch.rand(1, 3, 6, 8)
    with torch.no_grad():
        assert torch.equal(found.network(image), network(image))


def test_what_weights_do_not_tell_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save(ARCHS.get("compact")(scale=2, num_feat=8, act_type="relu").state_dict(), tmp_path / "x.pth")
    named_network(parsed("--weights", str(tmp_path / "x.pth")), CPU)
    assert "x.pth: taken for Compact x2, 8 features, 16 convolutions; act_type may be leakyrelu" in caplog.text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"stem.weight": torch.ones(3)}, "is of a network that is not known here as one that enlarges images"),
        (
            ARCHS.get("unetdiscriminatorsn")(num_feat=4).state_dict(),
            "is U-Net discriminator, 4 features, which is not known here as one that enlarges images",
        ),
    ],
)
def test_weights_of_no_network_that_is_known(tmp_path: Path, state: dict[str, torch.Tensor], words: str) -> None:
    torch.save(state, tmp_path / "x.pth")
    with pytest.raises(InputError) as caught:
        named_network(parsed("--weights", str(tmp_path / "x.pth")), CPU)
    assert words in str(caught.value)
    assert "-opt" in str(caught.value)


def test_what_export_says_of_a_network_is_believed_where_it_fits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path, options_of({"type": "esrgan", "num_feat": 4, "num_block": 1}, 3))
    assert main(["export", str(run.path), str(tmp_path / "x3.safetensors")]) == 0
    found = named_network(parsed("--weights", str(tmp_path / "x3.safetensors")), CPU)
    assert (found.scale, found.is_average, caplog.text) == (3, True, "")
    state = load_file(tmp_path / "x3.safetensors")
    lies = {"architecture": "rrdbnet", "arguments": '{"num_feat": 5, "num_block": 1}', "scale": "3"}
    save_file(state, tmp_path / "lies.safetensors", lies)
    assert named_network(parsed("--weights", str(tmp_path / "lies.safetensors")), CPU).scale == 2
    assert "scale 3 has the same names and shapes" in caplog.text


def test_weights_that_say_to_be_of_another_scale(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    arguments = {"type": "esrgan", "num_feat": 4, "num_block": 1, "use_pixel_unshuffle": False}
    run = make_run(tmp_path, options_of(arguments, 3))
    file = tmp_path / "x3.safetensors"
    assert main(["export", str(run.path), str(file)]) == 0
    given = tmp_path / "run.yml"
    given.write_text(yaml.safe_dump(options_of(arguments, 2, path={"pretrain_network_g": str(file)})))
    build_network(load_options(given))
    assert "x3.safetensors says that its scale is 3, and this run's is 2" in caplog.text
