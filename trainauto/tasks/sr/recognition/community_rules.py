"""How networks of traiNNer-redux and neosr that spandrel lacks are told from their weights; see :mod:`.rules`."""

import math
import re
from collections.abc import Callable
from typing import Any

from trainauto.core.words import counted
from trainauto.tasks.sr.recognition.rules import Guess, Shapes, _count, _given, _head, _ratio, _root, _shuffled


def _artcnn(shapes: Shapes) -> Guess | None:
    if not {"conv0.weight", "res_block.0.conv.0.0.weight", "depth_to_space.upscale.0.weight"} <= shapes.keys():
        return None
    filters, taken, kernel_size, _ = shapes["conv0.weight"]
    blocks = _count(shapes, r"res_block\.(\d+)\.conv\.")
    given, scale = _given(shapes["depth_to_space.upscale.0.weight"][0], taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "filters": filters,
        "n_block": blocks,
        "kernel_size": kernel_size,
    }
    sizes = (f"{filters} features", counted(blocks, "block"))
    return Guess("ArtCNN", ("artcnn_r16f96", "artcnn_r8f64"), scale, sizes, arguments)


def _rtmosr(shapes: Shapes) -> Guess | None:
    if not {"body.0.fc1.alpha", "body.0.conv.1.alpha1", "to_img.0.conv_3x3_rep.weight"} <= shapes.keys():
        return None
    is_folded = "to_feat.1.alpha" in shapes
    dim, values = shapes[f"to_feat.{'1.' if is_folded else ''}conv_3x3_rep.weight"][:2]
    enlarged = shapes["to_img.0.conv_3x3_rep.weight"][0]
    # Grey files are rare; of colours, folded pixels are 3 channels of 4 or of 16.
    taken = 3 if values % 3 == 0 else 1
    given, within = _given(enlarged, taken)
    blocks = _count(shapes, r"body\.(\d+)\.")
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        "ffn_expansion": _ratio(shapes["body.0.fc1.conv_3x3_rep.weight"][0] // 2, dim),
        "n_blocks": blocks,
        "dccm": "body.0.fc2.alpha" in shapes,
        "se": "body.0.conv.2.squeezing.0.weight" in shapes,
    }
    folded = _root(values / taken) if is_folded else 1
    scale = within // folded
    if scale < 4:
        arguments["unshuffle_mod"] = is_folded
    sizes = (f"{dim} features", counted(blocks, "block"))
    return Guess("RTMoSR", ("rtmosr", "rtmosr_l", "rtmosr_ul"), scale, sizes, arguments)


def _mosrv2(shapes: Shapes) -> Guess | None:
    first = "gblocks.0.weight" if "gblocks.0.weight" in shapes else "gblocks.1.weight"
    blocks = _count(shapes, r"gblocks\.(\d+)\.fc1\.")
    if first not in shapes or not blocks or not any(name.startswith("to_img.") for name in shapes):
        return None
    is_folded = first == "gblocks.1.weight"
    dim, values = shapes[first][:2]
    taken = 3 if values % 3 == 0 else 1
    upsampler, within, given, middle = uni_upsample_of(shapes, "to_img.", taken)
    norm = f"gblocks.{1 + is_folded}.norm.scale"
    fc1 = shapes[f"gblocks.{1 + is_folded}.fc1.weight"][0]
    folded = _root(values / taken) if is_folded else 1
    scale = within // folded
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "n_block": blocks,
        "dim": dim,
        "expansion_ratio": _ratio(fc1 // 2, dim),
        "rms_norm": norm in shapes,
    }
    arguments |= {"upsampler": upsampler} if upsampler else {}
    arguments |= {"mid_dim": middle} if middle else {}
    arguments |= {"unshuffle_mod": is_folded} if scale < 3 else {}
    sizes = (f"{dim} features", counted(blocks, "block"))
    return Guess("MoSRv2", ("mosrv2",), scale, sizes, arguments, *left_open(upsampler, within, META))


TRIPLED = "scale 3 has the same names and shapes as scale 2 with this head"


META = ("to_img.MetaUpsample", 2)
"""Where files hold the scale of a head of that name."""


