"""What each network of the library must do, small."""

import copy
import pickle

import pytest
import torch
from torch import nn

from tests.acceptance import only_in_acceptance
from tests.small_library_networks import SMALL_LIBRARY, scale_of
from trainauto.archs import ARCHS
from trainauto.core.plan import SizeRequirements
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.tasks.sr.spandrel_archs import all_architectures

BATCH_NORMS = {"dat", "dctlsa"}
UNREAD = {"fdat_medium"}


SLOW = {"grl_b"}
"""Its windows are those that were published: the smallest crop is 64 px, and takes half a second."""


@pytest.fixture(params=[pytest.param(n, marks=only_in_acceptance if n in SLOW else ()) for n in sorted(SMALL_LIBRARY)])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def build(name: str, seed: int = 7, **arguments: object) -> nn.Module:
    torch.manual_seed(seed)
    return ARCHS.get(name)(**{"scale": scale_of(name), **SMALL_LIBRARY[name], **arguments})


def picture(samples: int, height: int, width: int) -> torch.Tensor:
    return torch.rand(samples, 3, height, width, generator=torch.Generator().manual_seed(11))


def crop_of(network: nn.Module, samples: int = 2) -> torch.Tensor:
    side = network.size_requirements.minimum
    return picture(samples, max(side, 8), max(side, 8))


def test_images_of_any_size_are_enlarged_and_left_as_they_were(name: str):
    network = build(name).eval()
    assert (network.scale, network.num_in_ch) == (scale_of(name), 3)
    for height, width in [(1, 1), (17, 9), (5, 33)]:
        image = picture(1, height, width)
        with torch.no_grad():
            output = network(image)
        assert output.shape == (1, 3, height * network.scale, width * network.scale)
        assert output.isfinite().all()
        assert torch.equal(image, picture(1, height, width))


def test_crops_of_the_sides_it_asks_for_reach_the_library_as_they_are(name: str):
    network = build(name).eval()
    needs, accepted = network.size_requirements, network.accepted_sides
    assert isinstance(needs, SizeRequirements)
    assert needs.minimum % needs.multiple == 0
    assert needs.minimum >= accepted.minimum
    assert needs.multiple % accepted.multiple == 0
    image = crop_of(network)
    with torch.no_grad():
        assert torch.equal(network(image), type(network).__mro__[2].forward(network, image.clone()))


def test_spandrel_reads_its_weights_as_the_same_network(name: str):
    network = build(name).eval()
    described = all_architectures().load({key: value.clone() for key, value in network.state_dict().items()})
    table = ARCHS.get(name).library_network
    assert described.architecture.id == table.architecture
    assert type(described.model) is type(network).__mro__[2]
    assert (described.scale, described.input_channels) == (network.scale, network.num_in_ch)
    asked, needs = described.size_requirements, network.size_requirements
    assert needs.minimum >= asked.minimum or name == "drct"  # 16 there, the window of the published ones
    assert needs.multiple % asked.multiple_of == 0 or name == "drct"
    assert not asked.square
    image = crop_of(network, samples=1)
    with torch.no_grad():
        assert torch.equal(described.model.eval()(image), network(image))
    recognised = table.from_library(described.model.hyperparameters)
    given = {"scale": scale_of(name), **SMALL_LIBRARY[name]}
    assert {key: recognised[key] for key in given if key != "img_size"} == {
        key: value for key, value in given.items() if key != "img_size"
    }


def test_samples_do_not_touch_each_other_in_evaluation(name: str):
    network = build(name).eval()
    image = crop_of(network, samples=3)
    with torch.no_grad():
        alone = torch.cat([network(sample[None]) for sample in image])
        torch.testing.assert_close(network(image), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated")  # OmniSR's and NAFNet's own layer norm
def test_gradient_reaches_the_weights(name: str):
    network = build(name).train()
    network(crop_of(network)).square().mean().backward()
    trained = {key for key, value in network.named_parameters() if value.requires_grad}
    assert {key for key, value in network.named_parameters() if value.grad is not None} == trained
    assert bool({*dict(network.named_parameters())} - trained) == (name in UNREAD)
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules()) == (name in BATCH_NORMS)


