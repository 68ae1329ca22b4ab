"""What a run learned about its memory, kept for the next run of the same kind on the same machine.

One JSON file a kind of run, in the user's cache folder. Nothing depends on it: a file that is missing, damaged or of
another kind means that the run learns anew.
"""

import hashlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainauto.core.files import OTHERS_ARE_DONE_S, remove_leftovers, write_json_atomically
from trainauto.core.json_text import from_json

logger = logging.getLogger(__name__)

FORMAT = 1
"""Raised when what is kept changes its meaning: older files are then ignored."""


def cache_folder() -> Path:
    """Return the folder of this user's caches; ``TRAINAUTO_CACHE`` names another one."""
    if own := os.environ.get("TRAINAUTO_CACHE"):
        return Path(own)
    variable, below = {
        "Windows": ("LOCALAPPDATA", "AppData/Local"),
        "Darwin": ("", "Library/Caches"),
    }.get(platform.system(), ("XDG_CACHE_HOME", ".cache"))
    variable_folder = os.environ.get(variable) if variable else None
    return Path(variable_folder or _home() / below) / "trainauto"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container's user that nobody knows
        return Path(tempfile.gettempdir())


class Calibration:
    """What is known of one kind of run.

    Args:
        kind: everything that memory depends on but the plan: network, optimizer, precision, device, versions...; plain
            values, as JSON gives them back.
        folder: where files are kept.
    """

    def __init__(self, kind: Mapping[str, Any], folder: Path | None = None) -> None:
        self._kind = json.loads(json.dumps(kind, sort_keys=True))
        digest = hashlib.sha256(json.dumps(self._kind, sort_keys=True).encode()).hexdigest()
        self.digest = digest[:24]
        self.path = (folder or cache_folder() / "calibration") / f"{self.digest}.json"

    def read(self) -> dict[str, Any] | None:
        """Return what :meth:`write` kept; ``None`` where there is nothing that can be used, and say why."""
        try:
            content = from_json(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("the calibration of an earlier run cannot be read and is ignored: %s: %s", self.path, error)
            return None
        if not isinstance(content, dict) or (content.get("format"), content.get("kind")) != (FORMAT, self._kind):
            logger.warning("the calibration of an earlier run has another format and is ignored: %s", self.path)
            return None
        learned = content.get("learned")
        return learned if isinstance(learned, dict) else None

    def write(self, learned: Mapping[str, Any]) -> None:
        """Keep what was learned, whole or not at all; a folder that cannot be written to costs nothing but that."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.path.parent, older_than_s=OTHERS_ARE_DONE_S)
            write_json_atomically(self.path, {"format": FORMAT, "kind": self._kind, "learned": dict(learned)})
        except OSError as error:
            logger.warning("the calibration of this run cannot be saved: %s", error)
