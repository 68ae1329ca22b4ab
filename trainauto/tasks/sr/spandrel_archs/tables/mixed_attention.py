"""Transformers that attend in windows and in some other way: over channels, stripes, categories."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainauto.tasks.sr.spandrel_archs.table import DOUBLING_SCALES, LibraryNetwork, sides, windows_of

UPSAMPLERS = ("pixelshuffle", "pixelshuffledirect", "nearest+conv")
CONVOLUTIONS_OF_A_GROUP = ("1conv", "3conv")

DAT = LibraryNetwork(
    architecture="DAT",
    module="spandrel.architectures.DAT.__arch.DAT",
    classes=("DAT",),
    summary="DAT: attention over windows and over channels by turns.",
    paper='Z. Chen et al., "Dual Aggregation Transformer for Image Super-Resolution", ICCV 2023, '
    "https://arxiv.org/abs/2308.03364.",
    defaults={
        "in_chans": 3,
        "img_size": 64,
        "img_range": 1.0,
        "split_size": [8, 32],
        "depth": [6] * 6,
        "embed_dim": 180,
        "num_heads": [6] * 6,
        "expansion_factor": 4.0,
        "resi_connection": "1conv",
        "qkv_bias": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "upsampler": "pixelshuffle",
    },
    presets={
        "dat": {},
        "dat_2": {"expansion_factor": 2.0},
        "dat_s": {"expansion_factor": 2.0, "split_size": [8, 16]},
        # Its authors' own files have the upsampler pixelshuffledirect; this is traiNNer's.
        "dat_light": {
            "expansion_factor": 2.0,
            "depth": [18],
            "embed_dim": 60,
            "num_heads": [6],
            "resi_connection": "3conv",
        },
    },
    renamed={"scale": "upscale"},
    choices={"upsampler": UPSAMPLERS[:2], "resi_connection": CONVOLUTIONS_OF_A_GROUP},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("split_size"),
    accepts=sides(minimum=16),
    left_out=("norm_layer", "act_layer", "qk_scale", "use_chk"),
)

ATD = LibraryNetwork(
    architecture="ATD",
    module="spandrel.architectures.ATD.__arch.atd_arch",
    classes=("ATD",),
    summary="ATD: attention over windows, over categories of pixels, and to a dictionary of tokens.",
    paper='L. Zhang et al., "Transcending the Limit of Local Window: Advanced Super-Resolution Transformer with '
    'Adaptive Token Dictionary", CVPR 2024, https://arxiv.org/abs/2401.08209.',
    defaults={
        "in_chans": 3,
        "img_size": 96,
        "img_range": 1.0,
        "embed_dim": 210,
        "depths": [6] * 6,
        "num_heads": [6] * 6,
        "window_size": 16,
        "category_size": 256,
        "num_tokens": 128,
        "reducted_dim": 20,
        "convffn_kernel_size": 5,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "upsampler": "pixelshuffle",
        "resi_connection": "1conv",
    },
    presets={
        "atd": {},
        "atd_light": {
            "img_size": 64,
            "embed_dim": 48,
            "depths": [6] * 4,
            "num_heads": [6] * 4,
            "category_size": 128,
            "num_tokens": 64,
            "reducted_dim": 8,
            "convffn_kernel_size": 7,
            "mlp_ratio": 1.0,
            "upsampler": "pixelshuffledirect",
        },
    },
    renamed={"scale": "upscale"},
    choices={"upsampler": UPSAMPLERS, "resi_connection": CONVOLUTIONS_OF_A_GROUP},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("window_size"),
    accepts=sides(minimum=8),
    left_out=("norm_layer", "patch_size", "ape", "patch_norm", "norm"),
)


def _grl_windows(arguments: Mapping[str, Any]) -> Iterator[int]:
    """Yield the sides that divide a crop: windows, stripes, and what as many stripes as are asked for can be."""
    yield from windows_of("window_size", "stripe_size")(arguments)
    for count in windows_of("stripe_groups")(arguments):
        yield count * arguments["anchor_window_down_factor"]


GRL = LibraryNetwork(
    architecture="GRL",
    module="spandrel.architectures.GRL.__arch.grl",
    classes=("GRL",),
    summary="GRL: attention in windows, in stripes by way of anchors, and over channels.",
    paper='Y. Li et al., "Efficient and Explicit Modelling of Image Hierarchies for Image Restoration", CVPR 2023, '
    "https://arxiv.org/abs/2303.00748.",
    defaults={
        "in_channels": 3,
        "out_channels": 3,
        "img_size": 64,
        "img_range": 1.0,
        "embed_dim": 180,
        "upsampler": "pixelshuffle",
        # Windows and stripes are those of the published weights; traiNNer's are window_size 8, stripe_size [8, null]
        # and stripe_groups [null, 4], which the same weights fit and which take less memory.
        "depths": [4, 4, 8, 8, 8, 4, 4],
        "num_heads_window": [3] * 7,
        "num_heads_stripe": [3] * 7,
        "window_size": 32,
        "stripe_size": [64, 64],
        "stripe_groups": [None, None],
        "stripe_shift": True,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "qkv_proj_type": "linear",
        "anchor_proj_type": "avgpool",
        "anchor_window_down_factor": 4,
        "out_proj_type": "linear",
        "local_connection": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "conv_type": "1conv",
    },
    presets={
        "grl_b": {},
        "grl_s": {
            "embed_dim": 128,
            "depths": [4] * 4,
            "num_heads_window": [2] * 4,
            "num_heads_stripe": [2] * 4,
            "local_connection": False,
        },
        "grl_t": {
            "embed_dim": 64,
            "depths": [4] * 4,
            "num_heads_window": [2] * 4,
            "num_heads_stripe": [2] * 4,
            "local_connection": False,
            "upsampler": "pixelshuffledirect",
        },
    },
    aliases={"grl": "grl_b"},
    renamed={"scale": "upscale"},
    choices={
        "upsampler": UPSAMPLERS,
        "conv_type": ("1conv", "3conv", "1conv1x1", "linear"),
        "out_proj_type": ("linear", "conv2d"),
    },
    types={"stripe_size": list[int | None], "stripe_groups": list[int | None]},
    scales=DOUBLING_SCALES,
    channels="in_channels",
    windows=_grl_windows,
    left_out=(
        "norm_layer",
        "anchor_one_stage",
        "pretrained_window_size",
        "pretrained_stripe_size",
        "init_method",
        "fairscale_checkpoint",
        "offload_to_cpu",
        "euclidean_dist",
    ),
)

RGT = LibraryNetwork(
    architecture="RGT",
    module="spandrel.architectures.RGT.__arch.rgt",
    classes=("RGT",),
    summary="RGT: attention in windows, and over the whole image by way of recursively gathered features.",
    paper='Z. Chen et al., "Recursive Generalization Transformer for Image Super-Resolution", ICLR 2024, '
    "https://arxiv.org/abs/2303.06373.",
    defaults={
        "in_chans": 3,
        "img_size": 64,
        "img_range": 1.0,
        "embed_dim": 180,
        "depth": [6] * 8,
        "num_heads": [6] * 8,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "resi_connection": "1conv",
        "split_size": [8, 32],
        "c_ratio": 0.5,
    },
    presets={"rgt": {}, "rgt_s": {"depth": [6] * 6, "num_heads": [6] * 6}},
    renamed={"scale": "upscale"},
    choices={"resi_connection": CONVOLUTIONS_OF_A_GROUP},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("split_size"),
    accepts=sides(minimum=16),
    left_out=("norm_layer", "act_layer", "qk_scale", "use_chk"),
)

MIXED_ATTENTION = (DAT, ATD, GRL, RGT)