@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated")
def test_mixed_precision_and_channels_last(name: str):
    network = build(
        name, **{key: 0.0 for key in ("drop_path_rate",) if key in ARCHS.get(name).library_network.defaults}
    )
    image = crop_of(network)
    plain = network.eval()(image)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = network.train()(image) if name not in BATCH_NORMS else network(image)
    assert (mixed.float() - plain).abs().max() < 0.05 * plain.abs().max()
    mixed.float().square().mean().backward()
    assert all(value.grad.isfinite().all() for value in network.parameters() if value.requires_grad)
    network = network.eval().to(memory_format=torch.channels_last)
    last = network(image.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
def test_copies_are_equal_and_separate(name: str, duplicate):
    network = build(name).eval()
    image = crop_of(network, samples=1)
    with torch.no_grad():
        before = network(image)
        other = duplicate(network)
        assert type(other) is type(network)
        assert torch.equal(other(image), before)
        next(other.parameters()).add_(1)
        assert torch.equal(network(image), before)


def test_initialisation_follows_the_seed(name: str):
    first, second, other = (build(name, seed).state_dict() for seed in (7, 7, 8))
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    assert any(not torch.equal(value, other[key]) for key, value in first.items())


def test_a_network_that_writes_into_its_input_is_given_a_copy():
    network = build("rcan", norm=True).eval()
    image = picture(1, 8, 8)
    with torch.no_grad():
        network(image)
        assert torch.equal(image, picture(1, 8, 8))
        type(network).__mro__[2].forward(network, image)
    assert not torch.equal(image, picture(1, 8, 8))


def test_experts_are_chosen_for_each_sample_in_both_modes_alike():
    network = build("seemore_t", num_experts=4)
    image = crop_of(network, samples=4)
    with torch.no_grad():
        assert torch.equal(network.eval()(image), network.train()(image))
    assert not network.eval().training


@pytest.mark.parametrize("name", sorted(BATCH_NORMS))
def test_one_sample_is_trained_too_where_there_is_batch_norm(name: str):
    network = build(name).train()
    kept = {key: value.clone() for key, value in network.state_dict().items()}
    network(crop_of(network, samples=1)).square().mean().backward()
    assert all(value.grad.isfinite().all() for value in network.parameters())
    pooled = [key for key in kept if key.endswith("channel_interaction.2.running_mean")]
    assert bool(pooled) == (name == "dat")
    assert all(torch.equal(network.state_dict()[key], kept[key]) for key in pooled)
    network(crop_of(network, samples=2))
    assert all(not torch.equal(network.state_dict()[key], kept[key]) for key in pooled)


BAD = [
    ("omnisr", {"scale": 0}, "scale must be a whole number of at least 1, got 0"),
    ("dat", {"scale": 5}, "scale 5 is none that DAT does: 1, 2, 3, 4, 8"),
    ("nafnet64", {"scale": 2}, "scale 2 is none that NAFNet does: 1"),
    ("dat", {"upsampler": "bicubic"}, "upsampler must be one of 'pixelshuffle', 'pixelshuffledirect', got 'bicubic'"),
    ("dctlsa", {"num_modules": 4}, "num_modules must be one of 6, got 4"),
    ("hat_m", {"num_heads": []}, "HAT refuses these arguments: IndexError list index out of range"),
    ("realcugan", {"scale": 3, "fast": True}, "fast is for scale 2 alone"),
    ("realcugan", {"scale": 2, "fast": True, "pro": True}, "pro is not for a fast one"),
    ("grl_b", {"upsampler": ""}, "upsampler must be one of"),
    ("omnisr", {"num_in_ch": 0}, "num_in_ch must be a whole number"),
    ("omnisr", {"window_size": 0}, "window_size must be a whole number of at least 1, got 0"),
    ("ditn_real", {"patch_size": 0}, "patch_size must be a whole number of at least 1, got 0"),
    ("grl_b", {"stripe_size": [0, 8]}, "stripe_size must be a whole number of at least 1, got 0"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), BAD)
def test_bad_arguments_are_refused_in_words(name: str, arguments: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        build(name, **arguments)


def test_an_argument_it_does_not_have_is_refused():
    with pytest.raises(TypeError, match="upscale"):
        ARCHS.get("dat")(upscale=2)


def test_out_of_memory_while_it_is_built_stays_that(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(RuntimeError) as caught:
        build("rcan", n_feats=2_000_000)
    assert is_out_of_memory(caught.value)
