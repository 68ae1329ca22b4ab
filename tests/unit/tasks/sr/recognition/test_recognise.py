"""Networks told from their weights."""

import json
from typing import Any

import pytest
import torch

from tests.contract.small_archs import SMALL, scales_of
from tests.unit.tasks.sr.archs.test_legacy_keys import numbered, released
from trainauto.models.weights import WeightDifferences
from trainauto.tasks.sr.archs import ARCHS, RRDBNet, modern_keys
from trainauto.tasks.sr.archs.dwt_arch import KINDS
from trainauto.tasks.sr.recognition import recognise
from trainauto.tasks.sr.recognition.declared import declared

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("rrdbnet", {}, "ESRGAN x4, 64 features, 23 blocks", "{ type: rrdbnet }"),
    ("rrdbnet", {"scale": 2, "num_block": 6}, "ESRGAN x2, 64 features, 6 blocks", "num_block: 6 }"),
    ("rrdbnet", {"scale": 1, "num_in_ch": 1, "num_out_ch": 1}, "ESRGAN x1, ", "num_in_ch: 1, num_out_ch: 1 }"),
    ("rrdbnet", {"scale": 2, "use_pixel_unshuffle": False}, "ESRGAN x2, ", "use_pixel_unshuffle: false }"),
    (
        "rrdbnet",
        {"scale": 1, "use_pixel_unshuffle": False, "num_block": 1},
        "ESRGAN x1, ",
        "use_pixel_unshuffle: false }",
    ),
    ("rrdbnet", {"scale": 8, "num_grow_ch": 16}, "ESRGAN x8, ", "num_grow_ch: 16 }"),
    ("esrgan_lite", {}, "ESRGAN x4, 32 features, 12 blocks", "{ type: esrgan_lite }"),
    ("compact", {"scale": 2}, "Compact x2, 64 features, 16 convolutions", "{ type: compact }"),
    ("compact", {"scale": 3, "num_conv": 32}, "Compact x3, 64 features, 32 conv", "{ type: compact, num_conv: 32 }"),
    ("compact", {"act_type": "relu"}, "Compact x4, ", "act_type: relu }"),
    ("compact", {"scale": 1, "num_in_ch": 1}, "Compact x1, ", "{ type: compact, num_in_ch: 1 }"),
    ("ultracompact", {}, "Compact x4, 64 features, 8 convolutions", "{ type: ultracompact }"),
    (
        "superultracompact",
        {"num_conv": 9},
        "Compact x4, 24 features, 9 conv",
        "{ type: superultracompact, num_conv: 9 }",
    ),
    ("span", {"scale": 1}, "SPAN x1, 48 features", "{ type: span }"),
    ("span", {"norm": False, "feature_channels": 32}, "SPAN x4, 32 features", "{ type: span_s, feature_channels: 32 }"),
    ("swinir", {"depths": [2], "num_heads": [6]}, "SwinIR x4, 180 channels, 2 blocks", "depths: [2], num_heads: [6] }"),
    ("swinir", {"upsampler": "nearest+conv", "scale": 2}, "SwinIR x2, ", "upsampler: nearest+conv }"),
    ("swinir", {"upsampler": "", "scale": 1, "window_size": 7, "img_size": 126}, "SwinIR x1, ", "img_range: 255.0"),
    ("swinir", {"resi_connection": "3conv", "scale": 3, "qkv_bias": False}, "SwinIR x3", "resi_connection: 3conv }"),
    ("swinir_light", {}, "SwinIR x4, 60 channels, 24 blocks, pixelshuffledirect", "{ type: swinir_light }"),
    ("swinir_l", {"scale": 2, "depths": [2], "num_heads": [8]}, "SwinIR x2, 240 channels, 2 b", "{ type: swinir_l, d"),
    ("edsr", {"scale": 3}, "EDSR x3, 64 features, 16 blocks", "{ type: edsr }"),
    ("edsr", {"num_feat": 256, "num_block": 32}, "EDSR x4, 256 features, 32 blocks", "num_block: 32, res_scale: 0.1 }"),
    (
        "msrresnet",
        {"scale": 2, "num_block": 3},
        "MSRResNet x2, 64 features, 3 blocks",
        "{ type: msrresnet, num_block: 3 }",
    ),
    ("ecbsr", {"num_in_ch": 1, "num_out_ch": 1}, "ECBSR x4, 16 features, 4 blocks", "num_in_ch: 1, num_out_ch: 1 }"),
    ("ecbsr", {"act_type": "relu"}, "ECBSR x4, ", "act_type: relu }"),
    ("spanplus", {"blocks": [4, 2]}, "SPANPlus x4, 48 features, 10 blocks, dys", "{ type: spanplus, blocks: [4, 2] }"),
    ("spanplus", {"scale": 1, "upsampler": "conv"}, "SPANPlus x1, ", "upsampler: conv }"),
    ("spanplus_sts", {"scale": 3}, "SPANPlus x3, 32 features, 4 blocks, ps", "{ type: spanplus_sts }"),
    (
        "man",
        {"norm": False, "n_feats": 60, "n_resblocks": 24},
        "MAN x4, 60 features, 24 blocks",
        "{ type: man_light, norm: false }",
    ),
    ("man_tiny", {"n_resgroups": 2}, "MAN x4, 48 features, 10 blocks", "{ type: man_tiny, n_resgroups: 2 }"),
    ("unetdiscriminatorsn", {"num_feat": 8}, "U-Net discriminator, 8 features", "num_feat: 8 }"),
    ("artcnn_r8f64", {"scale": 3, "kernel_size": 5}, "ArtCNN x3, 64 features, 8 blocks", "kernel_size: 5 }"),
    ("rtmosr_l", {"scale": 2}, "RTMoSR x2, 32 features, 2 blocks", "{ type: rtmosr_l }"),
    ("rtmosr_ul", {"scale": 1, "se": False}, "RTMoSR x1", "{ type: rtmosr_ul, se: false }"),
    ("mosrv2", {"n_block": 1, "scale": 2}, "MoSRv2 x2, 64 features, 1 block", "{ type: mosrv2, n_block: 1 }"),
    ("mosrv2", {"n_block": 1, "upsampler": "pixelshuffle", "scale": 3}, "MoSRv2 x3", "upsampler: pixelshuffle }"),
    ("mosrv2", {"n_block": 1, "upsampler": "nearest+conv", "dim": 16}, "MoSRv2 x4", "upsampler: nearest+conv }"),
    ("mosrv2", {"n_block": 1, "upsampler": "dysample", "rms_norm": True}, "MoSRv2 x4", "upsampler: dysample }"),
    ("mosrv2", {"n_block": 1, "upsampler": "pa_up", "mid_dim": 8, "scale": 8}, "MoSRv2 x8", "mid_dim: 8 }"),
    ("escrealm", {"n_blocks": 1, "scale": 3}, "ESC-Real x3, 64 features, 1 block", "n_blocks: 1 }"),
    ("escrealm", {"n_blocks": 1, "scale": 2, "unshuffle_mod": True}, "ESC-Real x2", "unshuffle_mod: true }"),
    ("esc_light", {"scale": 2}, "ESC x2, 64 features, 3 blocks", "{ type: esc_light }"),
    ("esc", {"use_dysample": False, "scale": 2, "n_blocks": 1}, "ESC x2", "n_blocks: 1, use_dysample: false }"),
    ("esc", {"use_dysample": False, "authors_head": True, "n_blocks": 1}, "ESC x4", "authors_head: true }"),
    ("esc", {"use_dysample": False, "realsr": False, "use_ln": True, "n_blocks": 1}, "ESC x4", "use_ln: true }"),
    ("esc_fp", {"scale": 3, "n_blocks": 1}, "ESC x3, 48 features, 1 block", "{ type: esc_fp, n_blocks: 1 }"),
    ("gaterv3_s", {"scale": 2}, "GaterV3 x2, 32 features, 3 levels", "{ type: gaterv3_s }"),
    ("gaterv3_r", {"scale": 1, "dim": 8}, "GaterV3 x1, 8 features, 4 levels", "{ type: gaterv3_r, dim: 8 }"),
    (
        "gaterv3_s",
        {"attention": True, "upsample": "dysample", "dim": 8},
        "GaterV3 x4",
        "attention: true, upsample: dysample }",
    ),
    ("flexnet", {"num_blocks": [1, 2]}, "FlexNet x4, 64 features, 3 blocks", "{ type: flexnet, num_blocks: [1, 2] }"),
    ("flexnet", {"num_blocks": [1], "upsampler": "dysample"}, "FlexNet x4", "upsampler: dysample }"),
    ("flexnet", {"num_blocks": [1], "upsampler": "nearest+conv"}, "FlexNet x4", "upsampler: nearest+conv }"),
    ("metaflexnet", {"channel_norm": True, "hidden_rate": 2, "scale": 3}, "FlexNet x3, 64", "channel_norm: true }"),
    ("lkfmixer_t", {"scale": 3}, "LKFMixer x3, 40 features, 6 blocks", "{ type: lkfmixer_t }"),
    ("lkfmixer_b", {"split_factor": 0.5, "large_kernel": 7}, "LKFMixer x4", "large_kernel: 7, split_factor: 0.5 }"),
    ("lkfmixer_b", {"channels": 44, "split_factor": 0.35}, "LKFMixer x4, 44 features", f"split_factor: {15.5 / 44} }}"),
    ("hit_sng", {"depths": [1], "num_heads": [5], "base_win_size": [4, 4]}, "HiT-SR x4, ", "base_win_size: [4, 4] }"),
    ("elan_light", {"m_elan": 2, "scale": 3}, "ELAN x3, 60 features, 1 block", "{ type: elan_light, m_elan: 2 }"),
    ("lmlt_tiny", {"n_blocks": 1, "ffn_scale": 1.5}, "LMLT x4, 36 features, 1 block", "ffn_scale: 1.5 }"),
    ("eimn_a", {"scale": 3, "depths": 2}, "EIMN x3, 64 features, 28 blocks", "{ type: eimn_a, depths: 2 }"),
    ("eimn_l", {"num_stages": 1, "mlp_ratios": 2.0}, "EIMN x4, 64 features, 1 block", "mlp_ratios: 2.0 }"),
    ("dis_fast", {"scale": 3}, "DIS x3, 32 features, 8 blocks", "{ type: dis_fast }"),
    ("dis_balanced", {"use_depthwise": True}, "DIS x4, 32 features, 12 blocks", "use_depthwise: true }"),
    ("sebica", {"scale": 3, "N": 24}, "Sebica x3, 24 features, 6 blocks", "{ type: sebica, N: 24 }"),
    ("sebica_mini", {"mini": True}, "Sebica x4, 8 features, 4 blocks", "{ type: sebica_mini, mini: true }"),
    ("cascadedgaze", {"width": 32}, "CascadedGaze x1, 32 features, 32 blocks", "{ type: cascadedgaze, width: 32 }"),
    ("cascadedgaze", {"GCE_CONVS_nums": [3, 2, 2, 2]}, "CascadedGaze x1, ", "GCE_CONVS_nums: [3, 2, 2, 2] }"),
    ("scunet_aaf6aa", {"scale": 2}, "SCUNet x2, 64 features, 14 blocks", "{ type: scunet_aaf6aa }"),
    ("scunet_aaf6aa", {"scale": 1, "residual": False}, "SCUNet x1, ", "{ type: scunet_aaf6aa, residual: false }"),
    ("scunet_aaf6aa", {"scale": 8, "config": [4] * 7, "head_dim": 16}, "SCUNet x8, ", "head_dim: 16 }"),
    ("emt", {"scale": 3, "n_blocks": 2}, "EMT x3, 60 features, 2 blocks", "{ type: emt, n_blocks: 2 }"),
    ("emt", {"scale": 1, "n_layers": 3, "n_GTLs": 1}, "EMT x1, ", "{ type: emt, n_layers: 3, n_GTLs: 1 }"),
    ("emt", {"upsampler": "pixelshuffledirect"}, "EMT x4, ", "{ type: emt, upsampler: pixelshuffledirect }"),
]


