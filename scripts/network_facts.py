"""Find out parameters, scales and crops of every built-in network, which `list archs` shows, by building them all.

    python scripts/network_facts.py          writes trainauto/commands/network_facts.json; a minute, 1 GiB

spandrel has to be installed: pip install --no-deps spandrel spandrel_extra_arches einops
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trainauto.archs import ARCHS
from trainauto.commands.network_facts import FILE, found_out
from trainauto.core.files import write_text_atomically

KEPT = ("parameters", "scales", "minimum", "multiple")
"""What has to be built to be known; the rest is read off constructors."""


def main() -> None:
    facts = {name: asdict(found_out(name)) for name in ARCHS}
    if unknown := [name for name, entry in facts.items() if entry["parameters"] is None]:
        sys.exit(f"these cannot be built here: {', '.join(unknown)}; is spandrel installed?")
    lines = (f"  {json.dumps(name)}: {json.dumps({key: entry[key] for key in KEPT})}" for name, entry in facts.items())
    write_text_atomically(FILE, "{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{FILE}: {len(facts)} networks")


if __name__ == "__main__":
    main()
