"""What every registered network must do, and what only some of them can get wrong."""

import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs import ARCHS, SPAN, SwinIR, is_discriminator
from trainauto.tasks.sr.archs.padding import pad_to_multiple
from trainauto.tasks.sr.archs.span_arch import Conv3XC

SMALL = {
    "compact": {"num_feat": 8, "num_conv": 2},
    "rrdbnet": {"num_feat": 8, "num_block": 1, "num_grow_ch": 4},
    "span": {"feature_channels": 6},
    "swinir": {
        "embed_dim": 12,
        "depths": [2, 1],
        "num_heads": [2, 3],
        "window_size": 4,
        "img_size": 8,
        "drop_path_rate": 0.0,
    },
    "swinir_light": {
        "embed_dim": 12,
        "depths": [2],
        "num_heads": [2],
        "window_size": 4,
        "img_size": 8,
        "drop_path_rate": 0.0,
    },
}
"""Arguments that make each network small; every registered network that enlarges has an entry."""
SCALES = [(name, scale) for name in SMALL for scale in (1, 2, 4)] + [
    ("compact", 3),
    ("rrdbnet", 8),
    ("span", 3),
    ("swinir", 3),
    ("swinir", 8),
    ("swinir_light", 3),
]


def build(name: str, seed: int = 7, **arguments: object) -> nn.Module:
    torch.manual_seed(seed)
    return ARCHS.get(name)(**{**SMALL[name], "scale": 2, **arguments})


def picture(n: int = 2, channels: int = 3, height: int = 8, width: int = 12) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(11))


@pytest.fixture(params=sorted(SMALL))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_every_registered_network_is_tested():
    ours = {name for name in ARCHS if ARCHS.get(name).__module__.startswith("trainauto.")}
    assert {name for name in ours if not is_discriminator(ARCHS.get(name))} == set(SMALL)


@pytest.mark.parametrize("alias", ["SRVGGNetCompact", "RRDBNet", "ESRGAN", "SPAN", "SwinIR"])
def test_names_that_traiNNer_and_BasicSR_users_know(alias: str):
    assert alias in ARCHS


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_output_is_scaled(name: str, scale: int):
    network = build(name, scale=scale).eval()
    with torch.no_grad():
        for height, width in [(8, 8), (5, 11), (1, 1), (1, 9)]:
            assert network(picture(1, 3, height, width)).shape == (1, 3, height * scale, width * scale)


def test_grey(name: str):
    assert build(name, num_in_ch=1, num_out_ch=1)(picture(channels=1)).shape == (2, 1, 16, 24)


def test_attributes(name: str):
    for scale, channels in [(2, 3), (4, 1)]:
        network = build(name, scale=scale, num_in_ch=channels, num_out_ch=channels)
        assert network.scale == scale
        assert network.num_in_ch == channels
        assert isinstance(network.size_requirements, SizeRequirements)


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_size_requirements_hold_and_other_sizes_work_too(name: str, scale: int):
    network = build(name, scale=scale)
    needs = network.size_requirements
    assert needs.minimum % needs.multiple == 0
    for side in {needs.minimum, needs.minimum + needs.multiple, max(1, needs.minimum - 1), needs.minimum + 1}:
        output = network(picture(1, 3, side, side))
        assert output.shape == (1, 3, side * scale, side * scale)
        assert output.isfinite().all()


