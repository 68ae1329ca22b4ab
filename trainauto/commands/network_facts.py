"""What is known of each network that an option file can name: size, scales, crops, and where weights are published."""

import inspect
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.archs import ARCHS
from trainauto.builders.image_model import requirements_of
from trainauto.core.errors import InputError
from trainauto.options.parameters import summary_of

FILE = Path(__file__).with_name("network_facts.json")
"""Facts of built-in networks, which take a minute to find out, written by ``scripts/network_facts.py``."""
USUAL_SCALE = 4
SCALES_TRIED = range(1, 9)
_TITLES = {
    "RRDBNet": "ESRGAN",
    "SRVGGNetCompact": "Compact",
    "ESCRealM": "ESC-Real",
    "GateRV3": "GaterV3",
    "SCUNetAaf6aa": "SCUNet",
    **dict.fromkeys(("HiTSRF", "HiTSIR", "HiTSNG"), "HiT-SR"),
}
_EVERYBODYS = "openmodeldb.info"
PUBLISHED = {
    "ArtCNN": "",
    "ATD": "LabShuHangGU/Adaptive-Token-Dictionary",
    "CascadedGaze": "Ascend-Research/CascadedGaze",
    "Compact": f"xinntao/Real-ESRGAN (docs/model_zoo.md), {_EVERYBODYS}",
    "CRAFT": "AVC2-UESTC/CRAFT-SR",
    "DAT": f"zhengchen1999/DAT, {_EVERYBODYS}",
    "DCTLSA": "zengkun301/DCTLSA",
    "DIS": "",
    "DITN": "yongliuy/DITN",
    "DRCT": "ming053l/DRCT",
    "DWT": "",
    "EDSR": "XPixelGroup/BasicSR (docs/ModelZoo.md)",
    "EIMN": "liux520/EIMN",
    "ELAN": "xindongzhang/ELAN",
    "ESC": "dslisleedh/ESC",
    "EMT": "Fried-Rice-Lab/FriedRiceLab",
    "ESC-Real": "dslisleedh/ESC",
    "ESRGAN": f"xinntao/Real-ESRGAN (docs/model_zoo.md), xinntao/ESRGAN, cszn/BSRGAN, {_EVERYBODYS}",
    "FDAT": "the-database/traiNNer-redux (release pretrained-models)",
    "GRL": "ofsoundof/GRL-Image-Restoration (release v1.0.0)",
    "FlexNet": "",
    "GaterV3": "Phhofm/models",
    "HAT": "XPixelGroup/HAT",
    "HiT-SR": "XiangZ-0/HiT-SR",
    "LKFMixer": "Supereeeee/LKFMixer",
    "LMLT": "jwgdmkj/LMLT",
    "MAN": "icandle/MAN",
    "MoESR": "the-database/traiNNer-redux (release pretrained-models)",
    "MoSR": "umzi2/MoSR",
    "MoSRv2": "",
    "MSRResNet": "XPixelGroup/BasicSR (docs/ModelZoo.md)",
    "NAFNet": "megvii-research/NAFNet",
    "OmniSR": f"Francis0625/Omni-SR, {_EVERYBODYS}",
    "PLKSR": "dslisleedh/PLKSR",
    "RCAN": "yulunzhang/RCAN",
    "Real-CUGAN": "bilibili/ailab (Real-CUGAN)",
    "RealPLKSR": f"{_EVERYBODYS}",
    "RGT": "zhengchen1999/RGT",
    "RTMoSR": "",
    "SAFMN": "sunny2109/SAFMN",
    "SCUNet": "aaf6aa/SCUNet, cszn/SCUNet (release of cszn/KAIR v1.0)",
    "Sebica": "",
    "SeemoRe": "eduardzamfir/seemoredetails",
    "SPAN": f"hongyuanyu/SPAN, {_EVERYBODYS}",
    "SRFormer": "HVision-NKU/SRFormer",
    "Swin2SR": "mv-lab/swin2sr (release v0.0.1)",
    "SwinIR": f"JingyunLiang/SwinIR (release v0.0), {_EVERYBODYS}",
}
"""Projects on GitHub that link or release the weights of an architecture's authors, and the site that lists others'.

Empty where no weights are known.
"""


