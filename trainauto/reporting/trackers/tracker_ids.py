"""What a run is called by trackers, kept in its folder: a resume goes on with the same run there."""

from pathlib import Path
from threading import Lock
from typing import Any

from trainauto.core.files import read_text, write_json_atomically
from trainauto.core.json_text import from_json


class TrackerIds:
    """Values by name in a small JSON file. Threads may share it.

    Args:
        file: where it is; not there before something is kept. What cannot be read counts as not there: a run then
            begins anew in its trackers, which is no reason to end it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = Lock()

    def get(self, name: str) -> Any:
        """Return what was kept under a name; ``None`` where nothing was."""
        return self._read().get(name)

    def keep(self, name: str, value: Any) -> None:
        """Keep a plain value.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            kept = self._read()
            if kept.get(name) != value:
                write_json_atomically(self._file, {**kept, name: value})

    def _read(self) -> dict[str, Any]:
        try:
            kept = from_json(read_text(self._file))
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}