@pytest.mark.parametrize(("name", "arguments", "words", "written"), CASES)
def test_networks_are_told_from_names_and_shapes(
    name: str, arguments: dict[str, Any], words: str, written: str
) -> None:
    with torch.device("meta"):
        state = ARCHS.get(name)(**arguments).state_dict()
    recognised = recognise(state)
    assert recognised is not None
    assert recognised.in_words().startswith(words)
    assert written in recognised.as_option("network_g", recognised.scale)
    with torch.device("meta"):
        scale = {} if recognised.scale is None else {"scale": recognised.scale}
        rebuilt = ARCHS.get(recognised.name)(**scale, **recognised.arguments).state_dict()
    assert {key: value.shape for key, value in rebuilt.items()} == {key: value.shape for key, value in state.items()}


@pytest.mark.parametrize(("name", "scale"), [(name, scale) for name in sorted(SMALL) for scale in scales_of(name)])
def test_every_network_is_known_at_every_scale(name: str, scale: int) -> None:
    with torch.device("meta"):
        recognised = recognise(ARCHS.get(name)(**{**SMALL[name], "scale": scale}).state_dict())
    assert recognised is not None
    assert recognised.scale == scale


@pytest.mark.parametrize("kinds", [KINDS, [[0, 4], [0, -1]]])
def test_dilated_windows_are_told_from_SwinIRs_by_their_masks(kinds: list[list[int]]) -> None:
    depths = [2] * len(kinds)
    arguments = {"embed_dim": 6, "depths": depths, "num_heads": [1] * len(kinds), "layer_kinds": kinds}
    state = ARCHS.get("dwt_s")(**arguments).half().state_dict()
    told = recognise(state)
    assert told is not None
    assert (told.title, told.name, "layer_kinds" in told.arguments) == ("DWT", "dwt_s", kinds is not KINDS)
    assert told.arguments.get("layer_kinds", kinds) == kinds
    del arguments["layer_kinds"]
    told = recognise(ARCHS.get("swinir")(**arguments).state_dict())
    assert told is not None
    assert told.title == "SwinIR"


