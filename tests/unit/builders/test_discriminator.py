"""Building a discriminator: the weights it starts from, and what models without one do with its options."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.commands import gan_options, tiny_options, write_options
from trainauto.builders.image_model import build_model, build_network
from trainauto.core.errors import InputError
from trainauto.models.base_model import BaseModel
from trainauto.models.weights import save_weights
from trainauto.optim.precision import Precision
from trainauto.options.load import load_options
from trainauto.tasks.sr.archs import DUnet, UNetDiscriminatorSN
from trainauto.tasks.sr.models import MODELS, ESRGANModel, SRGANModel, SRModel

CPU = Precision(torch.device("cpu"))
Build = Callable[..., BaseModel]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build the model of an option file from changes of the small one; nothing of its data is looked at."""

    def built(pretrained: bool = True, **changes: Any) -> BaseModel:
        file = write_options(tmp_path / "run.yml", tiny_options(tmp_path, **changes))
        loaded = load_options(file)
        return build_model(loaded, build_network(loaded), CPU, pretrained=pretrained)

    return built


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Weights of a discriminator of 4 features, as a checkpoint holds them."""
    torch.manual_seed(99)
    save_weights(UNetDiscriminatorSN(num_feat=4), tmp_path / "net_d.safetensors")
    return tmp_path / "net_d.safetensors"


def first_weights(model: BaseModel) -> torch.Tensor:
    return model.networks["net_d"].state_dict()["conv1.weight_orig"]


def test_it_starts_from_the_weights_that_are_named(build: Build, weights: Path) -> None:
    wanted = UNetDiscriminatorSN(num_feat=4)
    options = gan_options(path={"pretrain_network_d": str(weights)})
    model = build(**options)
    assert isinstance(model, SRGANModel)
    assert not torch.equal(first_weights(model), wanted.conv1.weight_orig)
    torch.manual_seed(99)
    assert torch.equal(first_weights(model), UNetDiscriminatorSN(num_feat=4).conv1.weight_orig)
    # A checkpoint's will replace them.
    assert not torch.equal(first_weights(build(pretrained=False, **options)), first_weights(model))


def test_a_key_inside_a_pth_is_taken(build: Build, tmp_path: Path) -> None:
    state = UNetDiscriminatorSN(num_feat=4).state_dict()
    torch.save({"params": {}, "judge": state}, tmp_path / "net_d.pth")
    model = build(**gan_options(path={"pretrain_network_d": str(tmp_path / "net_d.pth"), "param_key_d": "judge"}))
    assert torch.equal(first_weights(model), state["conv1.weight_orig"])


def test_weights_of_another_one_are_refused_or_loaded_as_far_as_they_fit(
    build: Build, weights: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = {"type": "unetdiscriminatorsn", "num_feat": 4, "num_in_ch": 3, "skip_connection": False}
    assert isinstance(build(**gan_options(network_d=other, path={"pretrain_network_d": str(weights)})), SRGANModel)
    other["num_feat"] = 6
    with pytest.raises(
        InputError, match=r"network_d: { type: unetdiscriminatorsn, num_feat: 4 }`. Or set `path: strict_load_d: false`"
    ):
        build(**gan_options(network_d=other, path={"pretrain_network_d": str(weights)}))
    with caplog.at_level(logging.WARNING):
        build(**gan_options(network_d=other, path={"pretrain_network_d": str(weights), "strict_load_d": False}))
    assert "left out: " in caplog.text


def test_each_optimizer_has_its_own_arguments(build: Build) -> None:
    model = build(**gan_options(train={"optim_d": {"type": "SGD", "lr": 0.5}}))
    kinds = {name: (type(one).__name__, one.param_groups[0]["lr"]) for name, one in model.optimizers.items()}
    assert kinds == {"g": ("Adam", 1e-3), "d": ("SGD", 0.5)}


def test_null_is_as_good_as_nothing(build: Build) -> None:
    model = build(network_d=None, train={"optim_d": None}, path={"pretrain_network_d": None})
    assert type(model) is SRModel


def test_a_model_of_ones_own_has_a_discriminator_if_it_takes_one(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(SRGANModel):
        pass

    monkeypatch.setitem(MODELS._entries, "mine", Mine)
    assert isinstance(build(**gan_options(model_type="Mine")), Mine)
    with pytest.raises(InputError, match="model_type Mine needs network_d"):
        build(**gan_options(model_type="Mine", network_d=None))


def test_weights_whose_spectral_norm_is_named_otherwise_are_taken(build: Build, tmp_path: Path) -> None:
    other = DUnet(num_feat=4)
    names = {"weight_orig": "original", "weight_u": "0._u", "weight_v": "0._v"}

    def theirs(name: str) -> str:
        beginning, _, last = name.rpartition(".")
        return f"{beginning}.parametrizations.weight.{names[last]}" if last in names else name

    torch.save({theirs(name): value for name, value in other.state_dict().items()}, tmp_path / "net_d.pth")
    network_d = {"type": "dunet", "num_feat": 4}
    model = build(**gan_options(network_d=network_d, path={"pretrain_network_d": str(tmp_path / "net_d.pth")}))
    assert all(
        torch.equal(value, other.state_dict()[key]) for key, value in model.networks["net_d"].state_dict().items()
    )


@pytest.mark.parametrize("name", ["net_d_iters", "net_d_init_iters"])
def test_how_often_the_generator_steps_reaches_a_model_that_has_a_discriminator(
    build: Build, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(**gan_options(model_type="ESRGANModel", train={name: 3}))
    assert isinstance(model, ESRGANModel)
    assert [len(model.objectives_at(step)) for step in range(1, 7)] == (
        [1, 1, 2, 1, 1, 2] if name == "net_d_iters" else [1, 1, 1, 2, 2, 2]
    )
    with pytest.raises(InputError, match=f"train.{name} is about a discriminator, and model_type SRModel has none"):
        build(train={name: 3})

    class Plain(SRGANModel):
        def __init__(self, *given: Any, network_d: Any, make_optimizer_d: Any, **more: Any) -> None:
            super().__init__(*given, network_d=network_d, make_optimizer_d=make_optimizer_d, **more)

    monkeypatch.setitem(MODELS._entries, "plain", Plain)
    with pytest.raises(InputError, match=f"Plain knows no {name}"):
        build(**gan_options(model_type="Plain", train={name: 3}))
