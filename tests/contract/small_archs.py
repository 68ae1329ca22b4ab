"""Every registered network that enlarges, small."""

import torch
from torch import Tensor, nn

from trainauto.tasks.sr.archs import ARCHS

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
}
"""Arguments that make each network small; every registered network that enlarges has an entry."""

PRESETS = {
    "ultracompact": "compact",
    "superultracompact": "compact",
    "esrgan_lite": "rrdbnet",
    "swinir_l": "swinir",
    "span_s": "span",
    "spanplus_s": "spanplus",
    "spanplus_st": "spanplus",
    "spanplus_sts": "spanplus",
    "man_light": "man",
    "man_tiny": "man",
}
"""Networks that are another one with other defaults, which is what is tested of them."""
IN_RUNS = {
    name: SMALL[name] for name in ("ecbsr", "edsr", "man", "msrresnet", "span_s", "spanplus", "spanplus_st", "swinir_l")
}
"""Networks that are trained and exported beside those of the library; the tests of runs have the others."""
WHOLE = sorted(SMALL.keys() - PRESETS.keys())
"""Networks that keep every promise by themselves."""


def build(name: str, seed: int = 7, **arguments: object) -> nn.Module:
    torch.manual_seed(seed)
    return ARCHS.get(name)(**{**SMALL[name], "scale": 2, **arguments})


def picture(n: int = 2, channels: int = 3, height: int = 8, width: int = 12) -> Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(11))