def left_open(upsampler: str, scale: int, place: tuple[str, int]) -> tuple[str, dict[str, tuple[str, int]]]:
    """Return what shapes do not tell of a head, in words, and the place in a file that tells it."""
    is_open = upsampler in ("nearest+conv", "pa_up") and scale == 2
    return (TRIPLED, {"scale": place}) if is_open else ("", {})


EIMN_RATIO = 2.66
"""Of the published perceptrons; it is no fraction of whole channels."""
_HIT = "layers.{}.residual_group.blocks.{}."


def _hit(shapes: Shapes) -> Guess | None:
    first = _HIT.format(0, 0)
    if "conv_first.weight" not in shapes or f"{first}correlation.qv.linear.weight" not in shapes:
        return None
    width, taken = shapes["conv_first.weight"][:2]
    groups = _count(shapes, r"layers\.(\d+)\.")
    depths = [_count(shapes, rf"layers\.{group}\.residual_group\.blocks\.(\d+)\.") for group in range(groups)]
    heads = [shapes.get(_HIT.format(group, 0) + "correlation.pos.pos3.2.weight", (0,))[0] for group in range(groups)]
    upsampler, scale, given = _head(shapes, taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "embed_dim": width,
        "depths": depths,
        "num_heads": heads,
        "mlp_ratio": _ratio(shapes.get(f"{first}mlp.fc1.weight", (0,))[0], width),
        "upsampler": upsampler,
        "resi_connection": "1conv" if "conv_after_body.weight" in shapes else "3conv",
    }
    name = "hit_srf" if f"{first}mlp.dwconv.depthwise_conv.0.weight" in shapes else "hit_sir"
    if windows := shapes.get(f"{first}correlation.ngram_window_partition.ngram_context.unigram_embed.weight"):
        name, arguments["base_win_size"] = "hit_sng", [2 * windows[2], 2 * windows[3]]
    sizes = (f"{width} channels", counted(sum(depths), "block"), *([upsampler] if upsampler else []))
    return Guess("HiT-SR", (name,), scale, sizes, arguments)


def _lmlt(shapes: Shapes) -> Guess | None:
    wide = "feats.0.ccm.ccm.0.weight"
    if not {"to_feat.weight", "feats.0.lhsb.aggr.weight", wide, "to_img.0.weight"} <= shapes.keys():
        return None
    dim, taken = shapes["to_feat.weight"][:2]
    blocks = _count(shapes, r"feats\.(\d+)\.")
    given, scale = _given(shapes["to_img.0.weight"][0], taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        "n_blocks": blocks,
        "ffn_scale": _ratio(shapes[wide][0], dim),
    }
    sizes = (f"{dim} features", counted(blocks, "block"))
    return Guess("LMLT", ("lmlt_base", "lmlt_large", "lmlt_tiny"), scale, sizes, arguments)


def _elan(shapes: Shapes) -> Guess | None:
    first = "body.0.modules_lfe.lfe_0.conv0.shift_conv.conv1x1.weight"
    if not {"head.0.weight", "tail.0.weight", first} <= shapes.keys():
        return None
    width, taken = shapes["head.0.weight"][:2]
    blocks, shared = _count(shapes, r"body\.(\d+)\."), _count(shapes, r"body\.0\.modules_lfe\.lfe_(\d+)\.")
    given, scale = _given(shapes["tail.0.weight"][0], taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "m_elan": blocks * shared,
        "c_elan": width,
        "n_share": shared - 1,
        "r_expand": shapes[first][0] // width,
    }
    sizes = (f"{width} features", counted(blocks, "block"))
    return Guess("ELAN", ("elan", "elan_light"), scale, sizes, arguments, "window_sizes has no weights")