def test_the_scale_is_written_where_it_is_another() -> None:
    recognised = recognise(RRDBNet(scale=4, num_feat=8, num_block=1).state_dict())
    assert recognised is not None
    assert recognised.as_option("network_g", 4) == "`network_g: { type: rrdbnet, num_feat: 8, num_block: 1 }`"
    assert recognised.as_option("network_g", 2).startswith("`scale: 4` and `network_g: { type: rrdbnet, ")


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_both_older_namings_of_ESRGAN(scale: int) -> None:
    state = RRDBNet(scale=scale, num_feat=4, num_block=2, num_grow_ch=2).state_dict()
    doublings = 3 if scale == 8 else 2
    for old in (numbered(state, 2, doublings), released(state)):
        recognised = recognise(modern_keys(old))
        assert recognised is not None
        assert (recognised.scale, recognised.arguments["num_block"]) == (scale, 2)


def test_scale_3_of_ESRGAN_looks_like_scale_2_which_is_said() -> None:
    recognised = recognise(RRDBNet(scale=3, num_feat=4, num_block=1, num_grow_ch=2).state_dict())
    assert recognised is not None
    assert recognised.scale == 2
    assert "scale 3 has the same names and shapes" in recognised.unsure


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("flexnet", {"upsampler": "nearest+conv"}),
        ("gaterv3_r", {"upsample": "nearest+conv"}),
        ("mosrv2", {"upsampler": "pa_up", "unshuffle_mod": False}),
        ("escrealm", {"upsampler": "nearest+conv"}),
    ],
)
@pytest.mark.parametrize("scale", [2, 3])
def test_files_tell_scale_2_from_3_where_shapes_do_not(name: str, arguments: dict[str, Any], scale: int) -> None:
    network = ARCHS.get(name)(**{**SMALL[name], **arguments, "scale": scale})
    recognised = recognise(network.state_dict())
    assert recognised is not None
    assert (recognised.scale, recognised.unsure) == (scale, "")
    without_data = recognise(network.to("meta").state_dict())
    assert without_data is not None
    assert (without_data.scale, without_data.unsure[:7]) == (2, "scale 3")


