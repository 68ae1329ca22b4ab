"""Makes the modules of scripts/ importable, the way they import each other."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "scripts"))  # last: scripts/test.py must not hide Python's own `test`