def _escreal(shapes: Shapes) -> Guess | None:
    is_folded = "proj.1.weight" in shapes
    first, table = f"proj.{'1.' if is_folded else ''}weight", "blocks.0.attn.relative_position_bias"
    expanded = "blocks.0.convffns.0.proj.weight"
    if not {first, table, expanded, "plk_filter", "last.weight"} <= shapes.keys():
        return None
    dim, values = shapes[first][:2]
    taken = 3 if values % 3 == 0 else 1
    folded = _root(values / taken) if is_folded else 1
    upsampler, within, given, middle = uni_upsample_of(shapes, "to_img.", taken)
    heads, offsets = shapes[table]
    blocks = _count(shapes, r"blocks\.(\d+)\.")
    scale = within // folded
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        "pdim": shapes["plk_filter"][0],
        "kernel_size": shapes["plk_filter"][2],
        "n_blocks": blocks,
        "conv_blocks": _count(shapes, r"blocks\.0\.convffns\.(\d+)\."),
        "window_size": (_root(offsets) + 1) // 2,
        "num_heads": heads,
        "exp_ratio": _ratio(shapes[expanded][0], dim),
    }
    arguments |= {"upsampler": upsampler} if upsampler else {}
    arguments |= {"mid_dim": middle} if middle else {}
    arguments |= {"unshuffle_mod": is_folded} if scale < 3 else {}
    sizes = (f"{dim} features", counted(blocks, "block"))
    return Guess("ESC-Real", ("escrealm", "escrealm_xl"), scale, sizes, arguments, *left_open(upsampler, within, META))


def _lkfmixer(shapes: Shapes) -> Guess | None:
    first, head = "layers.layers.0.FDB.c1_r.PLKB.DWConv_Kx1.weight", "upsampler.upsampleOneStep.0.weight"
    if not {"conv_first.weight", first, head} <= shapes.keys():
        return None
    channels, taken = shapes["conv_first.weight"][:2]
    blocks = _count(shapes, r"layers\.layers\.(\d+)\.")
    given, scale = _given(shapes[head][0], taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "channels": channels,
        "num_block": blocks,
        "large_kernel": shapes[first][2],
        "split_factor": _ratio(shapes[first][0], channels),
    }
    sizes = (f"{channels} features", counted(blocks, "block"))
    return Guess("LKFMixer", ("lkfmixer_b", "lkfmixer_l", "lkfmixer_t"), scale, sizes, arguments)


def _flexnet(shapes: Shapes) -> Guess | None:
    if not {"in_to_feat.weight", "short_cut.conv11.weight", "window_size"} <= shapes.keys():
        return None
    dim, taken = shapes["in_to_feat.weight"][:2]
    is_meta = "pipeline.enc0.0.conv.conv11.weight" in shapes
    pattern, groups = (r"pipeline\.enc{}\.0", 4) if is_meta else (r"pipeline\.att\.{}", 0)
    groups = groups or _count(shapes, r"pipeline\.att\.(\d+)\.")
    depths = [_count(shapes, pattern.format(group) + r"\.t_blocks\.(\d+)\.") for group in range(groups)]
    first = f"pipeline.{'enc0.0' if is_meta else 'att.0'}.t_blocks.0.ffn"
    upsampler, scale, given = _flexnet_head(shapes, taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        "num_blocks": depths,
        "hidden_rate": shapes.get(f"{first}.key.weight", (0,))[0] // dim,
        "channel_norm": f"{first}.key_norm.weight" in shapes,
        "pipeline_type": "meta" if is_meta else "linear",
        "upsampler": upsampler,
    }
    sizes = (f"{dim} features", counted(sum(depths), "block"))
    return Guess(
        "FlexNet",
        ("flexnet", "metaflexnet"),
        scale,
        sizes,
        arguments,
        *left_open(upsampler, scale, ("scale_factor", 0)),
    )


def _flexnet_head(shapes: Shapes, taken: int) -> tuple[str, int, int]:
    """Return head, scale and channels of the output of FlexNet."""
    if "scale_factor" in shapes:
        _, scale, given, _ = uni_upsample_of(shapes, "to_img.1.", taken)
        return "nearest+conv", scale, given
    if "to_img.offset.weight" in shapes:
        _, scale, given, _ = uni_upsample_of(shapes, "to_img.", taken)
        return "dysample", scale, given
    given, scale = _given(shapes.get("to_img.0.weight", (taken,))[0], taken)
    return "pixelshuffle", scale, given


