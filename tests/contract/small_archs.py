"""Every registered network that enlarges, small."""

import torch
from torch import Tensor, nn

from trainauto.tasks.sr.archs import ARCHS

_ESC = {"pdim": 4, "kernel_size": 3, "n_blocks": 1, "conv_blocks": 1, "window_size": 8}
SMALL = {
    "compact": {"num_feat": 8, "num_conv": 2},
    "ultracompact": {"num_feat": 8, "num_conv": 1},
    "superultracompact": {"num_feat": 8, "num_conv": 1},
    "rrdbnet": {"num_feat": 8, "num_block": 1, "num_grow_ch": 4},
    "esrgan_lite": {"num_feat": 8, "num_block": 1, "num_grow_ch": 4},
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
    "swinir_l": {
        "embed_dim": 12,
        "depths": [2],
        "num_heads": [2],
        "window_size": 4,
        "img_size": 8,
        "drop_path_rate": 0.0,
        "upsampler": "pixelshuffle",  # its own does no scale 1
    },
    "span_s": {"feature_channels": 6},
    "edsr": {"num_feat": 8, "num_block": 2},
    "msrresnet": {"num_feat": 8, "num_block": 2},
    "ecbsr": {"num_block": 1, "num_channel": 6},
    "spanplus": {"blocks": [1], "feature_channels": 8},
    "spanplus_s": {"blocks": [1], "feature_channels": 8},
    "spanplus_st": {"blocks": [1], "feature_channels": 8},
    "spanplus_sts": {"blocks": [1], "feature_channels": 8},
    "man": {"n_resblocks": 1, "n_resgroups": 2, "n_feats": 6},
    "man_light": {"n_resblocks": 1, "n_feats": 6},
    "man_tiny": {"n_resblocks": 1, "n_feats": 6},
    "artcnn_r16f96": {"filters": 6, "n_block": 1},
    "rtmosr": {"dim": 8, "n_blocks": 1},
    "mosrv2": {"dim": 8, "n_block": 1},
    "hit_srf": {"embed_dim": 48, "depths": [1], "num_heads": [2]},
    "hit_sng": {"embed_dim": 48, "depths": [1], "num_heads": [2]},
    "lmlt_base": {"dim": 8, "n_blocks": 1},
    "elan": {"c_elan": 15, "m_elan": 2, "n_share": 1, "window_sizes": [2, 4, 8]},
    "dis_balanced": {"num_features": 6, "num_blocks": 1},
    "sebica": {"N": 6},
    "cascadedgaze": {
        "width": 4,
        "middle_blk_num": 1,
        "enc_blk_nums": [1, 1],
        "dec_blk_nums": [1, 1],
        "GCE_CONVS_nums": [3, 2],
    },
    "scunet_aaf6aa": {"dim": 8, "head_dim": 4, "config": [2, 1, 1, 1, 1, 1, 1], "noise": 0.0},
    "dwt": {
        "embed_dim": 12,
        "depths": [2, 2],
        "num_heads": [2, 3],
        "window_size": 4,
        "img_size": 16,
        "drop_path_rate": 0.0,
        "layer_kinds": [[0, -1], [0, 2]],
    },
    "emt": {"dim": 30, "n_blocks": 1, "n_layers": 3, "rgb_range": 1.0},
    "eimn_l": {"embed_dims": 8, "num_stages": 2},
    "escrealm": {
        "dim": 8,
        "pdim": 4,
        "kernel_size": 3,
        "n_blocks": 1,
        "conv_blocks": 1,
        "window_size": 8,
        "num_heads": 2,
        "upsampler": "pixelshuffledirect",
    },
    "gaterv3_r": {"dim": 8, "enc_blocks": [1, 1], "dec_blocks": [1, 1], "num_latent": 1, "sisr_blocks": 1},
    "lkfmixer_b": {"channels": 8, "num_block": 1, "large_kernel": 5},
    "flexnet": {"dim": 4, "num_blocks": [1]},
    "metaflexnet": {"dim": 4, "num_blocks": [1, 1, 1, 1]},
    "esc": {"dim": 8, "num_heads": 2, **_ESC},
    "esc_fp": {"dim": 12, "num_heads": 3, **_ESC},
}
"""Arguments that make each network small; every registered network that enlarges has an entry here or in PRESETS."""