@pytest.mark.parametrize("flash", [True, False])
def test_files_tell_the_attention_of_gaterv3(flash: bool) -> None:
    arguments = {**SMALL["gaterv3_r"], "attention": True, "flash": flash}
    recognised = recognise(ARCHS.get("gaterv3_r")(**arguments).state_dict())
    assert recognised is not None
    assert recognised.arguments.get("flash", True) is flash


def test_files_of_gaterv3_may_lack_gamma() -> None:
    network = ARCHS.get("gaterv3_r")(**SMALL["gaterv3_r"])
    state = network.state_dict()
    del state["gamma"]
    recognised = recognise(state)
    assert recognised is not None
    assert (recognised.title, recognised.scale) == ("GaterV3", 4)
    differences = WeightDifferences.between(network, state)
    assert not differences
    assert differences.same == len(state)


@pytest.mark.parametrize(
    ("name", "width", "ratio", "dim", "hidden"),
    [
        ("esc", "dim", "exp_ratio", 56, 61),
        ("esc", "dim", "exp_ratio", 60, 123),
        ("eimn_l", "embed_dims", "mlp_ratios", 56, 61),
    ],
)
def test_ratios_survive_rounding(name: str, width: str, ratio: str, dim: int, hidden: int) -> None:
    assert int(dim * (hidden / dim)) == hidden - 1
    with torch.device("meta"):
        arguments = {**SMALL[name], width: dim, ratio: (hidden + 0.5) / dim}
        recognised = recognise(ARCHS.get(name)(**arguments).state_dict())
    assert recognised is not None
    assert recognised.arguments[ratio] == (hidden + 0.5) / dim


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_grey_may_come_of_colours(scale: int) -> None:
    with torch.device("meta"):
        recognised = recognise(ARCHS.get("eimn_l")(num_stages=1, scale=scale, num_out_ch=1).state_dict())
    assert recognised is not None
    assert (recognised.scale, recognised.arguments) == (scale, {"num_out_ch": 1, "num_stages": 1})