def _gaterv3(shapes: Shapes) -> Guess | None:
    if not {"in_to_dim.weight", "span_block0.c1_r.sk.weight", "latent.0.fc1.weight"} <= shapes.keys():
        return None
    dim, taken = shapes["in_to_dim.weight"][:2]
    levels = _count(shapes, r"gater_encode\.(\d+)\.")
    depths = {
        f"{name}_blocks": [_count(shapes, rf"{part}\.{level}\.gated\.(\d+)\.") for level in range(levels)]
        for name, part in (("enc", "gater_encode"), ("dec", "decode"))
    }
    upsampler, scale, given, middle = "", 1, shapes.get("dim_to_in.weight", (0,))[0], 0
    if not given:
        upsampler, scale, given, middle = uni_upsample_of(shapes, "dim_to_in.", taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        **depths,
        "num_latent": _count(shapes, r"latent\.(\d+)\."),
        "attention": "latent.0.token_mix.temperature" in shapes,
        "sisr_blocks": _count(shapes, r"span_n_b\.(\d+)\."),
    }
    arguments |= {"upsample": upsampler} if upsampler else {}
    arguments |= {"upsample_mid_dim": middle} if middle else {}
    sizes = (f"{dim} features", counted(levels, "level"))
    unsure, held = left_open(upsampler, scale, ("dim_to_in.MetaUpsample", 2))
    held |= {"flash": ("latent.0.token_mix.flash", 0)}
    return Guess("GaterV3", ("gaterv3_r", "gaterv3_s"), scale, sizes, arguments, unsure, held)


def _esc(shapes: Shapes) -> Guess | None:
    table, expanded = "blocks.0.attn.relative_position_bias", "blocks.0.convffns.0.proj.weight"
    is_fp = "lk_spatial" in shapes
    kernel = "lk_spatial" if is_fp else "plk_filter"
    if not {"proj.weight", table, expanded, kernel, "last.weight"} <= shapes.keys():
        return None
    dim, taken = shapes["proj.weight"][:2]
    heads, offsets = shapes[table]
    blocks, is_real = _count(shapes, r"blocks\.(\d+)\."), "skip.0.weight" in shapes
    given, scale = _esc_head(shapes, taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        "pdim": shapes[kernel][0],
        "kernel_size": shapes[kernel][2],
        "n_blocks": blocks,
        "conv_blocks": _count(shapes, r"blocks\.0\.convffns\.(\d+)\."),
        "window_size": (_root(offsets) + 1) // 2,
        "num_heads": heads,
        "exp_ratio": _ratio(shapes[expanded][0], dim),
        "is_fp": is_fp,
        "use_dysample": "to_img.offset.weight" in shapes,
        "realsr": is_real,
        "authors_head": "to_img.4.weight" in shapes,
    }
    arguments |= {} if is_fp or is_real else {"use_ln": "blocks.0.lns.0.weight" in shapes}
    sizes = (f"{dim} features", counted(blocks, "block"))
    return Guess("ESC", ("esc", "esc_light", "esc_fp", "esc_large"), scale, sizes, arguments)


def _esc_head(shapes: Shapes, taken: int) -> tuple[int, int]:
    """Return channels of the output and scale of ESC."""
    if "to_img.weight" in shapes:
        return _given(shapes["to_img.weight"][0], taken)
    if "to_img.offset.weight" in shapes:
        return shapes.get("to_img.end_conv.weight", (taken,))[0], _root(shapes["to_img.offset.weight"][0] / 8)
    places = [int(match[1]) for name in shapes if (match := re.fullmatch(r"to_img\.(\d+)\.weight", name))]
    last = max(places, default=0)
    doublings = (last - 2) // 3 if "to_img.4.weight" in shapes else last // 5
    return shapes.get(f"to_img.{last}.weight", (taken,))[0], 2**doublings


