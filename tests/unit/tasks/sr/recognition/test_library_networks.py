"""Networks of spandrel's told from their weights, as far as spandrel is installed."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
import yaml

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.made_runs import options_of
from tests.small_library_networks import SMALL_LIBRARY, scale_of
from trainauto.archs import ARCHS
from trainauto.builders.image_model import build_network
from trainauto.core.errors import InputError
from trainauto.inference.load_network import network_from_weights_alone
from trainauto.options.load import load_options
from trainauto.tasks.sr.recognition import recognise
from trainauto.tasks.sr.spandrel_archs import LIBRARY_NETWORKS, all_architectures
from trainauto.tasks.sr.spandrel_archs.library import library_module

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("spandrel") is None, reason="spandrel is not installed"),
    pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning"),
]

PRESETS = [name for network in LIBRARY_NETWORKS for name in network.presets]
SAMPLE = ["omnisr", "realplksr", "dat", "realcugan"]


@pytest.mark.parametrize("name", sorted(SMALL_LIBRARY) if ACCEPTANCE else SAMPLE)
def test_what_is_written_builds_a_network_with_these_weights(name: str) -> None:
    scale = scale_of(name)
    state = ARCHS.get(name)(scale=scale, **SMALL_LIBRARY[name]).state_dict()
    before = torch.get_rng_state()
    recognised = recognise(state)
    assert torch.equal(torch.get_rng_state(), before)
    assert recognised is not None
    assert recognised.scale == scale
    rebuilt = ARCHS.get(recognised.name)(scale=scale, **recognised.arguments)
    rebuilt.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated")
def test_what_fits_the_weights_and_computes_something_else_is_written() -> None:
    small = {"embed_dim": 36, "depths": [1], "num_heads_window": [2], "num_heads_stripe": [2]}
    state = ARCHS.get("grl")(scale=4, upsampler="nearest+conv", **small).state_dict()
    described = all_architectures().load(dict(state)).model.eval()
    recognised = recognise(state)
    assert recognised is not None
    assert (recognised.arguments["window_size"], recognised.arguments["stripe_size"]) == (16, [32, 64])
    rebuilt = ARCHS.get(recognised.name)(scale=4, **recognised.arguments).eval()
    rebuilt.load_state_dict(state)
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(rebuilt(image), described(image))


@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated")
def test_buffers_that_a_network_makes_itself_tell_its_windows(tmp_path: Path) -> None:
    """Files of the authors' code hold them; traiNNer-redux builds GRL with these windows."""
    small = {"embed_dim": 36, "depths": [1], "num_heads_window": [2], "num_heads_stripe": [2]}
    windows = {"window_size": 8, "stripe_size": [8, None], "stripe_groups": [None, 4]}
    network = ARCHS.get("grl")(scale=4, **small, **windows).eval()
    file = tmp_path / "grl.pth"
    torch.save({**network.state_dict(), **dict(network.named_buffers())}, file)
    rebuilt = network_from_weights_alone(file, None, torch.device("cpu")).network.eval()
    assert "table_w" not in network.state_dict()
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(rebuilt(image), network(image))


@pytest.mark.parametrize("name", ["hat_m", "drct", "omnisr"])
def test_what_export_says_beyond_the_weights_is_believed(name: str) -> None:
    said = {**SMALL_LIBRARY[name], **({} if name == "omnisr" else {"img_range": 2.0})}
    state = ARCHS.get(name)(scale=2, **said).state_dict()
    recognised = recognise(state, {"architecture": name, "arguments": json.dumps(said), "scale": "2"})
    assert recognised is not None
    assert recognised.arguments == said
    huge = {**said, "window_size": 4096}
    recognised = recognise(state, {"architecture": name, "arguments": json.dumps(huge), "scale": "2"})
    assert recognised is not None
    assert "img_range" not in recognised.arguments
    assert recognised.arguments.get("window_size") != 4096


@only_in_acceptance
@pytest.mark.parametrize("name", PRESETS)
def test_published_networks_are_recognised_by_their_names_alone(name: str) -> None:
    network = ARCHS.get(name)()
    recognised = recognise(network.state_dict())
    assert recognised is not None
    own, again = network.state_dict(), ARCHS.get(recognised.name)(scale=network.scale).state_dict()
    assert recognised.arguments == {}, (recognised.name, recognised.arguments)
    assert {key: value.shape for key, value in own.items()} == {key: value.shape for key, value in again.items()}


def test_a_file_of_another_network_says_what_to_write(tmp_path: Path) -> None:
    torch.save({"params": ARCHS.get("omnisr")(scale=4).state_dict()}, tmp_path / "x.pth")
    options = options_of({"type": "compact"}, 4, path={"pretrain_network_g": str(tmp_path / "x.pth")})
    (tmp_path / "run.yml").write_text(yaml.safe_dump(options))
    with pytest.raises(InputError) as caught:
        build_network(load_options(tmp_path / "run.yml"))
    assert "x.pth is OmniSR x4, 64 features, 5 blocks, and network_g is Compact x4, 64 features" in str(caught.value)
    assert "Write `network_g: { type: omnisr }`." in str(caught.value)


def test_a_network_that_is_not_offered_is_named_all_the_same() -> None:
    state = library_module("spandrel.architectures.DnCNN").DnCNN(nb=5).state_dict()
    recognised = recognise(state)
    assert recognised is not None
    assert (recognised.name, recognised.in_words()[:9]) == ("", "DnCNN x1,")


def test_a_file_of_one_that_is_not_offered_says_so(tmp_path: Path) -> None:
    state = library_module("spandrel.architectures.DnCNN").DnCNN(nb=5).state_dict()
    torch.save(state, tmp_path / "x.pth")
    options = options_of({"type": "compact"}, 2, path={"pretrain_network_g": str(tmp_path / "x.pth")})
    (tmp_path / "run.yml").write_text(yaml.safe_dump(options))
    with pytest.raises(InputError, match=r"x.pth is DnCNN x1, .*\n.*\n.*\n  No network here is such a one"):
        build_network(load_options(tmp_path / "run.yml"))
