"""How this program was started, for the commands that messages advise."""

import sys
from pathlib import Path


def program_words() -> str:
    """Return what begins a command here: ``trainauto`` where that was started, else the module, which always is."""
    return "trainauto" if Path(sys.argv[0]).stem == "trainauto" else "python -m trainauto"