def uni_upsample_of(shapes: Shapes, prefix: str, taken: int) -> tuple[str, int, int, int]:
    """Return head, scale, channels of the output and channels in between of :class:`~..archs.uni_upsample.UniUpsample`.

    The head is an empty text at scale 1, where all are the same; there may be no channels in between (0). What is taken
    for scale 2 of ``nearest+conv`` and ``pa_up`` may be scale 3, see :data:`TRIPLED`.
    """
    own = {name.removeprefix(prefix): shape for name, shape in shapes.items() if name.startswith(prefix)}
    places = sorted(int(name[:-7]) for name in own if re.fullmatch(r"\d+\.weight", name))
    offset = next((name for name in own if name.endswith("offset.weight")), "")
    if offset:
        values, middle = own[offset][:2]
        given = own.get(offset.replace("offset", "end_conv"), (taken,))[0]
        return "dysample", _root(values / 8), given, middle if places else 0
    if not places:
        return "", 1, taken, 0
    first, last = own[f"{places[0]}.weight"], own[f"{places[-1]}.weight"]
    if places == [0]:
        given, scale = _given(first[0], taken)
        return "pixelshuffledirect" if scale > 1 else "", scale, given, 0
    if places[0] == 1:
        return "pa_up", 2 ** ((len(places) - 1) // 2), last[0], last[1]
    if places == [0, 1]:
        return "transpose+conv", 2 if first[2] == 4 else 3, last[0], 0
    if places == [0, 2, 3] and first[2] == 4:
        return "transpose+conv", 4, last[0], 0
    if places[1] == 2:
        steps = (_root(own[f"{place}.weight"][0] / first[0]) for place in places[1:-1])
        return "pixelshuffle", math.prod(steps), last[0], first[0]
    return "nearest+conv", 2 ** (len(places) - 2), last[0], 0


def _eimn(shapes: Shapes) -> Guess | None:
    first = "block1.0.mlp.linear_out.weight"
    if not {"head.0.weight", "tail.0.weight", first, "norm1.weight"} <= shapes.keys():
        return None
    dim, taken = shapes["head.0.weight"][:2]
    stages, depths = _count(shapes, r"block(\d+)\."), _count(shapes, r"block1\.(\d+)\.")
    given, scale = _given(shapes["tail.0.weight"][0], taken)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "embed_dims": dim,
        "depths": depths,
        "num_stages": stages,
    }
    if (hidden := shapes[first][1]) != int(dim * EIMN_RATIO):
        arguments["mlp_ratios"] = _ratio(hidden, dim)
    sizes = (f"{dim} features", counted(stages * depths, "block"))
    return Guess("EIMN", ("eimn_l", "eimn_a"), scale, sizes, arguments)


def _dis(shapes: Shapes) -> Guess | None:
    if not {"head.weight", "head_act.weight", "fusion.weight", "tail.weight"} <= shapes.keys():
        return None
    features, taken = shapes["head.weight"][:2]
    blocks = _count(shapes, r"body\.(\d+)\.")
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": shapes["tail.weight"][0],
        "num_features": features,
        "num_blocks": blocks,
        "use_depthwise": "body.0.dw_conv.depthwise.weight" in shapes,
    }
    sizes = (f"{features} features", counted(blocks, "block"))
    scale = _shuffled(shapes, r"upsampler\.(?:\d\.)?conv")
    return Guess("DIS", ("dis_balanced", "dis_fast"), scale, sizes, arguments)


def _sebica(shapes: Shapes) -> Guess | None:
    if not {"head.0.weight", "body.0.attn.spatial_attention.0.weight", "tail.0.weight"} <= shapes.keys():
        return None
    width, taken = shapes["head.0.weight"][:2]
    given, scale = _given(shapes["tail.0.weight"][0], taken)
    blocks = _count(shapes, r"body\.(\d+)\.")
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "N": width,
        "mini": "body.0.attn.channel_attention.1.weight" in shapes,
    }
    sizes = (f"{width} features", counted(blocks, "block"))
    return Guess("Sebica", ("sebica", "sebica_mini"), scale, sizes, arguments)


