"""What ``export`` writes into a .safetensors of the network in it: more than names and shapes tell."""

from collections.abc import Mapping
from typing import Any

from trainauto.core.json_text import from_json
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.recognition.recognised import Recognised

LARGEST, LONGEST = 4096, 64
"""Numbers and lists beyond these are no arguments of a network: the file may be made to keep us busy."""


def declared(metadata: Mapping[str, str]) -> Recognised | None:
    """Return the network that metadata name; ``None`` where they name none that is known, or arguments beyond reason.

    It was not compared with the weights.

    Args:
        metadata: of a .safetensors, by name; ``architecture``, ``arguments`` (JSON) and ``scale`` are read.
    """
    try:
        name, scale = metadata["architecture"], int(metadata["scale"])
        arguments: dict[str, Any] = dict(from_json(metadata["arguments"]))
    except (KeyError, ValueError, TypeError):
        return None
    if name not in ARCHS or not all(map(_is_modest, [scale, *arguments.values()])):
        return None
    own = {key: value for key, value in arguments.items() if key != "scale"}
    return Recognised(ARCHS.shown(name), ARCHS.shown(name), scale, (), own)


def _is_modest(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= LONGEST and all(map(_is_modest, value))
    return value is None or isinstance(value, str | bool) or (isinstance(value, int | float) and abs(value) <= LARGEST)
