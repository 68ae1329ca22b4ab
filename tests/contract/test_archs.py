"""What every registered network must do."""

import copy
import inspect
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.contract.small_archs import COUPLED, PRESETS, SMALL, WHOLE, build, picture, scales_of
from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.archs import ARCHS, is_discriminator

LARGE = {"hit_sng", "scunet_aaf6aa"}
"""Networks whose every pass costs a second, which the golden numbers of every run cover."""
TRIED = [name for name in WHOLE if name not in LARGE or ACCEPTANCE]
SCALES = [(name, scale) for name in TRIED for scale in scales_of(name)] + [
    ("compact", 3),
    ("rrdbnet", 3),
    ("rrdbnet", 8),
    ("span", 3),
    ("swinir", 3),
    ("swinir", 8),
    ("swinir_light", 3),
    ("edsr", 3),
    ("edsr", 8),
    ("msrresnet", 3),
    ("ecbsr", 3),
    ("spanplus", 3),
    ("man", 3),
]


IN_ACCEPTANCE = {"hit_sng", "lmlt_base", "rtmosr"}
"""Networks whose operations cost seconds on fake tensors, which others cover."""


CLOSED = {"gaterv3_r": {"sisr_end_conv.sk.weight", "sisr_end_conv.conv.0.weight"}}
"""Weights that a new network gives no gradient: blocks without biases square small numbers until they round to 0."""


@pytest.fixture(params=TRIED)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_every_registered_network_is_tested():
    named = {name: ARCHS.get(name) for name in ARCHS}
    ours = {
        name
        for name, network in named.items()
        if network.__module__.startswith("trainauto.") and not hasattr(network, "library_network")
    }
    assert {name for name in ours if not is_discriminator(ARCHS.get(name))} == {*SMALL, *PRESETS}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_a_network_of_other_arguments(preset: str):
    name, arguments = PRESETS[preset]
    own, general = inspect.signature(ARCHS.get(preset)), inspect.signature(ARCHS.get(name))
    defaults = {key: value.default for key, value in general.parameters.items()} | arguments
    assert {key: value.default for key, value in own.parameters.items()}.items() <= defaults.items()
    with torch.device("meta"):
        made = ARCHS.get(preset)(scale=2, num_in_ch=1, num_out_ch=1)
    assert isinstance(made, ARCHS.get(name))
    assert (made.scale, made.num_in_ch) == (2, 1)


@pytest.mark.parametrize("name", sorted(SMALL.keys() & PRESETS.keys()))
def test_a_preset_hands_its_arguments_on(name: str):
    base, defaults = PRESETS[name]
    preset, network = build(name), ARCHS.get(base)(**{**defaults, **SMALL[name], "scale": 2})
    assert type(preset) is type(network)
    network.load_state_dict(preset.state_dict())
    with torch.no_grad():
        assert torch.equal(preset.eval()(picture()), network.eval()(picture()))


@pytest.mark.parametrize(
    "alias", ["SRVGGNetCompact", "RRDBNet", "ESRGAN", "SPAN", "SwinIR", "EDSR", "MSRResNet", "ECBSR", "MAN"]
)
def test_names_that_traiNNer_and_BasicSR_users_know(alias: str):
    assert alias in ARCHS


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_output_is_scaled(name: str, scale: int):
    network = build(name, scale=scale).eval()
    with torch.no_grad():
        for height, width in [(8, 8), (5, 11), (1, 1), (1, 9)]:
            assert network(picture(1, 3, height, width)).shape == (1, 3, height * scale, width * scale)


def test_grey(name: str):
    network = build(name, num_in_ch=1, num_out_ch=1)
    assert network(picture(channels=1)).shape == (2, 1, 8 * network.scale, 12 * network.scale)