@pytest.mark.parametrize(("layers", "unsure"), [(0, ""), (1, "num_heads, window_list and shift_list have no weights")])
def test_windows_are_unsure_where_emt_has_attention(layers: int, unsure: str) -> None:
    with torch.device("meta"):
        recognised = recognise(ARCHS.get("emt")(**{**SMALL["emt"], "n_GTLs": layers}).state_dict())
    assert recognised is not None
    assert (recognised.arguments["n_GTLs"], recognised.unsure) == (layers, unsure)


def test_variants_and_strangers_are_not_claimed() -> None:
    state = RRDBNet(num_feat=4, num_block=1, num_grow_ch=2).state_dict()
    assert recognise({**state, "body.0.rdb1.conv1x1.weight": torch.ones(2, 4, 1, 1)}) is None
    assert recognise({**state, "conv_hr.weight": torch.ones(5, 4, 3, 3)}) is None
    assert recognise({"stem.weight": torch.ones(3)}) is None
    assert recognise({}) is None
    lacking = ARCHS.get("span")(feature_channels=6).state_dict()
    assert recognise({name: value for name, value in lacking.items() if "eval_conv" not in name}) is not None


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"format": "pt"},
        {"architecture": "rrdbnot", "arguments": "{}", "scale": "4"},
        {"architecture": "rrdbnet", "arguments": "[1]", "scale": "4"},
        {"architecture": "rrdbnet", "arguments": "{", "scale": "4"},
        {"architecture": "rrdbnet", "arguments": "{}", "scale": "four"},
        {"architecture": "rrdbnet", "arguments": '{"num_block": 1000000000}', "scale": "4"},
        {"architecture": "swinir", "arguments": json.dumps({"depths": [1] * 100}), "scale": "4"},
    ],
)
def test_metadata_that_say_nothing_of_use(metadata: dict[str, str]) -> None:
    assert declared(metadata) is None


def test_metadata_tell_what_shapes_do_not() -> None:
    state = ARCHS.get("span")(feature_channels=6, img_range=1.0).state_dict()
    facts = {"architecture": "SPAN", "arguments": '{"feature_channels": 6, "img_range": 1.0}', "scale": "4"}
    recognised = recognise(state, facts)
    assert recognised is not None
    assert recognised.in_words() == "SPAN x4, 6 features"
    assert recognised.arguments == {"feature_channels": 6, "img_range": 1.0}
    unknown = {**facts, "arguments": '{"feature_channel": 6}'}
    told = recognise(state, unknown)
    assert told is not None
    assert told.arguments == {"feature_channels": 6}