@dataclass(frozen=True)
class NetworkFacts:
    """What is known of a network with its own defaults.

    Attributes:
        name: registered name.
        title: its architecture, as people call it; presets of one have the same.
        is_preset: it is one of several sizes of an architecture, and not the one that is described in full.
        summary: what it is, in a sentence.
        needs_spandrel: it is taken from the package spandrel.
        default_scale: enlargement factor where none is given.
        parameters: trainable numbers at that scale; ``None`` where it cannot be built without arguments.
        scales: what it enlarges by; empty where any whole number will do.
        minimum: least side (px) of a training crop.
        multiple: what sides of crops should be multiples of.
        published: where weights are; empty where nothing is known.
    """

    name: str
    title: str
    is_preset: bool
    summary: str
    needs_spandrel: bool
    default_scale: int
    parameters: int | None = None
    scales: tuple[int, ...] = ()
    minimum: int = 1
    multiple: int = 1
    published: str = ""


def facts_of(name: str) -> NetworkFacts:
    """Return the facts of a registered network; of a plugin's by building it.

    Raises:
        InputError: no network is called so.
    """
    facts, kept = _described(name), _kept().get(name)
    if kept is None:
        return found_out(name)
    return replace(facts, **{**kept, "scales": tuple(kept["scales"])})


def found_out(name: str) -> NetworkFacts:
    """Return the facts of a registered network by building it, as far as it can be."""
    facts, constructor = _described(name), ARCHS.get(name)
    network = _built(constructor, facts.default_scale)
    if network is None:
        return facts
    parameters, needs = sum(value.numel() for value in network.parameters()), requirements_of(network)
    return replace(
        facts, parameters=parameters, scales=_scales(constructor), minimum=needs.minimum, multiple=needs.multiple
    )


@cache
def _kept() -> dict[str, dict[str, Any]]:
    kept: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return kept


def _described(name: str) -> NetworkFacts:
    """Return what a constructor says of itself."""
    constructor = ARCHS.get(name)
    table = getattr(constructor, "library_network", None)
    signature = inspect.signature(constructor)
    title, is_preset = _title_of(constructor, name)
    scale = signature.parameters.get("scale")
    default_scale = scale.default if scale is not None and isinstance(scale.default, int) else USUAL_SCALE
    shown = ARCHS.shown(name)
    return NetworkFacts(
        shown,
        title,
        is_preset,
        summary_of(constructor),
        table is not None,
        default_scale,
        published=PUBLISHED.get(title, ""),
    )


def _title_of(constructor: Callable[..., nn.Module], name: str) -> tuple[str, bool]:
    """Return the architecture of a network as people call it, and whether it is one of its sizes beside the usual."""
    if table := getattr(constructor, "library_network", None):
        return table.summary.partition(":")[0], bool(getattr(constructor, "preset_of", ""))
    built = constructor if inspect.isclass(constructor) else inspect.signature(constructor).return_annotation
    if not any(ARCHS.get(other) is built for other in ARCHS):
        return name, False  # a function of a plugin, which does not say of what it makes a size
    return _TITLES.get(built.__name__, built.__name__), built is not constructor


def _scales(constructor: Callable[..., nn.Module]) -> tuple[int, ...]:
    """Return the scales up to 8 that a network can be built for; empty where that is all of them."""
    if "scale" not in inspect.signature(constructor).parameters:
        return ()
    able = tuple(scale for scale in SCALES_TRIED if _built(constructor, scale) is not None)
    return () if len(able) == len(SCALES_TRIED) else able


def _built(constructor: Callable[..., nn.Module], scale: int, device: str = "meta") -> nn.Module | None:
    """Build a network with its defaults, if it can be on no device; ``None`` where it cannot be built."""
    arguments = {"scale": scale} if "scale" in inspect.signature(constructor).parameters else {}
    try:
        with torch.device(device), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return constructor(**arguments)
    except InputError:
        return None
    except Exception:  # a plugin's constructor raises what it likes; some look at values, of which meta has none
        return _built(constructor, scale, "cpu") if device == "meta" else None
