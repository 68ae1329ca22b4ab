"""Presets of the cards people train on, found by what drivers report or by what people write.

Every memory size is nominal and binary. Drivers report less: firmware keeps a part (an RTX 4090 has 24564 of 24576 MiB,
of which CUDA shows 23.6 GiB), and error correction on GDDR takes a sixteenth (a T4 of "16 GB" shows 14.6 GiB). So a
card is itself when it reports between 0.9 and 1.01 of its nominal memory. A slice of a card (MIG, vGPU) reports far
less, and gets a preset by its memory.
"""

import re
from dataclasses import replace

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.options.card_presets import (
    COMPUTED,
    DOCUMENTED,
    SAFETY_MARGIN,
    CardPreset,
    cpu_preset,
    nominal_gib,
    preset_for,
)

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


__all__ = ["CARDS", "CardPreset", "card_by_words", "card_of_memory", "cpu_preset", "find_card", "under_budget"]

_DOCUMENTED = (
    CardPreset("RTX 3080 10GB", 10, 0.80, SAFETY_MARGIN, 2, 32, 32, 192, DOCUMENTED),
    CardPreset("RTX 3060 12GB", 12, 0.85, SAFETY_MARGIN, 2, 64, 32, 256, DOCUMENTED),
    CardPreset("RTX 4090 24GB", 24, 0.90, SAFETY_MARGIN, 4, 128, 64, 512, DOCUMENTED),
)

_MEMORY_GIB: dict[str, tuple[int, ...]] = {
    "RTX 2060": (6, 12),
    "RTX 2060 SUPER": (8,),
    "RTX 2070": (8,),
    "RTX 2070 SUPER": (8,),
    "RTX 2080": (8,),
    "RTX 2080 SUPER": (8,),
    "RTX 2080 Ti": (11,),
    "RTX 2060 Laptop": (6,),
    "RTX 2070 Laptop": (8,),
    "RTX 2080 Laptop": (8,),
    "TITAN RTX": (24,),
    "RTX 3050": (6, 8),
    "RTX 3060": (8,),
    "RTX 3060 Ti": (8,),
    "RTX 3070": (8,),
    "RTX 3070 Ti": (8,),
    "RTX 3080": (12,),
    "RTX 3080 Ti": (12,),
    "RTX 3090": (24,),
    "RTX 3090 Ti": (24,),
    "RTX 3050 Laptop": (4, 6),
    "RTX 3050 Ti Laptop": (4,),
    "RTX 3060 Laptop": (6,),
    "RTX 3070 Laptop": (8,),
    "RTX 3070 Ti Laptop": (8,),
    "RTX 3080 Laptop": (8, 16),
    "RTX 3080 Ti Laptop": (16,),
    "RTX 4060": (8,),
    "RTX 4060 Ti": (8, 16),
    "RTX 4070": (12,),
    "RTX 4070 SUPER": (12,),
    "RTX 4070 Ti": (12,),
    "RTX 4070 Ti SUPER": (16,),
    "RTX 4080": (16,),
    "RTX 4080 SUPER": (16,),
    "RTX 4050 Laptop": (6,),
    "RTX 4060 Laptop": (8,),
    "RTX 4070 Laptop": (8,),
    "RTX 4080 Laptop": (12,),
    "RTX 4090 Laptop": (16,),
    "RTX 5050": (8,),
    "RTX 5060": (8,),
    "RTX 5060 Ti": (8, 16),
    "RTX 5070": (12,),
    "RTX 5070 Ti": (16,),
    "RTX 5080": (16,),
    "RTX 5090": (32,),
    "RTX 5050 Laptop": (8,),
    "RTX 5060 Laptop": (8,),
    "RTX 5070 Laptop": (8,),
    "RTX 5070 Ti Laptop": (12,),
    "RTX 5080 Laptop": (16,),
    "RTX 5090 Laptop": (24,),
    "T4": (16,),
    "V100": (16, 32),
    "A10": (24,),
    "A10G": (24,),
    "A30": (24,),
    "A40": (48,),
    "A100": (40, 80),
    "L4": (24,),
    "L40": (48,),
    "L40S": (48,),
    "H100": (80,),
    "H100 NVL": (94,),
    "H200": (141,),
    "H200 NVL": (141,),
    "B200": (180,),
    "Quadro RTX 6000": (24,),
    "Quadro RTX 8000": (48,),
    "RTX A4000": (16,),
    "RTX A5000": (24,),
    "RTX A6000": (48,),
    "RTX 6000 Ada": (48,),
    "RTX PRO 6000 Blackwell": (96,),
}
"""Cards beside the documented ones, and the nominal memory each is sold with, GiB."""

