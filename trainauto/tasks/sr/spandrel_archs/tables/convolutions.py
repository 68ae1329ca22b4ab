"""Networks of convolutions."""

from collections.abc import Mapping
from typing import Any

from trainauto.tasks.sr.spandrel_archs.table import DOUBLING_SCALES, SCALE, LibraryNetwork, sides


def _unshuffled(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    scale = arguments[SCALE]
    return (4 // scale,) if arguments["unshuffle_mod"] and scale <= 2 else ()


PLKSR = LibraryNetwork(
    architecture="PLKSR",
    module="spandrel.architectures.PLKSR.__arch.PLKSR",
    classes=("PLKSR",),
    summary="PLKSR: convolutions, of which some channels have very large kernels.",
    paper='D. Lee et al., "Partial Large Kernel CNNs for Efficient Super-Resolution", 2024, '
    "https://arxiv.org/abs/2404.11848.",
    defaults={
        "dim": 64,
        "n_blocks": 28,
        "ccm_type": "DCCM",
        "kernel_size": 17,
        "split_ratio": 0.25,
        "lk_type": "PLK",
        "use_max_kernel": False,
        "sparse_kernels": [5, 5, 5, 5],
        "sparse_dilations": [1, 2, 3, 4],
        "with_idt": False,
        "use_ea": True,
    },
    presets={"plksr": {}, "plksr_tiny": {"n_blocks": 12, "kernel_size": 13, "use_ea": False}},
    renamed={"scale": "upscaling_factor"},
    choices={"ccm_type": ("CCM", "ICCM", "DCCM"), "lk_type": ("PLK", "SparsePLK", "RectSparsePLK")},
)

REALPLKSR = LibraryNetwork(
    architecture="PLKSR",
    module="spandrel.architectures.PLKSR.__arch.RealPLKSR",
    classes=("RealPLKSR",),
    summary="RealPLKSR: PLKSR with normalised blocks, for real photographs.",
    paper="PLKSR's, https://arxiv.org/abs/2404.11848; this variant is neosr's.",
    defaults={
        "dim": 64,
        "n_blocks": 28,
        "kernel_size": 17,
        "split_ratio": 0.25,
        "use_ea": True,
        "norm_groups": 4,
        "dropout": 0.0,
        "upsampler": "pixelshuffle",
        "layer_norm": True,
    },
    presets={
        "realplksr": {},
        "realplksr_tiny": {"n_blocks": 12, "kernel_size": 13, "use_ea": False},
        "realplksr_large": {"dim": 96},
    },
    renamed={"scale": "upscaling_factor", "upsampler": "dysample"},
    values={"upsampler": {"pixelshuffle": False, "dysample": True}},
    choices={"upsampler": ("pixelshuffle", "dysample")},
)

MOSR = LibraryNetwork(
    architecture="MoSR",
    module="spandrel.architectures.MoSR.__arch.mosr_arch",
    classes=("MoSR",),
    summary="MoSR: gated convolutions, Mamba's block without its state.",
    paper="neosr and traiNNer-redux, which it was published with; after https://arxiv.org/abs/2405.07992.",
    defaults={
        "in_ch": 3,
        "out_ch": 3,
        "n_block": 24,
        "dim": 64,
        "upsampler": "pixelshuffle",
        "drop_path": 0.0,
        "kernel_size": 7,
        "expansion_ratio": 1.5,
        "conv_ratio": 1.0,
    },
    presets={"mosr": {}, "mosr_t": {"n_block": 5, "dim": 48}},
    renamed={"scale": "upscale"},
    values={"upsampler": {"pixelshuffle": "ps", "dysample": "dys", "geoensemblepixelshuffle": "gps"}},
    choices={"upsampler": ("pixelshuffle", "dysample", "geoensemblepixelshuffle")},
    channels="in_ch",
)

MOESR = LibraryNetwork(
    architecture="MoESR",
    module="spandrel.architectures.MoESR.__arch.MoESR",
    classes=("MoESR",),
    summary="MoESR: gated convolutions whose groups are excited at half size.",
    paper="traiNNer-redux and spandrel, which it was published with.",
    defaults={
        "in_ch": 3,
        "out_ch": 3,
        "dim": 64,
        "n_blocks": 9,
        "n_block": 4,
        "expansion_factor": 8 / 3,
        "expansion_msg": 1.5,
        "upsampler": "pixelshuffledirect",
        "upsample_dim": 64,
    },
    presets={"moesr2": {}},
    aliases={"moesr": "moesr2"},
    choices={"upsampler": ("conv", "pixelshuffledirect", "pixelshuffle", "nearest+conv", "dysample")},
    scales=DOUBLING_SCALES,
    channels="in_ch",
    windows=lambda _arguments: (2,),
    accepts=sides(minimum=2),
)

RCAN = LibraryNetwork(
    architecture="RCAN",
    module="spandrel.architectures.RCAN.__arch.rcan_arch",
    classes=("RCAN",),
    summary="RCAN: a deep chain of convolutions with channel attention.",
    paper='Y. Zhang et al., "Image Super-Resolution Using Very Deep Residual Channel Attention Networks", ECCV 2018, '
    "https://arxiv.org/abs/1807.02758.",
    defaults={
        "n_resgroups": 10,
        "n_resblocks": 20,
        "n_feats": 64,
        "n_colors": 3,
        "rgb_range": 255,
        "norm": False,
        "kernel_size": 3,
        "reduction": 16,
        "res_scale": 1.0,
        "act_mode": "relu",
        "unshuffle_mod": False,
    },
    presets={"rcan": {}, "rcan_unshuffle": {"unshuffle_mod": True}},
    choices={"act_mode": ("relu", "leaky_relu", "elu", "silu", "gelu", "none")},
    scales=DOUBLING_SCALES,
    channels="n_colors",
    windows=_unshuffled,
    left_out=("conv",),
)

SAFMN = LibraryNetwork(
    architecture="SAFMN",
    module="spandrel.architectures.SAFMN.__arch.safmn",
    classes=("SAFMN",),
    summary="SAFMN: small, features modulated at four sizes.",
    paper='L. Sun et al., "Spatially-Adaptive Feature Modulation for Efficient Image Super-Resolution", ICCV 2023, '
    "https://arxiv.org/abs/2302.13800.",
    defaults={"dim": 36, "n_blocks": 8, "ffn_scale": 2.0},
    presets={"safmn": {}, "safmn_l": {"dim": 128, "n_blocks": 16}},
    renamed={"scale": "upscaling_factor"},
    accepts=sides(minimum=8, multiple=8),
)

SEEMORE = LibraryNetwork(
    architecture="SeemoRe",
    module="spandrel.architectures.SeemoRe.__arch.seemore_arch",
    classes=("SeemoRe",),
    summary="SeemoRe: a mixture of low-rank experts, one or some of which are chosen for each image.",
    paper='E. Zamfir et al., "See More Details: Efficient Image Super-Resolution by Experts Mining", ICML 2024, '
    "https://arxiv.org/abs/2402.03412.",
    defaults={
        "in_chans": 3,
        "num_experts": 3,
        "num_layers": 6,
        "embedding_dim": 36,
        "img_range": 1.0,
        "use_shuffle": True,
        "global_kernel_size": 11,
        "recursive": 2,
        "lr_space": "exp",
        "topk": 1,
    },
    presets={"seemore_t": {}},
    aliases={"seemore": "seemore_t"},
    choices={"lr_space": ("linear", "exp", "double")},
    channels="in_chans",
    accepts=sides(minimum=16),
    kept_in_training=("MoELayer",),
)

CONVOLUTIONS = (PLKSR, REALPLKSR, MOSR, MOESR, RCAN, SAFMN, SEEMORE)
