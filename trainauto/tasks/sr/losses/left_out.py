"""Losses of other projects that are not offered, and what is near to each."""

from collections.abc import Mapping
from typing import Any

_TEXTURE = "perceptualloss and distsloss compare textures, too"
_DRAWS = f"{_TEXTURE}, without random projections"

_LEFT_OUT = {
    "adists": "distsloss is near to it",
    "aesop": "bicubicloss and averageloss compare images in the large, without an autoencoder",
    "bcewithlogitsdice": "it compares masks; ganloss compares judgements",
    "contextual": _TEXTURE,
    "dinov2": _TEXTURE,
    "fd": _DRAWS,
    "fdl": _DRAWS,
    "hrinversion": _TEXTURE,
    "kl": "charbonnierloss and mssimloss compare images directly",
    "linedistiller": "sobeledgeloss and gradientvarianceloss compare edges",
    "msswd": _DRAWS,
    "pd": _DRAWS,
    "perceptualanime": "perceptualloss is the same by features of photographs",
    "structuretexture": "mssimloss with perceptualloss is near to it",
    "topiq": "lpipsloss and distsloss are near to it; its weights allow no commercial use",
    "vggperceptual": "perceptualloss has the same layers and weights",
    "weightedtv": "gradientvarianceloss compares how smooth images are with their target",
}
"""By the name without case, underscores and the word loss."""

_OF_BASICSR = ("vgg_type", "use_input_norm", "range_norm", "perceptual_weight", "style_weight")
_CRITERIA = ("pd", "fd", "pd+l1", "fd+l1")


def why_left_out(name: str) -> str:
    """Return what is near to a loss that other projects have and this one leaves out; empty for any other name."""
    return _LEFT_OUT.get(name.lower().replace("_", "").removesuffix("loss"), "")


def near_perceptual(arguments: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return an argument of ``perceptualloss`` that only others have, what is wrong with it, and what to write instead.

    Returns:
        ``None`` where all arguments are those of traiNNer-redux, as far as they are offered.
    """
    for argument in _OF_BASICSR:
        if argument in arguments:
            message = f"perceptualloss is traiNNer-redux's here, which has no {argument}"
            return argument, message, "BasicSR's has, and is called vggperceptualloss here: write that type."
    if (criterion := arguments.get("criterion")) in _CRITERIA:
        return "criterion", f"perceptualloss has no criterion {criterion} here", f"Write charbonnier or l1: {_DRAWS}."
    return None
