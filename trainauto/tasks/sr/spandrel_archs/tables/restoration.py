"""Networks in the shape of a U, of which some keep the size of an image."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.plan import SizeRequirements
from trainauto.tasks.sr.spandrel_archs.table import LibraryNetwork


def _realcugan_class(arguments: Mapping[str, Any]) -> str:
    fast = "_fast" if arguments["fast"] else ""
    name = f"UpCunet{arguments['scale']}x{fast}"
    if name not in REALCUGAN.classes:
        raise ValueError("fast is for scale 2 alone")
    if fast and arguments["pro"]:
        raise ValueError("pro is not for a fast one")
    return name


def _realcugan_sides(arguments: Mapping[str, Any]) -> SizeRequirements:
    return SizeRequirements(minimum=40, multiple=4) if arguments["fast"] else SizeRequirements(minimum=32)


REALCUGAN = LibraryNetwork(
    architecture="RealCUGAN",
    module="spandrel.architectures.RealCUGAN.__arch.upcunet_v3",
    classes=("UpCunet4x", "UpCunet3x", "UpCunet2x", "UpCunet2x_fast"),
    summary="Real-CUGAN: two small U-nets in a row, for drawn images.",
    paper="bilibili, Real-CUGAN, https://github.com/bilibili/ailab.",
    defaults={"in_channels": 3, "out_channels": 3, "pro": False, "fast": False},
    presets={"realcugan": {}},
    scales=(2, 3, 4),
    channels="in_channels",
    accepts=_realcugan_sides,
    class_of=_realcugan_class,
    not_passed={
        "UpCunet4x": ("scale", "fast"),
        "UpCunet3x": ("scale", "fast"),
        "UpCunet2x": ("scale", "fast"),
        "UpCunet2x_fast": ("scale", "fast", "pro"),
    },
)

NAFNET = LibraryNetwork(
    architecture="NAFNet",
    module="spandrel.architectures.NAFNet.__arch.NAFNet_arch",
    classes=("NAFNet",),
    summary="NAFNet: a U-net without activations, for noise and blur at scale 1.",
    paper='L. Chen et al., "Simple Baselines for Image Restoration", ECCV 2022, https://arxiv.org/abs/2204.04676.',
    defaults={
        "img_channel": 3,
        "width": 64,
        "middle_blk_num": 12,
        "enc_blk_nums": [2, 2, 4, 8],
        "dec_blk_nums": [2, 2, 2, 2],
    },
    presets={"nafnet64": {}, "nafnet32": {"width": 32}},
    aliases={"nafnet": "nafnet64"},
    scales=(1,),
    channels="img_channel",
    windows=lambda arguments: (2 ** len(arguments["enc_blk_nums"]),),
    not_passed={"NAFNet": ("scale",)},
)

RESTORATION = (REALCUGAN, NAFNET)
