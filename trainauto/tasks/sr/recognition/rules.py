"""How the networks that are written here are told from names and shapes of their weights.

A rule looks at shapes by name and returns what it takes them for, or ``None``. It may be wrong about weights of a
variant; :func:`~.recognise.recognise` builds what it says and compares.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainauto.core.words import counted

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Guess:
    """What a rule takes weights for: names that could build it, and every argument that shapes tell."""

    title: str
    names: tuple[str, ...]
    scale: int | None
    sizes: tuple[str, ...]
    arguments: dict[str, Any]
    unsure: str = ""


def _count(shapes: Shapes, pattern: str) -> int:
    """Return how many different numbers stand in the group of a pattern, in names that it begins."""
    return len({match[1] for name in shapes if (match := re.match(pattern, name))})


def _root(number: float) -> int:
    """Return the nearest whole root; what is no square is found out when the network is built."""
    return max(1, round(math.sqrt(number)))


def _esrgan(shapes: Shapes) -> Guess | None:
    if "body.0.rdb1.conv1.weight" not in shapes or not {"conv_first.weight", "conv_last.weight"} <= shapes.keys():
        return None
    features, taken = shapes["conv_first.weight"][:2]
    given = shapes["conv_last.weight"][0]
    folded = {given * 4: 2, given * 16: 4}.get(taken, 1)
    enlargements = _count(shapes, r"conv_up(\d)\.weight")
    blocks, grown = _count(shapes, r"body\.(\d+)\."), shapes["body.0.rdb1.conv1.weight"][0]
    scale = max(1, 2**enlargements // folded)
    sizes = (f"{features} features", counted(blocks, "block"))
    arguments = {
        "num_in_ch": taken // folded**2,
        "num_out_ch": given,
        "num_feat": features,
        "num_block": blocks,
        "num_grow_ch": grown,
        "use_pixel_unshuffle": folded > 1 or scale > 2,
    }
    is_one = enlargements == folded == 1
    unsure = "scale 3 has the same names and shapes as scale 2 without folded pixels" if is_one else ""
    return Guess("ESRGAN", ("rrdbnet", "esrgan_lite"), scale, sizes, arguments, unsure)


def _compact(shapes: Shapes) -> Guess | None:
    layers = [int(match[1]) for name in shapes if (match := re.fullmatch(r"body\.(\d+)\.(?:weight|bias)", name))]
    if "body.0.weight" not in shapes or len(layers) != len(shapes):
        return None
    last = max(layers)
    features, taken = shapes["body.0.weight"][:2]
    convolutions, values = (last - 2) // 2, shapes[f"body.{last}.weight"][0]
    given = taken if _root(values / taken) ** 2 * taken == values else 3
    has_slopes = "body.1.weight" in shapes
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "num_feat": features,
        "num_conv": convolutions,
        "act_type": "prelu" if has_slopes else "relu",
    }
    sizes = (f"{features} features", counted(convolutions, "convolution"))
    unsure = "" if has_slopes else "act_type may be leakyrelu"
    names = ("compact", "ultracompact", "superultracompact")
    return Guess("Compact", names, _root(values / given), sizes, arguments, unsure)


def _span(shapes: Shapes) -> Guess | None:
    if not {"conv_1.sk.weight", "block_1.c1_r.sk.weight", "conv_cat.weight", "upsampler.0.weight"} <= shapes.keys():
        return None
    features, taken = shapes["conv_1.sk.weight"][:2]
    values = shapes["upsampler.0.weight"][0]
    given = taken if _root(values / taken) ** 2 * taken == values else 3
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "feature_channels": features,
        "norm": "no_norm" not in shapes,
    }
    return Guess("SPAN", ("span",), _root(values / given), (f"{features} features",), arguments)


_TABLE = "layers.{}.residual_group.blocks.0.attn.relative_position_bias_table"


def _swinir(shapes: Shapes) -> Guess | None:
    if "conv_first.weight" not in shapes or _TABLE.format(0) not in shapes:
        return None
    width, taken = shapes["conv_first.weight"][:2]
    groups = _count(shapes, r"layers\.(\d+)\.")
    depths = [_count(shapes, rf"layers\.{group}\.residual_group\.blocks\.(\d+)\.") for group in range(groups)]
    window = (_root(shapes[_TABLE.format(0)][0]) + 1) // 2
    upsampler, scale, given = _head(shapes, taken)
    windows = shapes.get("layers.0.residual_group.blocks.1.attn_mask", (0,))[0]
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "img_size": _root(windows) * window if windows else 8 * window,
        "embed_dim": width,
        "depths": depths,
        "num_heads": [shapes.get(_TABLE.format(group), (0, 0))[1] for group in range(groups)],
        "window_size": window,
        "mlp_ratio": shapes.get("layers.0.residual_group.blocks.0.mlp.fc1.weight", (0,))[0] / width,
        "qkv_bias": "layers.0.residual_group.blocks.0.attn.qkv.bias" in shapes,
        "img_range": 255.0 if window == 7 else 1.0,  # SwinIR's networks against JPEG, alone with such windows
        "upsampler": upsampler,
        "resi_connection": "1conv" if "conv_after_body.weight" in shapes else "3conv",
    }
    sizes = (f"{width} channels", counted(sum(depths), "block"), *([upsampler] if upsampler else []))
    return Guess("SwinIR", ("swinir", "swinir_light"), scale, sizes, arguments)


def _head(shapes: Shapes, taken: int) -> tuple[str, int, int]:
    """Return upsampler, scale and channels of the output of SwinIR; ``taken`` are those of its input."""
    if "conv_last.weight" not in shapes:
        values = shapes.get("upsample.0.weight", (taken,))[0]
        given = taken if _root(values / taken) ** 2 * taken == values else 3
        return "pixelshuffledirect", _root(values / given), given
    given = shapes["conv_last.weight"][0]
    if "conv_before_upsample.0.weight" not in shapes:
        return "", 1, given
    if "conv_up1.weight" in shapes:
        return "nearest+conv", 2 ** _count(shapes, r"conv_up(\d)\.weight"), given
    steps = [
        _root(shape[0] / shape[1]) for name, shape in shapes.items() if re.fullmatch(r"upsample\.\d+\.weight", name)
    ]
    return "pixelshuffle", math.prod(steps), given


def _unet_discriminator(shapes: Shapes) -> Guess | None:
    if not {"conv0.weight", "conv1.weight_orig", "conv9.weight"} <= shapes.keys():
        return None
    features, taken = shapes["conv0.weight"][:2]
    arguments = {"num_in_ch": taken, "num_feat": features}
    sizes = (f"{features} features",)
    return Guess("U-Net discriminator", ("unetdiscriminatorsn",), None, sizes, arguments)


RULES: tuple[Callable[[Shapes], Guess | None], ...] = (_esrgan, _compact, _span, _swinir, _unet_discriminator)
