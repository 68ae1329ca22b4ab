"""Networks of spandrel's, small: arguments by registered name, the first of each table, and a scale they do."""

from typing import Any

SMALL_LIBRARY: dict[str, dict[str, Any]] = {
    "dat": {
        "embed_dim": 32,
        "depth": [2],
        "num_heads": [2],
        "split_size": [4, 8],
        "img_size": 16,
        "expansion_factor": 2.0,
    },
    "hat_m": {
        "embed_dim": 12,
        "depths": [2],
        "num_heads": [2],
        "window_size": 8,
        "img_size": 16,
        "num_feat": 8,
        "squeeze_factor": 4,
    },
    "atd": {
        "embed_dim": 12,
        "depths": [2],
        "num_heads": [2],
        "window_size": 8,
        "img_size": 16,
        "num_tokens": 8,
        "reducted_dim": 4,
    },
    "drct": {"embed_dim": 12, "depths": [6], "num_heads": [2], "window_size": 8, "img_size": 16, "gc": 4},
    "grl_b": {
        "embed_dim": 36,
        "depths": [2],
        "num_heads_window": [2],
        "num_heads_stripe": [2],
    },
    "rgt": {"embed_dim": 32, "depth": [2], "num_heads": [2], "split_size": [4, 8], "img_size": 16},
    "srformer": {"embed_dim": 16, "depths": [2], "num_heads": [2], "window_size": 8, "img_size": 16},
    "swin2sr_m": {"embed_dim": 12, "depths": [2], "num_heads": [2], "window_size": 8, "img_size": 16},
    "omnisr": {"num_feat": 16, "res_num": 1},
    "craft": {"embed_dim": 32, "depths": [1], "num_heads": [2]},
    "dctlsa": {"nf": 10, "num_head": 5},
    "ditn_real": {"dim": 12, "ITL_blocks": 1, "SAL_blocks": 1},
    "fdat_medium": {"embed_dim": 16, "num_groups": 1, "depth_per_group": 1, "num_heads": 2, "mid_dim": 8},
    "plksr": {"dim": 16, "n_blocks": 1, "kernel_size": 5},
    "realplksr": {"dim": 16, "n_blocks": 1, "kernel_size": 5},
    "mosr": {"dim": 16, "n_block": 1},
    "moesr2": {"dim": 16, "n_blocks": 1, "n_block": 1, "upsample_dim": 16},
    "rcan": {"n_feats": 16, "n_resgroups": 1, "n_resblocks": 1},
    "safmn": {"dim": 8, "n_blocks": 1},
    "seemore_t": {"embedding_dim": 12, "num_layers": 1},
    "realcugan": {},
    "nafnet64": {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1], "dec_blk_nums": [1]},
}
"""Real-CUGAN has no arguments of size. What spandrel cannot read off weights stays as published: GRL's windows, ATD's
categories, DCTLSA's heads."""


def scale_of(name: str) -> int:
    """Return a scale that a network does: 2, or 1 for those that do no other."""
    return 1 if name.startswith(("cascadedgaze", "nafnet")) else 2
