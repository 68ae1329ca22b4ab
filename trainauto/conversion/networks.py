"""Networks: their names here, their arguments, and which of their defaults differ."""

from collections.abc import Mapping
from typing import Any

from trainauto.conversion.answers import ITS_NAME
from trainauto.conversion.draft import Draft
from trainauto.conversion.known import near_argument
from trainauto.options.foreign_files import Project
from trainauto.options.source_locations import KeyPath
from trainauto.tasks.sr.archs.foreign_networks import NAMES, OF_VIDEO, nearest_to

SCALES = ("scale", "sr_rate", "upscale", "upscaling_factor", "upsampling", "up_scale")
CHANNELS_IN = (
    "num_in_ch",
    "in_chans",
    "in_nc",
    "in_ch",
    "inp_channels",
    "n_colors",
    "in_channels",
    "input_nc",
    "img_channel",
)
CHANNELS_OUT = ("num_out_ch", "out_chans", "out_nc", "out_ch", "out_channels")
CHECKPOINTING = ("use_chk", "use_checkpoint", "fairscale_checkpoint")
MEAN_OF_DIV2K = [0.4488, 0.4371, 0.4040]
SAME_WORDS = (CHANNELS_IN, CHANNELS_OUT, ("num_feat", "num_filters", "dim"), ("num_block", "num_blocks"))
"""Words for the same argument, of which a network takes one."""

_RCAN = {
    "num_feat": "n_feats",
    "num_group": "n_resgroups",
    "num_block": "n_resblocks",
    "squeeze_factor": "reduction",
    "img_range": "rgb_range",
}
RENAMED: Mapping[tuple[Project, str], Mapping[str, str]] = {(Project.BASICSR, "rcan"): _RCAN}
"""Arguments of theirs that have other names here, by the network's name here."""

_FOUR, _SIX = [6, 6, 6, 6], [6, 6, 6, 6, 6, 6]
_GRL = {"window_size": 8, "stripe_size": [8, None], "stripe_groups": [None, 4]}
DEFAULTS: Mapping[tuple[Project, str], Mapping[str, Any]] = {
    (Project.REDUX, "span"): {"feature_channels": 52, "norm": False},
    (Project.REDUX, "swinir_m"): {"img_size": 48},
    (Project.REDUX, "fdat"): {"upsampler_type": "pixelshuffle"},
    (Project.REDUX, "hat"): {"embed_dim": 96, "depths": _FOUR, "num_heads": _FOUR, "window_size": 7, "mlp_ratio": 4.0},
    **{(Project.REDUX, name): _GRL for name in ("grl_b", "grl_s", "grl_t")},
    (Project.BASICSR, "rcan"): {"n_resblocks": 16, "norm": True},
    (Project.BASICSR, "swinir"): {
        "embed_dim": 96,
        "depths": _FOUR,
        "num_heads": _FOUR,
        "window_size": 7,
        "mlp_ratio": 4.0,
        "upsampler": "",
    },
    (Project.NEOSR, "man"): {"norm": False},
    (Project.NEOSR, "man_light"): {"norm": False},
    (Project.NEOSR, "man_tiny"): {"norm": False},
    (Project.NEOSR, "realcugan"): {"pro": True},
    (Project.NEOSR, "span"): {"norm": False, "img_range": 1.0},
    (Project.NEOSR, "realplksr"): {"layer_norm": False},
    (Project.NEOSR, "realplksr_large"): {"layer_norm": False},
    (Project.NEOSR, "realplksr_tiny"): {"layer_norm": False},
    (Project.NEOSR, "swinir"): {"img_size": 48},
    (Project.NEOSR, "metaflexnet"): {"dim": 48},
    (Project.NEOSR, "mosrv2"): {"rms_norm": True},
    (Project.NEOSR, "sebica_mini"): {"mini": True},
    (Project.NEOSR, "atd_light"): {"num_heads": [4, 4, 4, 4]},
    (Project.NEOSR, "srformer_light"): {"embed_dim": 60},
}
"""Defaults of theirs that differ from those here, by the network's name here."""

_HEADS = {"upsampler": {"ps": "pixelshuffle", "n+c": "nearest+conv", "dys": "dysample"}}
VALUES: Mapping[tuple[Project, str], Mapping[str, Mapping[Any, Any]]] = {
    (Project.NEOSR, "flexnet"): _HEADS,
    (Project.NEOSR, "metaflexnet"): _HEADS,
}
"""Values of their arguments that are written in another way here, by the network's name here."""

