"""Weights of ESRGAN under the names that older files use."""

import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

_OLD_BLOCK = re.compile(r"model\.1\.sub\.(\d+)\.RDB([123])\.conv([1-5])\.0\.(weight|bias)")
_OLD_TRUNK_END = re.compile(r"model\.1\.sub\.\d+\.(weight|bias)")
_OLD_TOP = re.compile(r"model\.(\d+)\.(weight|bias)")
_RELEASE_BLOCK = re.compile(r"RRDB_trunk\.(\d+)\.RDB([123])\.conv([1-5])\.(weight|bias)")
_RELEASE_OTHER = re.compile(r"(conv_first|trunk_conv|upconv(?P<step>\d)|HRconv|conv_last)\.(weight|bias)")
_RELEASE_NAMES = {
    "conv_first": "conv_first",
    "trunk_conv": "conv_body",
    "HRconv": "conv_hr",
    "conv_last": "conv_last",
}


def modern_keys(state_dict: Mapping[str, T]) -> dict[str, T]:
    """Give weights of the two old ESRGAN namings the names that :class:`~.rrdbnet_arch.RRDBNet` has.

    The oldest files number the layers of one long chain (``model.0.weight``, ``model.1.sub.0.RDB1.conv1.0.weight``);
    ESRGAN's release and BSRGAN name them (``RRDB_trunk.0.RDB1.conv1.weight``, ``trunk_conv.weight``). Only names
    change; whether the shapes fit is for ``load_state_dict`` to say.

    Args:
        state_dict: weights of any network; it is left as it is.

    Returns:
        The renamed weights in a new dictionary, or a copy with the same names where the naming is neither of the two.

    Raises:
        ValueError: the naming is one of the two, but there is a weight that RRDBNet has no place for (ESRGAN+ has 1x1
            convolutions in its blocks).
    """
    if any(key.startswith("model.1.sub.0.RDB1.") for key in state_dict):
        return _renamed(state_dict, _names_of_numbered(state_dict))
    if any(key.startswith("RRDB_trunk.0.RDB1.") for key in state_dict):
        return _renamed(state_dict, {key: _name_of_released(key) for key in state_dict})
    return dict(state_dict)


def _renamed(state_dict: Mapping[str, T], names: Mapping[str, str | None]) -> dict[str, T]:
    homeless = [key for key in state_dict if names[key] is None]
    if homeless:
        raise ValueError(
            f"RRDBNet has no place for {len(homeless)} weight(s) of this ESRGAN file, such as '{homeless[0]}': "
            "it comes from a variant (ESRGAN+ adds 1x1 convolutions) that is not supported"
        )
    return {str(names[key]): value for key, value in state_dict.items()}


def _names_of_numbered(state_dict: Mapping[str, T]) -> dict[str, str | None]:
    """Name the layers of the chain: first, trunk, one convolution for each doubling, and the two at full size."""
    numbers = {int(match[1]) for key in state_dict if (match := _OLD_TOP.fullmatch(key))}
    if len(numbers) < 3:
        raise ValueError("layers of this ESRGAN file are missing: it has neither its first nor its last convolutions")
    *doublings, before_last, last = sorted(numbers - {0})
    top = {0: "conv_first", before_last: "conv_hr", last: "conv_last"}
    top.update({layer: f"conv_up{step}" for step, layer in enumerate(doublings, start=1)})

    def name(key: str) -> str | None:
        if match := _OLD_BLOCK.fullmatch(key):
            return "body.{}.rdb{}.conv{}.{}".format(*match.groups())
        if match := _OLD_TRUNK_END.fullmatch(key):
            return f"conv_body.{match[1]}"
        if match := _OLD_TOP.fullmatch(key):
            return f"{top[int(match[1])]}.{match[2]}"
        return None

    return {key: name(key) for key in state_dict}


def _name_of_released(key: str) -> str | None:
    if match := _RELEASE_BLOCK.fullmatch(key):
        return "body.{}.rdb{}.conv{}.{}".format(*match.groups())
    if match := _RELEASE_OTHER.fullmatch(key):
        layer, kind = key.split(".")
        return f"conv_up{match['step']}.{kind}" if match["step"] else f"{_RELEASE_NAMES[layer]}.{kind}"
    return None