CARDS: tuple[CardPreset, ...] = (
    *_DOCUMENTED,
    *(preset_for(f"{name} {size}GB", size) for name, sizes in _MEMORY_GIB.items() for size in sizes),
)
"""Every known card; one that is sold with several memory sizes is several cards."""

_LISTED = "`python -m trainauto list cards` lists all."
_REPORTED_SHARE = (0.9, 1.01)


def find_card(name: str, memory_bytes: int) -> CardPreset:
    """Return the preset of a card as torch or NVML report it; by its memory where it is not a known card.

    Args:
        name: e.g. ``NVIDIA GeForce RTX 3060``.
        memory_bytes: its total memory, bytes.

    Raises:
        ValueError: ``memory_bytes`` is not above 0.
    """
    nominal = nominal_gib(memory_bytes)
    model, memory_gib = model_of(name), memory_bytes / 2**30
    low, high = _REPORTED_SHARE
    for card in CARDS:
        if model_of(card.name) == model and low <= memory_gib / card.memory_gib <= high:
            return card
    return preset_for(name.strip() or "unnamed card", nominal, f"{COMPUTED} ({nominal} GiB), the card is not listed")


def under_budget(card: CardPreset, budget_bytes: int) -> CardPreset:
    """Return the preset that a run has on a card of which it may use so much."""
    if card.memory_gib * 2**30 <= budget_bytes:
        return card
    return replace(find_card(card.name, budget_bytes), name=card.name, memory_gib=budget_bytes / 2**30)


def card_by_words(text: str) -> CardPreset:
    """Return the card a person means: ``RTX 3060 12GB``, ``h200``, ``pro 6000``.

    Without a size, a card that the source documents is meant in its documented size (``3060`` is the one with 12 GB).

    Raises:
        InputError: no card is called so, or several are.
    """
    model, size = model_of(text), size_in(text)
    called = _called(model)
    matches = [card for card in called if size in (None, card.memory_gib)]
    if size is None and len({model_of(card.name) for card in matches}) == 1:
        matches = [card for card in matches if card.rule == DOCUMENTED] or matches
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(card.name for card in matches)
        raise InputError(Problem(f"'{text}' could be several cards: {names}", advice=f"Say which. {_LISTED}"))
    advice = f"{_nearest_card(text, called)} `plan` takes the memory of any other: --vram 11GiB."
    raise InputError(Problem(f"no known card is called '{text}'", advice=advice))


def card_of_memory(memory_bytes: int) -> CardPreset:
    """Return the preset of a card without a name that has this memory."""
    memory_gib = memory_bytes / 2**30
    return replace(find_card("", memory_bytes), name=f"{memory_gib:g} GiB", memory_gib=memory_gib)


def _nearest_card(text: str, called: list[CardPreset]) -> str:
    """Return advice: the nearest of the cards so called, or of all; never the whole list, which has its own command."""
    # Where not even the model is known, the sizes would only blur the comparison.
    advice = nearest(text, [card.name if called else card.name.rsplit(" ", 1)[0] for card in called or CARDS])
    return f"{advice} {_LISTED}" if called or advice.startswith("Did") else _LISTED


def _called(model: Model) -> list[CardPreset]:
    """Return the cards of this model (``3060ti`` is ``3060 Ti``), or else those whose names hold all its words."""
    exact = [card for card in CARDS if "".join(model_of(card.name)) == "".join(model)]
    return exact or [card for card in CARDS if model and set(model) <= set(model_of(card.name))]