def test_gradient_reaches_every_parameter(name: str):
    network = build(name)
    output = network(picture())
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    without = [key for key, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert without == []
    assert all(value.requires_grad for value in network.parameters())


def test_initialisation_follows_the_seed(name: str):
    first, second = build(name).state_dict(), build(name).state_dict()
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    other = build(name, seed=8).state_dict()
    assert any(not torch.equal(value, other[key]) for key, value in first.items())


def test_evaluation_repeats_itself_and_leaves_the_network_as_it_was(name: str):
    network = build(name).eval()
    before = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        first, second = network(picture()), network(picture())
    assert torch.equal(first, second)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_samples_do_not_touch_each_other(name: str, training: bool):
    network, image = build(name).train(training), picture()
    with torch.no_grad():
        alone = torch.cat([network(sample[None]) for sample in image])
        torch.testing.assert_close(network(image), alone, rtol=1e-4, atol=1e-5)


def test_input_is_left_as_it_was(name: str):
    image = picture()
    build(name)(image)
    assert torch.equal(image, picture())


def test_state_dict_round_trip(name: str):
    network, other = build(name).eval(), build(name, seed=8).eval()
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert torch.equal(other(picture()), network(picture()))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network))])
def test_copies_are_equal_and_separate(name: str, duplicate):
    network = build(name).eval()
    with torch.no_grad():
        network(picture())
        other = duplicate(network)
        before = network(picture())
        assert torch.equal(other(picture()), before)
        for value in other.parameters():
            value.add_(0.05)
        assert not torch.equal(other(picture()), before)
        assert torch.equal(network(picture()), before)


@pytest.mark.parametrize("training", [True, False])
def test_bfloat16_autocast(name: str, training: bool):
    network = build(name).train(training)
    plain = network(picture())
    with torch.autocast("cpu", torch.bfloat16):
        output = network(picture())
    assert (output.float() - plain).abs().max() < 0.05 * plain.abs().max()
    output.float().square().mean().backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in network.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_half_precision(name: str, dtype: torch.dtype):
    network = build(name).eval()
    with torch.no_grad():
        plain = network(picture(1))
        output = network.to(dtype)(picture(1).to(dtype))
    assert output.dtype == dtype
    assert (output.float() - plain).abs().max() < 0.05 * plain.abs().max()