def test_attributes(name: str):
    for scale, channels in [(scales_of(name)[0], 3), (scales_of(name)[-1], 1)]:
        network = build(name, scale=scale, num_in_ch=channels, num_out_ch=channels)
        assert network.scale == scale
        assert network.num_in_ch == channels
        assert isinstance(network.size_requirements, SizeRequirements)


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_size_requirements_hold_and_other_sizes_work_too(name: str, scale: int):
    if scale not in scales_of(name):
        pytest.skip("it does not do that scale")
    network = build(name, scale=scale)
    needs = network.size_requirements
    assert needs.minimum % needs.multiple == 0
    sides = {needs.minimum, needs.minimum + needs.multiple, max(1, needs.minimum - 1), needs.minimum + 1}
    if name in COUPLED:
        sides -= {1}  # batch norm needs more than a single pixel
    for side in sides:
        output = network(picture(1, 3, side, side))
        assert output.shape == (1, 3, side * scale, side * scale)
        assert output.isfinite().all()


def test_gradient_reaches_every_parameter(name: str):
    network = build(name)
    with torch.no_grad():
        for value in network.parameters():
            if not value.any():  # some begin at zero, and let nothing through until they have learned
                value.fill_(0.01)
    output = network(picture())
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    without = [key for key, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert set(without) == CLOSED.get(name, set())
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
    if training and name in COUPLED:
        pytest.skip("batch norm couples the samples of a batch")
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
    """In float64: kernels of both layouts sum in another order, which float32 shows differently on each processor."""
    network, image = build(name).double(), picture().double()
    plain = network(image)
    network = network.to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        network(image.contiguous(memory_format=torch.channels_last)), plain, rtol=1e-9, atol=1e-10
    )


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    ("name", "training"),
    [
        ("compact", True),
        ("rrdbnet", True),
        ("span", True),
        ("span", False),
        ("swinir_light", True),
        *(
            pytest.param(name, training, marks=only_in_acceptance)
            for name in (
                *("cascadedgaze", "dis_balanced", "dwt", "ecbsr", "edsr", "eimn_l", "emt", "man", "msrresnet"),
                *("sebica", "spanplus", "spanplus_st"),
            )
            for training in (True, False)
        ),
    ],
)
def test_compiles_to_one_graph_for_any_size(name: str, training: bool):
    network = build(name).train(training)
    compiled = torch.compile(network, dynamic=True, backend="eager", fullgraph=True)
    for height, width in [(8, 12), (7, 10)]:
        image = picture(2, 3, height, width)
        torch.testing.assert_close(compiled(image), network(image), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_runs_on_fake_tensors(name: str, training: bool):
    if name in IN_ACCEPTANCE and not ACCEPTANCE:
        pytest.skip("it takes seconds")
    with FakeTensorMode():
        network = ARCHS.get(name)(**SMALL[name]).train(training)
        for height, width in [(8, 12), (7, 10)]:
            output = network(torch.empty(2, 3, height, width))
            assert output.shape == (2, 3, network.scale * height, network.scale * width)
            output.sum().backward()
    assert all(value.grad is not None for value in network.parameters())


def test_runs_on_the_meta_device(name: str):
    with torch.device("meta"):
        network = ARCHS.get(name)(**SMALL[name])
    for training in (True, False):
        output = network.train(training)(torch.empty(1, 3, 7, 10, device="meta"))
        assert output.shape == (1, 3, 7 * network.scale, 10 * network.scale)


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
    ("rrdbnet", {"scale": 5}, "scale must be one of 1, 2, 3, 4, 8, got 5"),
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
    ("swinir", {"img_range": float("inf")}, "img_range must be a finite number, got inf"),
    ("edsr", {"scale": 5}, "scale must be one of 1, 2, 3, 4, 8, got 5"),
    ("edsr", {"num_block": 0}, "num_block must be a whole number"),
    ("edsr", {"res_scale": 0}, "res_scale must be above 0"),
    ("msrresnet", {"scale": 8}, "scale must be one of 1, 2, 3, 4, got 8"),
    ("msrresnet", {"num_feat": "8"}, "num_feat must be a whole number"),
    ("msrresnet", {"num_in_ch": 4}, r"num_in_ch must be 1 or equal num_out_ch \(3\)"),
    ("ecbsr", {"act_type": "gelu"}, "act_type must be one of 'prelu', 'relu', 'rrelu', 'softplus', 'linear'"),
    ("ecbsr", {"num_channel": 0}, "num_channel must be a whole number"),
    ("ecbsr", {"num_out_ch": 1}, "num_in_ch must be 1 or equal num_out_ch"),
    ("spanplus", {"blocks": 4}, "blocks must list one whole number for each group of blocks, got 4"),
    ("spanplus", {"blocks": [4, 0]}, r"blocks\[1\] must be a whole number"),
    ("spanplus", {"drop_rate": 1.0}, r"drop_rate must be in \[0, 1\)"),
    ("spanplus", {"feature_channels": 6}, "must be a multiple of 4 for upsampler 'dys', got 6"),
    ("spanplus", {"upsampler": "conv"}, "'conv' does scale 1 alone; scale 2 is done by 'dys' and 'ps'"),
    ("spanplus", {"upsampler": "lp"}, "upsampler must be one of 'dys', 'ps', 'conv', got 'lp'"),
    ("man", {"n_feats": 8}, "n_feats must be a multiple of 3"),
    ("man", {"n_resgroups": 0}, "n_resgroups must be a whole number"),
    ("artcnn_r16f96", {"kernel_size": 4}, "kernel_size must be odd, got 4"),
    ("artcnn_r16f96", {"n_block": 0}, "n_block must be a whole number of at least 1"),
    ("rtmosr_l", {"scale": 3}, "unshuffle_mod goes with scales 1, 2 and from 4 on, not with 3"),
    ("rtmosr", {"ffn_expansion": 0.5}, "ffn_expansion must be at least 1"),
    ("rtmosr", {"num_in_ch": 2}, "num_in_ch must be 1 or equal num_out_ch"),
    ("mosrv2", {"dim": 7}, "dim must be at least 8, because a branch takes one channel in 8; got 7"),
    ("mosrv2", {"upsampler": "lda"}, "upsampler must be one of 'conv', 'pixelshuffledirect', "),
    ("mosrv2", {"upsampler": "conv"}, "upsampler 'conv' enlarges nothing: it goes with scale 1, not 4"),
    ("mosrv2", {"upsampler": "transpose+conv", "scale": 8}, "does scales 1, 2, 3, 4, not 8"),
    ("mosrv2", {"upsampler": "pa_up", "scale": 5}, "does scale 3 and powers of 2, not 5; 'pixelshuffledirect' does"),
    ("mosrv2", {"upsampler": "dysample", "mid_dim": 6}, "takes channels in groups of 4, got 6"),
    ("mosrv2", {"expansion_ratio": -1}, "expansion_ratio must be above 0, got -1"),
    ("lmlt_base", {"dim": 6}, "dim must be a multiple of 4, the levels that share it; got 6"),
    ("lmlt_base", {"ffn_scale": 0.1}, "ffn_scale must make one channel at least of 8, got 0.1"),
    ("lmlt_base", {"drop_rate": 1.0}, r"must be in \[0, 1\), got 1.0"),
    ("eimn_l", {"embed_dims": 12}, "embed_dims must be a multiple of 8, the shares of the kernels; got 12"),
    ("eimn_l", {"drop_path_rate": 1.0}, r"drop_path_rate must be in \[0, 1\), got 1.0"),
    ("eimn_l", {"mlp_ratios": 0.1}, "mlp_ratios must make one channel at least of 8, got 0.1"),
    ("dis_balanced", {"scale": 8}, "scale must be one of 1, 2, 3, 4, got 8"),
    ("dis_balanced", {"scale": True}, "scale must be one of 1, 2, 3, 4, got True"),
    ("dis_balanced", {"num_features": 0}, "num_features must be a whole number of at least 1"),
    ("dis_balanced", {"num_in_ch": 2}, "num_in_ch must be 1 or equal num_out_ch"),
    ("sebica", {"mini": True}, "N must be at least 8 with mini, which narrows channels to an eighth; got 6"),
    ("sebica", {"num_in_ch": 2}, "num_in_ch must be 1 or equal num_out_ch"),
    ("cascadedgaze", {"scale": 2}, "scale must be one of 1, got 2"),
    ("cascadedgaze", {"enc_blk_nums": [1]}, "must have one entry for each level, got 1, 2, 2"),
    ("cascadedgaze", {"GCE_CONVS_nums": [3, 4]}, "each entry of GCE_CONVS_nums must be one of 2, 3, got 4"),
    ("cascadedgaze", {"dec_blk_nums": [1, 0]}, r"dec_blk_nums\[1\] must be a whole number of at least 1"),
    ("scunet_aaf6aa", {"scale": 3}, "scale must be one of 1, 2, 4, 8, got 3"),
    ("scunet_aaf6aa", {"scale": 2.0}, "scale must be one of 1, 2, 4, 8, got 2.0"),
    ("scunet_aaf6aa", {"config": [2, 2]}, "config must have 7 entries, three down, one below and three up; got 2"),
    ("scunet_aaf6aa", {"dim": 12}, r"dim must be a multiple of twice head_dim \(4\), got 12"),
    ("scunet_aaf6aa", {"noise": -1.0}, "noise must be at least 0, got -1.0"),
    ("scunet_aaf6aa", {"noise": float("inf")}, "noise must be a finite number, got inf"),
    ("scunet_aaf6aa", {"noise": "x"}, "noise must be a finite number, got 'x'"),
    ("dwt", {"upsampler": "nearest+conv"}, r"upsampler must be one of 'pixelshuffle', got 'nearest\+conv'"),
    ("dwt", {"layer_kinds": [[0, -1]]}, "layer_kinds must have one list for each of the 2 groups of blocks"),
    ("dwt", {"layer_kinds": [[0], [0, 2]]}, r"layer_kinds\[0\] must have one kind for each of the 2 blocks, got 1"),
    ("dwt", {"layer_kinds": [[0, -1], [2, 2]]}, r"layer_kinds\[1\] must be 0 at every first place of two, then -1"),
    ("dwt", {"layer_kinds": [[0, -1], [0, 3]]}, "img_size must be a multiple of window_size times each kind"),
    ("dwt", {"img_size": 18}, "img_size must be a multiple of window_size"),
    ("emt", {"scale": 5}, "does scale 3 and powers of 2, not 5; 'pixelshuffledirect' does any"),
    ("emt", {"dim": 12}, r"dim must be a multiple of 5 and of num_heads \(3\) times the window sizes \(2\), got 12"),
    ("emt", {"n_GTLs": 4}, r"n_GTLs must be a whole number from 0 to n_layers \(3\), got 4"),
    ("emt", {"window_list": [[8, 4]]}, "window_list and shift_list must be as long, got 1 and 2"),
    ("emt", {"window_list": [8, 4]}, r"window_list\[0\] must list one number or more, got 8"),
    ("emt", {"shift_list": [[8, 4], [4]]}, r"shift_list\[1\] must be a height and a width, got \[4\]"),
    ("elan", {"window_sizes": [4, 8]}, "window_sizes must be 3, and c_elan a multiple of 3"),
    ("elan", {"n_share": 2}, r"n_share must be a whole number from 0 to below m_elan \(2\), got 2"),
    ("escrealm", {"pdim": 9}, r"pdim must be from 2 to dim \(8\), whose first channels it counts; got 9"),
    ("escrealm", {"num_heads": 3}, r"num_heads must divide dim \(8\), which 3 does not"),
    ("esc", {"is_fp": True}, "is_fp goes with realsr: false"),
    ("esc", {"realsr": False}, "use_dysample goes with realsr alone"),
    ("esc", {"use_dysample": False, "scale": 3}, "ESC-Real does scales that are powers of 2, not 3"),
    ("esc", {"exp_ratio": float("inf")}, "exp_ratio must be a finite number, got inf"),
    ("esc", {"exp_ratio": 0.01}, "exp_ratio must make one channel at least of 8, got 0.01"),
    ("escrealm", {"exp_ratio": 0.01}, "exp_ratio must make one channel at least of 8, got 0.01"),
    ("esc", {"authors_head": True}, "authors_head goes with realsr: true and use_dysample: false"),
    ("esc_fp", {"authors_head": True}, "authors_head goes with realsr: true and use_dysample: false"),
    ("esc", {"dim": 10}, "dim must be a multiple of 4 for use_dysample, got 10"),
    ("esc_fp", {"pdim": 3}, r"pdim must be from 4 to dim \(12\)"),
    ("esc_fp", {"num_in_ch": 2}, "num_in_ch must be 1 or equal num_out_ch"),
    ("gaterv3_r", {"dim": 6}, "dim must be even and at least 8"),
    ("gaterv3_r", {"dec_blocks": [1]}, "one entry for each level, got 2 and 1"),
    ("gaterv3_r", {"enc_blocks": [1, 0]}, r"enc_blocks\[1\] must be a whole number of at least 1"),
    ("gaterv3_r", {"attention": True, "dim": 10}, "16 heads, which must divide the channels .* 40 with dim 10"),
    ("gaterv3_r", {"upsample": "pa_up"}, "upsample must be one of"),
    ("gaterv3_r", {"upsample": "bicubic", "scale": 1}, "upsample must be one of"),
    ("gaterv3_r", {"end_gamma_init": float("nan")}, "end_gamma_init must be a finite number, got nan"),
    ("flexnet", {"num_blocks": 6}, "num_blocks must list one number or more, got 6"),
    ("flexnet", {"pipeline_type": "meta"}, "takes 4 num_blocks, one for each level, and an even dim; got 1 and 4"),
    ("flexnet", {"upsampler": "ps"}, "upsampler must be one of 'pixelshuffle', 'nearest\\+conv', 'dysample', got 'ps'"),
    ("flexnet", {"upsampler": "nearest+conv", "scale": 5}, "does scale 3 and powers of 2, not 5"),
    ("flexnet", {"upsampler": "dysample", "dim": 5}, "takes twice dim in groups of 4, got 5"),
    ("flexnet", {"upsampler": "nearest+conv", "scale": 256}, "scale must be at most 255 .* got 256"),
    ("flexnet", {"attn_drop": 1.0}, r"attn_drop must be in \[0, 1\), got 1.0"),
    ("flexnet", {"attn_drop": "x"}, "attn_drop must be a finite number, got 'x'"),
    ("flexnet", {"upsampler": "dysample", "dim": 3}, "takes twice dim in groups of 4, got 3"),
    ("lkfmixer_b", {"channels": 7}, "channels must be even, because half of them are drawn off; got 7"),
    ("lkfmixer_b", {"large_kernel": 4}, "large_kernel must be odd, got 4"),
    ("lkfmixer_b", {"split_factor": 0.1}, "split_factor must make one channel at least of 8, got 0.1"),
    ("lkfmixer_b", {"split_factor": 1.1}, "split_factor must be at most 1, a share of the channels; got 1.1"),
    ("lkfmixer_b", {"split_factor": float("inf")}, "split_factor must be a finite number, got inf"),
    ("lkfmixer_b", {"split_factor": float("nan")}, "split_factor must be a finite number, got nan"),
    ("lkfmixer_b", {"split_factor": True}, "split_factor must be a finite number, got True"),
    ("hit_srf", {"embed_dim": 12}, "embed_dim must be at least 16, got 12"),
    ("hit_srf", {"num_heads": [5]}, r"twice num_heads must divide embed_dim \(48\), which 5 does not"),
    ("hit_srf", {"num_heads": [2, 2]}, "one entry for each group of blocks, got 1 and 2"),
    ("hit_srf", {"depths": 2}, "depths must list one number or more, got 2"),
    ("hit_srf", {"depths": [7]}, "depths must be at most 6, the windows of hier_win_ratios; got 7"),
    ("hit_srf", {"base_win_size": 8}, "base_win_size must be two whole numbers, height and width, got 8"),
    ("hit_srf", {"hier_win_ratios": [1, 1.5]}, "multiples of base_win_size; 1.5 gives 12 x 12"),
    ("hit_srf", {"drop_path_rate": 1}, r"must be in \[0, 1\), got 1"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), BAD)
def test_bad_arguments_are_refused_in_words(name: str, arguments: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        build(name, **arguments)
