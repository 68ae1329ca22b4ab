"""Small networks with attention of some kind."""

from trainauto.tasks.sr.spandrel_archs.table import DOUBLING_SCALES, LibraryNetwork, sides, sides_of, windows_of

OMNISR = LibraryNetwork(
    architecture="OmniSR",
    module="spandrel.architectures.OmniSR.__arch.OmniSR",
    classes=("OmniSR",),
    summary="OmniSR: small, with attention over places and channels at once, in windows and in grids.",
    paper='H. Wang et al., "Omni Aggregation Networks for Lightweight Image Super-Resolution", CVPR 2023, '
    "https://arxiv.org/abs/2304.10244.",
    defaults={
        "num_in_ch": 3,
        "num_out_ch": 3,
        "num_feat": 64,
        "block_num": 1,
        "pe": True,
        "window_size": 8,
        "res_num": 5,
        "bias": True,
    },
    presets={"omnisr": {}},
    renamed={"scale": "up_scale"},
    channels="num_in_ch",
    windows=windows_of("window_size"),
    accepts=sides(minimum=16),
)

CRAFT = LibraryNetwork(
    architecture="CRAFT",
    module="spandrel.architectures.CRAFT.__arch.CRAFT",
    classes=("CRAFT",),
    summary="CRAFT: window attention that is led by high frequencies.",
    paper='A. Li et al., "Feature Modulation Transformer: Cross-Refinement of Global Representation via '
    'High-Frequency Prior for Image Super-Resolution", ICCV 2023, https://arxiv.org/abs/2308.05022.',
    defaults={
        "in_chans": 3,
        "img_range": 1.0,
        "window_size": 16,
        "embed_dim": 48,
        "depths": [2] * 4,
        "num_heads": [6] * 4,
        "split_size_0": 4,
        "split_size_1": 16,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "resi_connection": "1conv",
    },
    presets={"craft": {}},
    renamed={"scale": "upscale"},
    choices={"resi_connection": ("1conv", "identity")},
    channels="in_chans",
    windows=windows_of("window_size", "split_size_0", "split_size_1"),
    accepts=sides(minimum=16, multiple=16),
    left_out=("norm_layer", "qk_scale"),
)

DCTLSA = LibraryNetwork(
    architecture="DCTLSA",
    module="spandrel.architectures.DCTLSA.__arch.dctlsa",
    classes=("DCTLSA",),
    summary="DCTLSA: dense groups with attention over scaled windows; it has BatchNorm.",
    paper='K. Zeng et al., "Densely Connected Transformer With Linear Self-Attention for Lightweight Image '
    'Super-Resolution", IEEE Transactions on Instrumentation and Measurement, 2023.',
    defaults={"in_nc": 3, "out_nc": 3, "nf": 55, "num_modules": 6, "num_head": 5},
    presets={"dctlsa": {}},
    renamed={"scale": "upscale"},
    choices={"num_modules": (6,)},  # the library's forward has six written out
    channels="in_nc",
    accepts=sides(minimum=16),
)

DITN = LibraryNetwork(
    architecture="DITN",
    module="spandrel.architectures.DITN.__arch.DITN_Real",
    classes=("DITN_Real",),
    summary="DITN: attention within patches and between them, made for deployment.",
    paper='X. Liu et al., "Unfolding Once is Enough: A Deployment-Friendly Transformer Unit for Super-Resolution", '
    "ACM MM 2023, https://arxiv.org/abs/2308.02794.",
    defaults={
        "inp_channels": 3,
        "dim": 60,
        "ITL_blocks": 4,
        "SAL_blocks": 4,
        "UFONE_blocks": 1,
        "ffn_expansion_factor": 2,
        "bias": False,
        "LayerNorm_type": "WithBias",
        "patch_size": 8,
    },
    presets={"ditn_real": {}},
    aliases={"ditn": "ditn_real"},
    renamed={"scale": "upscale"},
    choices={"LayerNorm_type": ("WithBias", "BiasFree")},
    channels="inp_channels",
    windows=windows_of("patch_size"),
    accepts=sides_of("patch_size"),
)

FDAT_UPSAMPLERS = (
    "conv",
    "pixelshuffledirect",
    "pixelshuffle",
    "nearest+conv",
    "dysample",
    "transpose+conv",
    "lda",
    "pa_up",
)

FDAT = LibraryNetwork(
    architecture="FDAT",
    module="spandrel.architectures.FDAT.__arch.fdat",
    classes=("FDAT",),
    summary="FDAT: a fast DAT, with attention over windows and over channels by turns.",
    paper="traiNNer-redux and spandrel, which it was published with.",
    defaults={
        "num_in_ch": 3,
        "num_out_ch": 3,
        "embed_dim": 120,
        "num_groups": 4,
        "depth_per_group": 3,
        "num_heads": 4,
        "window_size": 8,
        "ffn_expansion_ratio": 2.0,
        "aim_reduction_ratio": 8,
        "drop_path_rate": 0.1,
        "mid_dim": 64,
        "upsampler_type": "transpose+conv",
        "img_range": 1.0,
        "unshuffle_mod": False,
    },
    presets={
        "fdat_medium": {},
        "fdat_tiny": {
            "embed_dim": 96,
            "num_groups": 2,
            "depth_per_group": 2,
            "num_heads": 3,
            "ffn_expansion_ratio": 1.5,
            "drop_path_rate": 0.05,
        },
        "fdat_light": {"embed_dim": 108, "num_groups": 3, "depth_per_group": 2, "drop_path_rate": 0.08},
        "fdat_large": {"embed_dim": 180, "depth_per_group": 4, "num_heads": 6},
        "fdat_xl": {"embed_dim": 180, "num_groups": 6, "depth_per_group": 6, "num_heads": 6},
    },
    aliases={"fdat": "fdat_medium"},
    choices={"upsampler_type": FDAT_UPSAMPLERS},
    scales=DOUBLING_SCALES,
    channels="num_in_ch",
    windows=windows_of("window_size"),
    left_out=("group_block_pattern",),
    # Blocks by turns weigh places by channels and channels by places, and hold the weights of both.
    unread=r"groups\.\d+\.blocks\.(\d*[02468]\.inter\.sg|\d*[13579]\.inter\.cg)\..*",
)

LIGHT_ATTENTION = (OMNISR, CRAFT, DCTLSA, DITN, FDAT)