ARGUMENTS_THERE = frozenset(
    (
        *("act", "act_layer", "anchor_one_stage", "ape", "attn_drop_rate", "bcie", "bias", "compress_ratio", "conv"),
        *("conv_scale", "drop_rate", "euclidean_dist", "flash_attn", "group_block_pattern", "img_size"),
        *("init_method", "is_coreml", "learn_residual", "norm", "norm_layer", "num_blocks"),
        *("num_layers", "offload_to_cpu", "overlap_ratio", "patch_norm", "patch_size", "pretrained_stripe_size"),
        *("pretrained_window_size", "qk_scale", "qkv_bias", "res_scale", "resi_connection", "rgb_mean"),
        *("squeeze_factor", "start_unshuffle", "unshuffle_mod", "dysample"),
        *("attn_type", "colors", "drop_path_rate", "expansion_factor", "rgb_range", "window_size"),
        "freeze_param",
    )
)
"""Arguments of their networks that the same networks do not take here."""


def answer_network(draft: Draft, key: str) -> None:
    """Answer ``network_g`` or ``network_d``."""
    chosen = draft.section(key)
    if not isinstance(chosen.get("type"), str):
        return
    if draft.is_test and key == "network_d":
        draft.leave((key,), "a test judges no images")
        return
    given = chosen["type"]
    name = NAMES[draft.project].get(given.lower(), given)
    path: KeyPath = (key, "type")
    if not draft.known.has("network", name):
        draft.miss(path, path, *_why_missing(draft, given))
        for other in draft.unanswered(key):
            draft.keep(other)
        return
    draft.write(path, name, [path], ITS_NAME)
    taken = draft.known.takes("network", name)
    for other in draft.unanswered(key):
        _answer_argument(draft, other, name, taken)
    for argument, value in DEFAULTS.get((draft.project, name.lower()), {}).items():
        if draft.written(key, argument) is None and _plain(taken.get(argument)) != value:
            draft.add((key, argument), value, f"{draft.project}'s default")


def _answer_argument(draft: Draft, path: KeyPath, name: str, taken: Mapping[str, Any]) -> None:
    argument, value = str(path[1]), draft.get(*path)
    renamed = RENAMED.get((draft.project, name.lower()), {}).get(argument, argument)
    to = _name_here(renamed, taken)
    if argument in SCALES and value == draft.get("scale"):
        draft.need_not(path, ("scale",), "the scale of the top level is filled in")
    elif to in taken:
        here = VALUES.get((draft.project, name.lower()), {}).get(argument, {})
        draft.write(
            (path[0], to, *path[2:]), here.get(value, value) if isinstance(value, str) else value, [path], ITS_NAME
        )
    elif argument == "rgb_mean" and value == MEAN_OF_DIV2K:
        draft.need_not(path, (path[0], "type"), "that mean is the network's own")
    elif argument in CHECKPOINTING:
        _answer_checkpointing(draft, path, value)
    elif argument in (*CHANNELS_IN, *CHANNELS_OUT) and value == 3:
        draft.need_not(path, (path[0], "type"), "it always has 3 channels here")
    elif draft.project is Project.NEOSR and name.lower().startswith("realplksr") and argument == "dysample":
        draft.write((path[0], "upsampler"), "dysample" if value else "pixelshuffle", [path], "one key names it here")
    elif argument in (*ARGUMENTS_THERE, *SCALES, *CHANNELS_IN, *CHANNELS_OUT):
        draft.leave(path, f"{name} has no such argument here", near_argument(argument, taken))
    else:
        draft.unknown_argument(path, name, near_argument(argument, taken))


def _answer_checkpointing(draft: Draft, path: KeyPath, value: Any) -> None:
    to = ("memory", "gradient_checkpointing")
    if not value:
        draft.need_not(path, to, "off is the default")
    elif draft.is_test:
        draft.leave(path, "a test keeps nothing for a backward pass")
    else:
        draft.write(to, True, [path], "an option of every network here")


def _name_here(argument: str, taken: Mapping[str, Any]) -> str:
    for words in (SCALES, *SAME_WORDS):
        if argument in words and argument not in taken:
            return next((word for word in words if word in taken), argument)
    return argument


def _why_missing(draft: Draft, name: str) -> tuple[str, str]:
    if name.lower() in OF_VIDEO:
        return "there are no video networks here", "networks of single images: list archs"
    near = nearest_to(name) or draft.known.near("network", name).strip("'")
    return f"there is no network {name} here", near or "list archs shows what there is"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
