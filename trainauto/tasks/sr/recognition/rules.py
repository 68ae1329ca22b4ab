"""How the networks that are written here are told from names and shapes of their weights.

A rule looks at shapes by name and returns what it takes them for, or ``None``. It may be wrong about weights of a
variant; :func:`~.recognise.recognise` builds what it says and compares.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.words import counted

Shapes = Mapping[str, tuple[int, ...]]
EDSR_LARGE = 256
"""Features of the published EDSR whose blocks are scaled by 0.1."""


@dataclass(frozen=True)
class Guess:
    """What a rule takes weights for: names that could build it, and every argument that shapes tell.

    ``held`` says which entry of a file, and which of its numbers, tells an argument (or ``scale``) that shapes do not.
    """

    title: str
    names: tuple[str, ...]
    scale: int | None
    sizes: tuple[str, ...]
    arguments: dict[str, Any]
    unsure: str = ""
    held: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def _count(shapes: Shapes, pattern: str) -> int:
    """Return how many different numbers stand in the group of a pattern, in names that it begins."""
    return len({match[1] for name in shapes if (match := re.match(pattern, name))})


def _root(number: float) -> int:
    """Return the nearest whole root; what is no square is found out when the network is built."""
    return max(1, round(math.sqrt(number)))


def _ratio(part: int, whole: int) -> float:
    """Return a number whose product with ``whole``, rounded down as networks do, is ``part``."""
    ratio = part / whole
    return ratio if int(whole * ratio) == part else (part + 0.5) / whole


def _given(values: int, taken: int) -> tuple[int, int]:
    """Return channels of the output and scale of a pixel shuffle of so many values a pixel.

    Args:
        values: channels before it.
        taken: channels of the network's input, of which the output has as many, or 3, or 1.
    """
    given = next((channels for channels in (taken, 3, 1) if _root(values / channels) ** 2 * channels == values), 3)
    return given, _root(values / given)


def _shuffled(shapes: Shapes, layers: str) -> int:
    """Return by how much convolutions before pixel shuffles, whose names match, enlarge together."""
    return math.prod(
        _root(shape[0] / shape[1]) for name, shape in shapes.items() if re.fullmatch(rf"{layers}\.weight", name)
    )


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
    convolutions = (last - 2) // 2
    given, scale = _given(shapes[f"body.{last}.weight"][0], taken)
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
    return Guess("Compact", names, scale, sizes, arguments, unsure)


def _span(shapes: Shapes) -> Guess | None:
    if not {"conv_1.sk.weight", "block_1.c1_r.sk.weight", "conv_cat.weight", "upsampler.0.weight"} <= shapes.keys():
        return None
    features, taken = shapes["conv_1.sk.weight"][:2]
    given, scale = _given(shapes["upsampler.0.weight"][0], taken)
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "feature_channels": features,
        "norm": "no_norm" not in shapes,
    }
    return Guess("SPAN", ("span", "span_s"), scale, (f"{features} features",), arguments)


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
        "mlp_ratio": _ratio(shapes.get("layers.0.residual_group.blocks.0.mlp.fc1.weight", (0,))[0], width),
        "qkv_bias": "layers.0.residual_group.blocks.0.attn.qkv.bias" in shapes,
        "img_range": 255.0 if window == 7 else 1.0,  # SwinIR's networks against JPEG, alone with such windows
        "upsampler": upsampler,
        "resi_connection": "1conv" if "conv_after_body.weight" in shapes else "3conv",
    }
    sizes = (f"{width} channels", counted(sum(depths), "block"), *([upsampler] if upsampler else []))
    return Guess("SwinIR", ("swinir", "swinir_light", "swinir_l"), scale, sizes, arguments)


def _head(shapes: Shapes, taken: int) -> tuple[str, int, int]:
    """Return upsampler, scale and channels of the output of SwinIR; ``taken`` are those of its input."""
    if "conv_last.weight" not in shapes:
        given, scale = _given(shapes.get("upsample.0.weight", (taken,))[0], taken)
        return "pixelshuffledirect", scale, given
    given = shapes["conv_last.weight"][0]
    if "conv_before_upsample.0.weight" not in shapes:
        return "", 1, given
    if "conv_up1.weight" in shapes:
        return "nearest+conv", 2 ** _count(shapes, r"conv_up(\d)\.weight"), given
    return "pixelshuffle", _shuffled(shapes, r"upsample\.\d+"), given


def _unet_discriminator(shapes: Shapes) -> Guess | None:
    if not {"conv0.weight", "conv1.weight_orig", "conv9.weight"} <= shapes.keys():
        return None
    features, taken = shapes["conv0.weight"][:2]
    arguments = {"num_in_ch": taken, "num_feat": features}
    sizes = (f"{features} features",)
    return Guess("U-Net discriminator", ("unetdiscriminatorsn",), None, sizes, arguments)


def _edsr(shapes: Shapes) -> Guess | None:
    needed = {"conv_first.weight", "body.0.conv1.weight", "conv_after_body.weight", "conv_last.weight"}
    if not needed <= shapes.keys():
        return None
    features, blocks = shapes["conv_first.weight"][0], _count(shapes, r"body\.(\d+)\.")
    arguments = {
        "num_in_ch": shapes["conv_first.weight"][1],
        "num_out_ch": shapes["conv_last.weight"][0],
        "num_feat": features,
        "num_block": blocks,
        "res_scale": 0.1 if features >= EDSR_LARGE else 1.0,
    }
    sizes = (f"{features} features", counted(blocks, "block"))
    return Guess("EDSR", ("edsr",), _shuffled(shapes, r"upsample\.\d+"), sizes, arguments, "res_scale may be another")


def _msrresnet(shapes: Shapes) -> Guess | None:
    if not {"conv_first.weight", "body.0.conv1.weight", "conv_hr.weight", "conv_last.weight"} <= shapes.keys():
        return None
    features, blocks = shapes["conv_first.weight"][0], _count(shapes, r"body\.(\d+)\.")
    arguments = {
        "num_in_ch": shapes["conv_first.weight"][1],
        "num_out_ch": shapes["conv_last.weight"][0],
        "num_feat": features,
        "num_block": blocks,
    }
    sizes = (f"{features} features", counted(blocks, "block"))
    return Guess("MSRResNet", ("msrresnet",), _shuffled(shapes, r"upconv\d"), sizes, arguments)


def _ecbsr(shapes: Shapes) -> Guess | None:
    blocks = _count(shapes, r"backbone\.(\d+)\.")
    last = f"backbone.{blocks - 1}.conv3x3.weight"
    if not {"backbone.0.conv3x3.weight", "backbone.0.conv1x1_sbx.mask", last} <= shapes.keys():
        return None
    features, taken = shapes["backbone.0.conv3x3.weight"][:2]
    given, scale = _given(shapes[last][0], taken)
    has_slopes = "backbone.0.act.weight" in shapes
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "num_block": blocks - 2,
        "num_channel": features,
        "act_type": "prelu" if has_slopes else "relu",
    }
    sizes = (f"{features} features", counted(blocks - 2, "block"))
    unsure = "with_idt may be true" if has_slopes else "with_idt may be true, and act_type rrelu, softplus or linear"
    return Guess("ECBSR", ("ecbsr",), scale, sizes, arguments, unsure)


def _spanplus(shapes: Shapes) -> Guess | None:
    if not {"feats.0.sk.weight", "feats.1.block_1.c1_r.sk.weight", "feats.1.conv_cat.weight"} <= shapes.keys():
        return None
    features, taken = shapes["feats.0.sk.weight"][:2]
    groups = _count(shapes, r"feats\.(\d+)\.block_1")
    blocks = [_count(shapes, rf"feats\.{group}\.block_n\.(\d+)\.") for group in range(1, groups + 1)]
    if "upsampler.end_conv.weight" in shapes:
        upsampler, given = "dys", shapes["upsampler.end_conv.weight"][0]
        scale = _root(shapes.get("upsampler.offset.weight", (8,))[0] / 8)
    elif "upsampler.0.weight" in shapes:
        upsampler, (given, scale) = "ps", _given(shapes["upsampler.0.weight"][0], taken)
    else:
        upsampler, given, scale = "conv", shapes.get("upsampler.weight", (taken,))[0], 1
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "blocks": blocks,
        "feature_channels": features,
        "upsampler": upsampler,
    }
    sizes = (f"{features} features", counted(sum(blocks) + 2 * groups, "block"), upsampler)
    names = ("spanplus", "spanplus_s", "spanplus_st", "spanplus_sts")
    return Guess("SPANPlus", names, scale, sizes, arguments)


def _man(shapes: Shapes) -> Guess | None:
    if not {"head.weight", "body.0.body.0.LKA.LKA7.0.weight", "tail.0.weight"} <= shapes.keys():
        return None
    features, taken = shapes["head.weight"][:2]
    groups, blocks = _count(shapes, r"body\.(\d+)\."), _count(shapes, r"body\.0\.body\.(\d+)\.")
    given, scale = _given(shapes["tail.0.weight"][0], taken)
    arguments = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "n_resblocks": blocks,
        "n_resgroups": groups,
        "n_feats": features,
        "norm": "sub_mean.weight" in shapes,
    }
    sizes = (f"{features} features", counted(groups * blocks, "block"))
    return Guess("MAN", ("man", "man_light", "man_tiny"), scale, sizes, arguments)


RULES: tuple[Callable[[Shapes], Guess | None], ...] = (
    _esrgan,
    _compact,
    _span,
    _swinir,
    _edsr,
    _msrresnet,
    _ecbsr,
    _spanplus,
    _man,
    _unet_discriminator,
)