def _cascadedgaze(shapes: Shapes) -> Guess | None:
    cascade = r"encoders\.{}\.0\.GCE\.depthwise_separable_convs\.(\d+)\."
    levels = _count(shapes, r"encoders\.(\d+)\.0\.GCE\.")
    if not levels or not {"intro.weight", "ending.weight"} <= shapes.keys():
        return None
    width, taken = shapes["intro.weight"][:2]
    encoders = [_count(shapes, rf"encoders\.{level}\.(\d+)\.") for level in range(levels)]
    decoders = [_count(shapes, rf"decoders\.{level}\.(\d+)\.") for level in range(levels)]
    middle = _count(shapes, r"middle_blks\.(\d+)\.")
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": shapes["ending.weight"][0],
        "width": width,
        "middle_blk_num": middle,
        "enc_blk_nums": encoders,
        "dec_blk_nums": decoders,
        "GCE_CONVS_nums": [_count(shapes, cascade.format(level)) for level in range(levels)],
    }
    sizes = (f"{width} features", counted(sum(encoders) + middle + sum(decoders), "block"))
    return Guess("CascadedGaze", ("cascadedgaze",), 1, sizes, arguments)


def _scunet_aaf6aa(shapes: Shapes) -> Guess | None:
    table = shapes.get("m_down1.0.trans_block.msa.relative_position_params", ())
    if len(table) != 3 or not {"m_head.0.weight", "m_tail.0.weight"} <= shapes.keys():
        return None
    dim, taken = shapes["m_head.0.weight"][:2]
    stages = ("m_down1", "m_down2", "m_down3", "m_body", "m_up3", "m_up2", "m_up1")
    blocks = [_count(shapes, rf"{stage}\.(\d+)\.trans_block\.") for stage in stages]
    enlargements = _count(shapes, r"m_upsample\.0\.up\.(\d+)\.weight") - 1
    scale = 2 ** max(enlargements, 0)
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": shapes["m_tail.0.weight"][0],
        "config": blocks,
        "dim": dim,
        "residual": "m_res.0.weight" in shapes,
        "head_dim": dim // 2 // table[0],
    }
    sizes = (f"{dim} features", counted(sum(blocks), "block"))
    unsure = "input_resolution may be 64, which shifts fewer blocks" if scale > 1 else ""
    if "m_res.0.weight" not in shapes and scale == 1:
        unsure = "the original SCUNet has the same weights, and pads images by less"
    return Guess("SCUNet", ("scunet_aaf6aa",), scale, sizes, arguments, unsure)


def _emt(shapes: Shapes) -> Guess | None:
    first = "body.0.mlp_list.0.fc1.weight"
    if not {"head.weight", first, "add_mean.bias", "tail.0.weight"} <= shapes.keys():
        return None
    dim, taken = shapes["head.weight"][:2]
    given, blocks = shapes["add_mean.bias"][0], _count(shapes, r"body\.(\d+)\.")
    arguments: dict[str, Any] = {
        "num_in_ch": taken,
        "num_out_ch": given,
        "dim": dim,
        "n_blocks": blocks,
        "n_layers": _count(shapes, r"body\.0\.mlp_list\.(\d+)\."),
        "n_GTLs": _count(shapes, r"body\.0\.sa_list\.(\d+)\.proj\."),
        "num_heads": next((heads for heads in (3, 2) if dim % (2 * heads) == 0), 1),
        "mlp_ratio": shapes[first][0] // dim,
    }
    scale = _shuffled(shapes, r"tail\.\d+")
    if "tail.2.weight" not in shapes:
        scale = _root(shapes["tail.0.weight"][0] / given)
        arguments |= {"upsampler": "pixelshuffledirect"} if scale > 1 else {}
    sizes = (f"{dim} features", counted(blocks, "block"))
    unsure = "num_heads, window_list and shift_list have no weights" if arguments["n_GTLs"] else ""
    return Guess("EMT", ("emt",), scale, sizes, arguments, unsure)


COMMUNITY_RULES: tuple[Callable[[Shapes], Guess | None], ...] = (
    _artcnn,
    _rtmosr,
    _mosrv2,
    _hit,
    _lmlt,
    _elan,
    _escreal,
    _esc,
    _gaterv3,
    _flexnet,
    _lkfmixer,
    _eimn,
    _dis,
    _sebica,
    _cascadedgaze,
    _scunet_aaf6aa,
    _emt,
)
