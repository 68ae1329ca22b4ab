"""Transformers whose attention runs in windows of one size."""

from trainauto.tasks.sr.spandrel_archs.table import DOUBLING_SCALES, LibraryNetwork, sides, sides_of, windows_of

UPSAMPLERS = ("pixelshuffle", "pixelshuffledirect", "nearest+conv")
CONVOLUTIONS_OF_A_GROUP = ("1conv", "3conv")
ONE_OR_NONE = ("1conv", "identity")
NEVER_VARIED = ("norm_layer", "patch_size", "qk_scale", "ape", "patch_norm", "use_checkpoint")

HAT = LibraryNetwork(
    architecture="HAT",
    module="spandrel.architectures.HAT.__arch.HAT",
    classes=("HAT",),
    summary="HAT: attention over overlapping windows, with channel attention beside it.",
    paper='X. Chen et al., "Activating More Pixels in Image Super-Resolution Transformer", CVPR 2023, '
    "https://arxiv.org/abs/2205.04437.",
    defaults={
        "in_chans": 3,
        "img_size": 64,
        "img_range": 1.0,
        "embed_dim": 180,
        "depths": [6] * 6,
        "num_heads": [6] * 6,
        "window_size": 16,
        "compress_ratio": 3,
        "squeeze_factor": 30,
        "conv_scale": 0.01,
        "overlap_ratio": 0.5,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "upsampler": "pixelshuffle",
        "resi_connection": "1conv",
        "num_feat": 64,
    },
    presets={
        "hat_m": {},
        "hat_s": {"embed_dim": 144, "compress_ratio": 24, "squeeze_factor": 24},
        "hat_l": {"depths": [6] * 12, "num_heads": [6] * 12},
    },
    aliases={"hat": "hat_m"},
    renamed={"scale": "upscale"},
    choices={"upsampler": ("pixelshuffle",), "resi_connection": ONE_OR_NONE},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("window_size"),
    accepts=sides(minimum=16),
    left_out=NEVER_VARIED,
)

DRCT = LibraryNetwork(
    architecture="DRCT",
    module="spandrel.architectures.DRCT.__arch.drct_arch",
    classes=("DRCT",),
    summary="DRCT: window attention in dense groups, each seeing what those before it made.",
    paper='C.-C. Hsu et al., "DRCT: Saving Image Super-Resolution away from Information Bottleneck", CVPRW 2024, '
    "https://arxiv.org/abs/2404.00722.",
    defaults={
        "in_chans": 3,
        "img_size": 64,
        "img_range": 1.0,
        "embed_dim": 180,
        "depths": [6] * 6,
        "num_heads": [6] * 6,
        "window_size": 16,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "upsampler": "pixelshuffle",
        "resi_connection": "1conv",
        "gc": 32,
    },
    presets={
        "drct": {},
        "drct_l": {"depths": [6] * 12, "num_heads": [6] * 12},
        "drct_xl": {"depths": [6] * 14, "num_heads": [6] * 14},
    },
    renamed={"scale": "upscale"},
    choices={"upsampler": ("pixelshuffle",), "resi_connection": ONE_OR_NONE},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("window_size"),
    accepts=sides_of("window_size"),  # the library asks for 16, the window of the published ones
    left_out=("norm_layer", "patch_size", "qk_scale", "ape", "patch_norm"),
)

SRFORMER = LibraryNetwork(
    architecture="SRFormer",
    module="spandrel_extra_arches.architectures.SRFormer.__arch.SRFormer",
    classes=("SRFormer",),
    summary="SRFormer: attention in large windows whose keys and values are folded into channels.",
    paper='Y. Zhou et al., "SRFormer: Permuted Self-Attention for Single Image Super-Resolution", ICCV 2023, '
    "https://arxiv.org/abs/2303.09735.",
    defaults={
        "in_chans": 3,
        "img_size": 48,
        "img_range": 1.0,
        "embed_dim": 180,
        "depths": [6] * 6,
        "num_heads": [6] * 6,
        "window_size": 24,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "upsampler": "pixelshuffle",
        "resi_connection": "1conv",
    },
    presets={
        "srformer": {},
        # traiNNer's; the light one of the paper has embed_dim 60.
        "srformer_light": {
            "img_size": 64,
            "depths": [6] * 4,
            "num_heads": [6] * 4,
            "window_size": 16,
            "upsampler": "pixelshuffledirect",
        },
    },
    renamed={"scale": "upscale"},
    choices={"upsampler": UPSAMPLERS, "resi_connection": CONVOLUTIONS_OF_A_GROUP},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("window_size"),
    accepts=sides(minimum=16),
    left_out=NEVER_VARIED,
)

SWIN2SR = LibraryNetwork(
    architecture="Swin2SR",
    module="spandrel.architectures.Swin2SR.__arch.Swin2SR",
    classes=("Swin2SR",),
    summary="Swin2SR: SwinIR with the attention of Swin Transformer V2.",
    paper='M. Conde et al., "Swin2SR: SwinV2 Transformer for Compressed Image Super-Resolution and Restoration", '
    "ECCVW 2022, https://arxiv.org/abs/2209.11345.",
    defaults={
        "in_chans": 3,
        "img_size": 64,
        "img_range": 1.0,
        "embed_dim": 180,
        "depths": [6] * 6,
        "num_heads": [6] * 6,
        "window_size": 8,
        "mlp_ratio": 2.0,
        "qkv_bias": True,
        "drop_rate": 0.0,
        "attn_drop_rate": 0.0,
        "drop_path_rate": 0.1,
        "upsampler": "pixelshuffle",
        "resi_connection": "1conv",
    },
    presets={
        "swin2sr_m": {},
        "swin2sr_s": {
            "embed_dim": 60,
            "depths": [6] * 4,
            "num_heads": [6] * 4,
            "upsampler": "pixelshuffledirect",
        },
        "swin2sr_l": {
            "embed_dim": 240,
            "depths": [6] * 9,
            "num_heads": [8] * 9,
            "upsampler": "nearest+conv",
            "resi_connection": "3conv",
        },
    },
    aliases={"swin2sr": "swin2sr_m"},
    renamed={"scale": "upscale"},
    choices={"upsampler": UPSAMPLERS, "resi_connection": CONVOLUTIONS_OF_A_GROUP},
    scales=DOUBLING_SCALES,
    channels="in_chans",
    windows=windows_of("window_size"),
    accepts=sides(minimum=16),
    left_out=("norm_layer", "patch_size", "ape", "patch_norm", "use_checkpoint"),
)

WINDOW_ATTENTION = (HAT, DRCT, SRFORMER, SWIN2SR)
