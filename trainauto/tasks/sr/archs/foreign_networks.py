"""Networks as traiNNer-redux, BasicSR and neosr call them: what they are called here, or which one here is nearest.

This is the one place that says so. ``convert``, errors about ``type``, ``list archs --missing``, docs/networks.md and
docs/convert.md read it.
A network that is added here leaves it; a test fails until it does.
"""

from collections.abc import Mapping

NAMES: Mapping[str, Mapping[str, str]] = {
    "traiNNer-redux": {},
    "BasicSR": {},
    "neosr": {
        "cugan": "realcugan",
        "dat_m": "dat",
        "patchgan": "patchgan",
        "realplksr_l": "realplksr_large",
        "realplksr_s": "realplksr_tiny",
        "srformer_medium": "srformer",
        "swinir_large": "swinir_l",
        "swinir_medium": "swinir",
        "swinir_small": "swinir_light",
        "unet": "unetdiscriminatorsn",
    },
}
"""By project: its names, in lower case, of networks that have others here."""

MISSING: Mapping[str, Mapping[str, str]] = {
    "traiNNer-redux": {
        "docres_base": "nafnet64",
        "docres_discriminator": "dunet",
    },
    "BasicSR": {
        "HiFaceGAN": "rrdbnet",
        "HiFaceGANDiscriminator": "multiscalepatchgandiscriminatorsn",
        "StyleGAN2Discriminator": "unetdiscriminatorsn",
        "StyleGAN2Generator": "",
    },
    "neosr": {
        "asid": "omnisr",
        "catanet": "atd_light",
        "cfsr": "safmn",
        "dct": "swinir_light",
        "grformer": "swinir_light",
        "hasn": "safmn",
        "hma": "hat_s",
        "krgn": "plksr_tiny",
        "msdan": "safmn",
        "ninasr": "rcan",
        "plainusr": "compact",
        "scnet": "safmn",
    },
}
"""By project: its name of a network -> the nearest registered here; empty where none is alike."""

OF_VIDEO = frozenset(
    {
        "basicvsr",
        "basicvsrplusplus",
        "duf",
        "edvr",
        "iconvsr",
        "realbasicvsr",
        "temporalspan",
        "temporalspanv2",
        "tfdat",
        "toflow",
        "tscunet",
    }
)
"""Networks of theirs that take several frames, in lower case; there will be none here."""

_NEAREST = {name.lower(): near for networks in MISSING.values() for name, near in networks.items()}


def nearest_to(name: str) -> str:
    """Return the network here that is nearest to one of theirs; empty where none is known to be.

    A size that the table lacks (``hma_medium``) is near what its architecture (``hma``) is near.
    """
    lower = name.lower()
    return _NEAREST.get(lower) or _NEAREST.get(lower.partition("_")[0], "")


def advice_about(name: str) -> str:
    """Return what to write in place of a network's name that is one of theirs; empty where it is none."""
    lower = name.lower()
    for project, names in NAMES.items():
        if here := names.get(lower):
            return f"{project} calls a network so that is '{here}' here."
    if lower.partition("_")[0] in OF_VIDEO:
        return "It is a network of video; there are none here."
    if near := nearest_to(name):
        return f"It is a network of another project. The nearest one here is '{near}'."
    return "It is a network of another project; none here is alike." if lower in _NEAREST else ""


def missing_networks() -> dict[str, tuple[list[str], str]]:
    """Return every network of theirs that is not here, with the projects that have it and the nearest one here."""
    found: dict[str, tuple[list[str], str]] = {}
    for project, networks in MISSING.items():
        for name, near in networks.items():
            found.setdefault(name, ([], near))[0].append(project)
    return dict(sorted(found.items(), key=lambda entry: entry[0].lower()))