def test_channels_last(name: str):
    network, image = build(name), picture()
    plain = network(image)
    network = network.to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        network(image.contiguous(memory_format=torch.channels_last)), plain, rtol=1e-4, atol=1e-5
    )


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    ("name", "training"),
    [("compact", True), ("rrdbnet", True), ("span", True), ("span", False), ("swinir_light", True)],
)
def test_compiles_to_one_graph_for_any_size(name: str, training: bool):
    network = build(name).train(training)
    compiled = torch.compile(network, dynamic=True, backend="eager", fullgraph=True)
    for height, width in [(8, 12), (7, 10)]:
        image = picture(2, 3, height, width)
        torch.testing.assert_close(compiled(image), network(image), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_runs_on_fake_tensors(name: str, training: bool):
    with FakeTensorMode():
        network = ARCHS.get(name)(**SMALL[name]).train(training)
        for height, width in [(8, 12), (7, 10)]:
            output = network(torch.empty(2, 3, height, width))
            assert output.shape == (2, 3, 4 * height, 4 * width)
            output.sum().backward()
    assert all(value.grad is not None for value in network.parameters())


def test_runs_on_the_meta_device(name: str):
    with torch.device("meta"):
        network = ARCHS.get(name)(**SMALL[name])
    for training in (True, False):
        assert network.train(training)(torch.empty(1, 3, 7, 10, device="meta")).shape == (1, 3, 28, 40)


def test_trains_after_an_evaluation_in_inference_mode(name: str):
    network = build(name).eval()
    with torch.inference_mode():
        network(picture())
    network.train()(picture()).sum().backward()


BAD = [
    ("compact", {"scale": 0}, "scale must be a whole number of at least 1, got 0"),
    ("compact", {"num_feat": 8.0}, "num_feat must be a whole number"),
    ("compact", {"act_type": "gelu"}, "act_type must be one of 'prelu', 'relu', 'leakyrelu', got 'gelu'"),
    ("compact", {"num_out_ch": 1}, "num_in_ch must be 1 or equal num_out_ch"),
    ("rrdbnet", {"scale": 3}, "scale must be one of 1, 2, 4, 8, got 3"),
    ("rrdbnet", {"num_block": 0}, "num_block must be"),
    ("span", {"scale": True}, "scale must be a whole number"),
    ("span", {"feature_channels": 0}, "feature_channels must be"),
    ("span", {"img_range": 0}, "img_range must be above 0"),
    ("swinir", {"embed_dim": 14, "num_heads": [3, 2]}, r"num_heads must divide embed_dim \(14\): 1, 2, 7, 14 do, 3"),
    ("swinir", {"num_heads": [2]}, "one entry for each group of blocks, got 2 and 1"),
    ("swinir", {"depths": 6}, "depths must list one whole number for each group"),
    ("swinir", {"depths": [2, 0]}, r"depths\[1\] must be a whole number"),
    ("swinir", {"img_size": 10}, "img_size must be a multiple of window_size"),
    ("swinir", {"img_size": 4}, "larger than it, such as 32"),
    ("swinir", {"scale": 5}, "does scales 1, 2, 3, 4, 8, 16, not 5; scale 5 is done by 'pixelshuffledirect'"),
    ("swinir", {"upsampler": "bicubic"}, "upsampler must be one of"),
    ("swinir", {"upsampler": "", "scale": 1, "num_out_ch": 1}, "without an upsampler"),
    ("swinir", {"resi_connection": "2conv"}, "resi_connection must be one of '1conv', '3conv'"),
    ("swinir", {"drop_path_rate": 1.0}, r"must be in \[0, 1\)"),
    ("swinir", {"mlp_ratio": 0}, "mlp_ratio must be above 0"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), BAD)
def test_bad_arguments_are_refused_in_words(name: str, arguments: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        build(name, **arguments)


@pytest.mark.parametrize("act_type", ["relu", "leakyrelu"])
def test_compact_has_other_activations(act_type: str):
    assert build("compact", act_type=act_type)(picture()).shape == (2, 3, 16, 24)


def test_compact_begins_from_the_enlarged_input():
    network = build("compact", scale=2)
    nn.init.zeros_(network.body[-1].weight)
    nn.init.zeros_(network.body[-1].bias)
    image = picture()
    assert torch.equal(network(image), image.repeat_interleave(2, 2).repeat_interleave(2, 3))


def one_step(network: nn.Module) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    network.train()(picture()).square().mean().backward()
    optimizer.step()


def test_span_evaluates_what_it_trained():
    network = build("span")
    outputs = []
    for _ in range(3):
        with torch.no_grad():
            trained, evaluated = network.train()(picture()), network.eval()(picture())
        torch.testing.assert_close(evaluated, trained, rtol=1e-4, atol=1e-4)
        outputs.append(evaluated)
        one_step(network)
    assert not torch.allclose(outputs[0], outputs[1])
    assert not torch.allclose(outputs[1], outputs[2])


def test_span_saves_the_merged_convolutions_of_its_present_weights():
    network = build("span")
    network.eval()(picture())
    one_step(network)
    saved = network.state_dict()
    names = [name for name, module in network.named_modules() if isinstance(module, Conv3XC)]
    assert len(names) == 20
    image = picture(1, 6, 7, 7)
    for name in names[1:]:
        conv = nn.Conv2d(6, 6, 3, padding=1)
        conv.load_state_dict({key: saved[f"{name}.eval_conv.{key}"] for key in ("weight", "bias")})
        torch.testing.assert_close(conv(image), network.get_submodule(name).train()(image), rtol=1e-4, atol=1e-5)


def test_span_ignores_stale_merged_weights_in_a_file():
    network, other = build("span").eval(), build("span").eval()
    saved = {key: value + 1 if "eval_conv" in key else value for key, value in network.state_dict().items()}
    other.load_state_dict(saved)
    with torch.no_grad():
        assert torch.equal(other(picture()), network(picture()))


def test_span_merges_in_float32_under_autocast():
    conv = Conv3XC(4, 6).eval()
    weight, bias = conv.merged()
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = conv.merged()
    assert torch.equal(under_autocast[0], weight)
    assert torch.equal(under_autocast[1], bias)


def test_span_passes_gradients_in_evaluation_mode():
    trained, evaluated = build("span").train(), build("span").eval()
    for network in (trained, evaluated):
        network(picture()).square().mean().backward()
    for (key, value), other in zip(trained.named_parameters(), evaluated.parameters(), strict=True):
        torch.testing.assert_close(
            value.grad, other.grad, rtol=1e-3, atol=1e-3 * value.grad.abs().max().item(), msg=key
        )


def test_span_without_norm_is_marked_in_its_state_dict():
    assert "no_norm" in build("span", norm=False).state_dict()
    assert "no_norm" not in build("span").state_dict()
    plain, scaled = build("span", norm=False).eval(), build("span", img_range=1.0).eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(picture() - scaled.mean), scaled(picture()))


def test_span_counts_only_what_it_trains():
    network = SPAN()
    merged = sum(value.numel() for key, value in network.named_buffers() if "eval_conv" in key)
    assert sum(value.numel() for value in network.parameters()) == 2_236_728 - merged


@pytest.mark.parametrize("upsampler", ["pixelshuffle", "pixelshuffledirect", "nearest+conv", ""])
@pytest.mark.parametrize("resi_connection", ["1conv", "3conv"])
def test_swinir_heads(upsampler: str, resi_connection: str):
    scale = 1 if upsampler == "" else 2
    network = build("swinir", scale=scale, upsampler=upsampler, resi_connection=resi_connection)
    output = network(picture())
    assert output.shape == (2, 3, 8 * scale, 12 * scale)
    output.sum().backward()
    assert all(value.grad is not None for value in network.parameters())


def test_swinir_pads_with_mirrored_pixels():
    network = build("swinir", scale=2).eval()
    image = picture(1, 3, 7, 10)
    wide = torch.cat([image, image.flip(3)], 3)[..., :12]
    mirrored = torch.cat([wide, wide.flip(2)], 2)[..., :8, :]
    with torch.no_grad():
        torch.testing.assert_close(network(image), network(mirrored)[..., :14, :20])


def test_padding_mirrors_as_often_as_it_takes():
    row = torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 1, 3)
    padded = pad_to_multiple(row, 8)
    assert padded.shape == (1, 1, 8, 8)
    assert padded[0, 0, 5].tolist() == [1, 2, 3, 3, 2, 1, 1, 2]
    assert pad_to_multiple(padded, 4) is padded