PRESETS: dict[str, tuple[str, dict[str, object]]] = {
    "ultracompact": ("compact", {"num_conv": 8}),
    "superultracompact": ("compact", {"num_feat": 24, "num_conv": 8}),
    "esrgan_lite": ("rrdbnet", {"num_feat": 32, "num_block": 12}),
    "swinir_l": (
        "swinir",
        {
            "embed_dim": 240,
            "depths": (6,) * 9,
            "num_heads": (8,) * 9,
            "upsampler": "nearest+conv",
            "resi_connection": "3conv",
        },
    ),
    "span_s": ("span", {"norm": False}),
    "spanplus_s": ("spanplus", {"blocks": (2,), "feature_channels": 32}),
    "spanplus_st": ("spanplus", {"upsampler": "ps"}),
    "spanplus_sts": ("spanplus", {"blocks": (2,), "feature_channels": 32, "upsampler": "ps"}),
    "man_light": ("man", {"n_resblocks": 24, "n_feats": 60}),
    "man_tiny": ("man", {"n_resblocks": 5, "n_feats": 48}),
    "artcnn_r8f64": ("artcnn_r16f96", {"filters": 64, "n_block": 8}),
    "rtmosr_l": ("rtmosr", {"unshuffle_mod": True}),
    "rtmosr_ul": ("rtmosr", {"ffn_expansion": 1.5, "unshuffle_mod": True, "dccm": False}),
    "hit_sir": ("hit_srf", {}),
    "lmlt_large": ("lmlt_base", {"dim": 84}),
    "lmlt_tiny": ("lmlt_base", {"dim": 36}),
    "dis_fast": ("dis_balanced", {"num_blocks": 8}),
    "sebica_mini": ("sebica", {"N": 8}),
    "dwt_s": ("dwt", {"window_size": 8}),
    "eimn_a": ("eimn_l", {"num_stages": 14}),
    "elan_light": ("elan", {"m_elan": 24, "c_elan": 60, "n_share": 1}),
    "escrealm_xl": (
        "escrealm",
        {"dim": 128, "pdim": 32, "n_blocks": 16, "num_heads": 8, "upsampler": "pixelshuffle"},
    ),
    "gaterv3_s": ("gaterv3_r", {"enc_blocks": (2, 2, 4), "dec_blocks": (2, 2, 2)}),
    "lkfmixer_l": ("lkfmixer_b", {"channels": 64, "num_block": 12}),
    "lkfmixer_t": ("lkfmixer_b", {"channels": 40, "num_block": 6}),
    "metaflexnet": ("flexnet", {"num_blocks": (4, 6, 6, 8), "pipeline_type": "meta"}),
    "esc_light": ("esc", {"n_blocks": 3}),
    "esc_fp": ("esc", {"dim": 48, "num_heads": 3, "is_fp": True, "use_dysample": False, "realsr": False}),
    "esc_large": ("esc", {"n_blocks": 10, "exp_ratio": 2.0}),
}
"""Networks that are another one with other defaults: the name of that one, and those defaults."""

SCALES = {"cascadedgaze": (1,)}
"""Scales of networks that do not do all of 1, 2 and 4."""
COUPLED = {"eimn_l", "elan", "emt", "sebica"}
"""Networks whose batch norm couples the samples of a batch in training."""

IN_RUNS = {
    name: SMALL[name]
    for name in (
        *("artcnn_r16f96", "cascadedgaze", "dis_balanced", "dwt", "ecbsr", "edsr", "eimn_l", "elan", "emt", "esc"),
        *("esc_fp", "escrealm", "flexnet", "gaterv3_r", "hit_sng", "hit_srf", "lkfmixer_b", "lmlt_base", "man"),
        *("metaflexnet", "mosrv2", "msrresnet", "rtmosr", "scunet_aaf6aa", "sebica", "span_s", "spanplus"),
        *("spanplus_st", "swinir_l"),
    )
}
"""Networks that are trained and exported beside those of the library; the tests of runs have the others."""
IN_RUNS["scunet_aaf6aa"] = {**SMALL["scunet_aaf6aa"], "noise": 0.05}  # resumed runs draw it as whole ones do
WHOLE = sorted(SMALL.keys() - PRESETS.keys())
"""Networks that keep every promise by themselves."""


def scales_of(name: str) -> tuple[int, ...]:
    return SCALES.get(name, (1, 2, 4))


def build(name: str, seed: int = 7, **arguments: object) -> nn.Module:
    torch.manual_seed(seed)
    usual = 2 if 2 in scales_of(name) else 1
    return ARCHS.get(name)(**{**SMALL.get(name, {}), "scale": usual, **arguments})


def picture(n: int = 2, channels: int = 3, height: int = 8, width: int = 12) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(11))
