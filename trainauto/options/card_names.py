"""What a card is called: by drivers, by people, and here."""

import re

_BRAND = {"nvidia", "geforce", "tesla", "rtx", "gpu", "generation", "workstation", "server", "edition", "with", "vram"}
_MOUNTING = {"sxm", "sxm2", "sxm3", "sxm4", "sxm5", "pcie", "dgxs", "fhhl", "hbm2", "hbm2e", "hbm3", "hbm3e"}
_SIZE = re.compile(r"\b(\d+) ?(?:gib|gb|g)\b")
_MOBILE = re.compile(r"\bwith max q design\b|\bmobile\b|\bnotebook\b")
_GLUED = re.compile(r"(?<=rtx)\w|(?<=pro)\d")

Model = tuple[str, ...]
"""Words that tell one card from another, e.g. ``("3080", "laptop")``; a Ti, a SUPER, a Laptop is another card."""


def model_of(name: str) -> Model:
    """Return what is left of a card's name without brand, mounting and memory size.

    Drivers write ``NVIDIA GeForce RTX 3080 Laptop GPU``, ``NVIDIA H100 80GB HBM3`` or ``Tesla V100-SXM2-16GB``, people
    ``3080 laptop`` or ``h100``. ``NVL`` stays: that H100 has 94 GB. A MIG slice keeps its words and is no known card.
    """
    words = _SIZE.sub(" ", _plain(name))
    model = tuple(word for word in words.split() if word not in _BRAND | _MOUNTING)
    # Only in workstation cards is Max-Q a way of cooling; their memory is the same.
    return tuple(word for word in model if word not in ("max", "q")) if "pro" in model else model


def size_in(name: str) -> int | None:
    """Return the memory a name states (``12GB``, ``12 GiB``, ``12g``) in GiB, or None."""
    match = _SIZE.search(_plain(name))
    return int(match[1]) if match else None


def _plain(name: str) -> str:
    words = " ".join(re.split(r"[\s\-_/,()]+", name.lower().strip()))
    return _GLUED.sub(r" \g<0>", _MOBILE.sub("laptop", words))
