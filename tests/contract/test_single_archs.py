"""What only some networks can get wrong."""

import pytest
import torch
from torch import nn

from tests.contract.small_archs import build, picture
from trainauto.tasks.sr.archs import ARCHS, SPAN, SwinIR
from trainauto.tasks.sr.archs.padding import pad_to_multiple
from trainauto.tasks.sr.archs.span_arch import Conv3XC


@pytest.mark.parametrize("act_type", ["relu", "leakyrelu"])
def test_compact_has_other_activations(act_type: str):
    assert build("compact", act_type=act_type)(picture()).shape == (2, 3, 16, 24)


def test_compact_begins_from_the_enlarged_input():
    network = build("compact", scale=2)
    nn.init.zeros_(network.body[-1].weight)
    nn.init.zeros_(network.body[-1].bias)
    image = picture()
    assert torch.equal(network(image), image.repeat_interleave(2, 2).repeat_interleave(2, 3))


@pytest.mark.parametrize(("scale", "convolutions"), [(1, 0), (2, 1), (4, 2)])
def test_rrdbnet_can_do_without_folding_pixels(scale: int, convolutions: int):
    network = build("rrdbnet", scale=scale, use_pixel_unshuffle=False)
    assert network(picture(1, 3, 5, 7)).shape == (1, 3, 5 * scale, 7 * scale)
    assert network.conv_first.in_channels == 3
    assert len([name for name, _ in network.named_children() if name.startswith("conv_up")]) == convolutions


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("ultracompact", 325_488), ("superultracompact", 52_968), ("esrgan_lite", 5_021_155)],
)
def test_presets_have_traiNNers_sizes(name: str, parameters: int):
    with torch.device("meta"):
        network = ARCHS.get(name)(scale=4)
    assert sum(value.numel() for value in network.parameters()) == parameters


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


def test_rtmosr_evaluates_and_saves_the_merged_convolutions_of_its_present_weights():
    network, image = build("rtmosr"), picture(1, 8, 8, 8)
    one_step(network)
    saved = network.state_dict()
    for name, merged, groups in (("body.0.fc1", "conv_3x3_rep", 1), ("body.0.conv.1", "conv5x5_reparam", 32)):
        module = network.get_submodule(name)
        features = image.repeat(1, 4, 1, 1) if groups > 1 else image
        weight, bias = (saved[f"{name}.{merged}.{key}"] for key in ("weight", "bias"))
        convolved = torch.nn.functional.conv2d(features, weight, bias, padding=weight.shape[-1] // 2, groups=groups)
        torch.testing.assert_close(module.train()(features), convolved, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(module.eval()(features), convolved, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "scale"),
    [
        ({"use_dysample": False}, 2),
        ({"use_dysample": False, "authors_head": True}, 4),
        ({"use_dysample": False, "realsr": False}, 3),
        ({"use_dysample": False, "realsr": False, "use_ln": True}, 1),
        ({"use_dysample": False, "realsr": False, "is_fp": True}, 3),
    ],
)
def test_esc_has_variants_and_heads(arguments: dict[str, bool], scale: int):
    network = build("esc", scale=scale, **arguments)
    output = network(picture(1, 3, 9, 13))
    assert output.shape == (1, 3, 9 * scale, 13 * scale)
    output.sum().backward()
    assert all(value.grad is not None for value in network.parameters())


@pytest.mark.parametrize("flash", [True, False])
def test_gaterv3_attends_to_pixels_or_channels_and_refuses_files_of_the_other(flash: bool):
    network, other = (build("gaterv3_r", attention=True, flash=which) for which in (flash, not flash))
    network(picture(1)).sum().backward()
    assert all(value.grad is not None for value in network.parameters())
    with pytest.raises(RuntimeError, match=f"the file was trained with `flash: {str(flash).lower()}`"):
        other.load_state_dict(network.state_dict())


def test_gaterv3_loads_files_without_gamma_and_hastens_it():
    network = build("gaterv3_r", end_gamma_init=0.5)
    state = network.state_dict()
    del state["gamma"]
    network.load_state_dict(state)
    image = picture(1)
    enlarged = network(image)
    enlarged.sum().backward()
    expected = 10 * image.sum((2, 3), keepdim=True) * 4  # each pixel stands 2 x 2 times
    torch.testing.assert_close(network.gamma.grad, expected)


def test_flexnet_evaluates_what_it_trained_and_saves_merged_convolutions():
    network = build("flexnet", upsampler="nearest+conv", channel_norm=True)
    one_step(network)
    with torch.no_grad():
        torch.testing.assert_close(network.eval()(picture()), network.train()(picture()), rtol=1e-4, atol=1e-4)
    name, features = "pipeline.att.0.t_blocks.0.ffn.omni_shift", picture(1, 4, 8, 8)
    weight = network.state_dict()[f"{name}.conv5x5_reparam.weight"]
    convolved = torch.nn.functional.conv2d(features, weight, padding=2, groups=4)
    torch.testing.assert_close(network.get_submodule(name)(features), convolved, rtol=1e-4, atol=1e-5)


def test_flexnet_keeps_its_own_scale_and_refuses_files_of_another_window():
    network = build("flexnet", upsampler="nearest+conv")
    state = build("flexnet", upsampler="nearest+conv", scale=3).state_dict()
    network.load_state_dict(state)
    assert (state["scale_factor"], network.state_dict()["scale_factor"]) == (3, 2)
    state["window_size"] = torch.tensor(16, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="window_size: the file was trained with windows of 16, not 8"):
        network.load_state_dict(state)


def test_flexnet_takes_odd_channels_in_a_line():
    assert build("flexnet", dim=3)(picture()).shape == (2, 3, 16, 24)


@pytest.mark.parametrize("name", ["span", "rtmosr", "flexnet"])
def test_saving_merged_convolutions_keeps_nothing_for_a_backward_pass(name: str):
    kept: list[torch.Tensor] = []
    network = build(name)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        network.state_dict()
    assert not kept


def test_gradient_checkpointing_of_gaterv3_has_every_block():
    network = build("gaterv3_r", num_latent=3)
    blocks = network.checkpoint_blocks
    assert blocks[-3:] == tuple(network.latent)
    assert len(blocks) == 3 + 3 + 4  # of SPAN, latent, and a gated pair of two levels up and down
    contained = {module for block in blocks for module in block.modules()}
    assert sum(len(list(block.modules())) for block in blocks) == len(contained)


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