def test_swinir_shift_does_not_join_opposite_edges():
    network = build("swinir", scale=1, upsampler="", depths=[2], num_heads=[2]).eval()
    network.conv_after_body = nn.Identity()  # convolutions would carry a change one pixel further
    network.layers[0].conv = nn.Identity()
    network.conv_first = nn.Conv2d(3, 12, 1)
    network.conv_last = nn.Conv2d(12, 3, 1)
    image = picture(1, 3, 16, 16)
    changed = image.clone()
    changed[..., 0, 0] += 1.0
    with torch.no_grad():
        touched = (network(changed) - network(image)).abs().amax((0, 1)) > 0
    assert touched[:4, :4].all()
    assert not touched[6:, :].any()
    assert not touched[:, 6:].any()


def test_swinir_loads_weights_trained_on_crops_of_another_size():
    small, large = build("swinir").eval(), build("swinir", img_size=24).eval()
    key = "layers.0.residual_group.blocks.1.attn_mask"
    assert small.state_dict()[key].shape == (4, 16, 16)
    assert large.state_dict()[key].shape == (36, 16, 16)
    large.load_state_dict(small.state_dict())
    assert large.state_dict()[key].shape == (36, 16, 16)
    large.load_state_dict({name: value for name, value in small.state_dict().items() if name != key})
    with torch.no_grad():
        assert torch.equal(large(picture()), small(picture()))


def test_swinir_drops_paths_in_training_only():
    network = build("swinir", drop_path_rate=0.9)
    torch.manual_seed(0)
    with torch.no_grad():
        outputs = [network.train()(picture()) for _ in range(4)]
        assert any(not torch.equal(outputs[0], other) for other in outputs[1:])
        assert torch.equal(network.eval()(picture()), network(picture()))


@pytest.mark.parametrize(
    ("name", "scale", "parameters"),
    [("swinir_light", 2, 910_152), ("swinir_light", 4, 929_628), ("swinir", 4, 11_900_199)],
)
def test_swinir_has_the_published_sizes(name: str, scale: int, parameters: int):
    with torch.device("meta"):
        network = ARCHS.get(name)(scale=scale)
    assert isinstance(network, SwinIR)
    assert sum(value.numel() for value in network.parameters()) == parameters
