"""Are gradients and updates those of plain PyTorch, whatever is done to a run? In the engine, a loop, a Trainer.

    python scripts/bench/gradients.py [--only WORDS ...] [--small] [--results FILE] [--fresh] [--write FOLDER]
                                      [--scripts FOLDER]

Ten losses, five models, float64, and what is done wrong or goes wrong: batches changed in place, weights that are
floats, memory that runs out in the update ... Each cell trains three steps of which memory holds a part, and the same
samples train in a plain loop (``gradients_watch.py``). Verdicts are appended to a file of JSON lines, so that a second
call runs only what is missing. ``--small`` runs the cells that tests run. Ten minutes on one core.
``--write docs/benchmarks`` writes gradients.md there.

Exit code 1 if a cell is WRONG.
"""

import argparse
import gc
import importlib
import json
import platform
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import trainauto

trainauto.set_environment()

import torch  # noqa: E402
from gradients_cases import Cell, all_cells, cells_for_tests  # noqa: E402
from gradients_page import page  # noqa: E402
from gradients_scripts import script_verdicts  # noqa: E402
from gradients_verdict import WRONG, Verdict, judge  # noqa: E402
from peers_env import ROOT  # noqa: E402

SCRIPTS = ROOT.parent / "shared" / "cases" / "loops"


def judged(cells: Sequence[Cell], known: dict[str, Verdict], file: Path | None) -> list[Verdict]:
    """Return the verdict of each cell; train those that are not known yet."""
    missing = [cell for cell in cells if cell.key not in known]
    if missing:
        keep_collections_short()
    for number, cell in enumerate(missing, 1):
        known[cell.key] = judge(cell)
        note(known[cell.key], file)
        if number % 100 == 0:
            print(f"{number} of {len(missing)} cells", file=sys.stderr, flush=True)
    return [known[cell.key] for cell in cells]


def keep_collections_short() -> None:
    """Have the collector pass over all that is imported: every step that runs out of memory collects."""
    for module in ("trainauto.huggingface", "transformers.trainer", "transformers.models.llama.modeling_llama"):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def note(verdict: Verdict, file: Path | None) -> None:
    """Append a verdict to the results; say on the terminal what is wrong."""
    if verdict.outcome == WRONG:
        print(f"WRONG  {verdict.key}: {verdict.words}", flush=True)
    if file is not None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(verdict.to_dict()) + "\n")


def known_verdicts(file: Path | None) -> dict[str, Verdict]:
    """Return what an earlier call has found."""
    if file is None or not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {row["key"]: Verdict(**row) for row in rows}


def main(words: Sequence[str] | None = None) -> int:
    """Train, judge, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORDS", help="cells whose names hold all of these")
    parser.add_argument("--small", action="store_true", help="the cells that tests run")
    parser.add_argument("--results", type=Path, help="JSON lines, one a cell; those there are not run again")
    parser.add_argument("--fresh", action="store_true", help="forget the results")
    parser.add_argument("--scripts", type=Path, default=SCRIPTS, help="folder of scripts that run as they are")
    parser.add_argument("--write", type=Path, help="folder for gradients.md")
    parser.add_argument("--machine", default="a virtual machine", help="words for the page")
    arguments = parser.parse_args(words)
    torch.set_num_threads(1)
    if arguments.fresh and arguments.results is not None:
        arguments.results.unlink(missing_ok=True)
    known = known_verdicts(arguments.results)
    cells = cells_for_tests() if arguments.small else all_cells()
    cells = [cell for cell in cells if all(word in cell.key for word in arguments.only)]
    verdicts = judged(cells, known, arguments.results)
    scripts: list[Verdict] = []
    if not arguments.scripts.is_dir():
        print(f"no folder {arguments.scripts.name} of scripts: they are left out", file=sys.stderr)
    elif not arguments.only and not arguments.small:
        scripts = script_verdicts(arguments.scripts, known, lambda verdict: note(verdict, arguments.results))
    facts = {
        "command": "python scripts/bench/gradients.py --write docs/benchmarks",
        "date": date.today().isoformat(),
        "machine": f"one core of {arguments.machine}, Python {platform.python_version()}, torch {torch.__version__}",
        "cpu_s": f"{sum(verdict.seconds for verdict in [*verdicts, *scripts]):.0f}",
    }
    text = page(cells, verdicts, scripts, facts)
    print(text)
    if arguments.write:
        (arguments.write / "gradients.md").write_text(text, encoding="utf-8")
    return int(any(verdict.outcome == WRONG for verdict in [*verdicts, *scripts]))


if __name__ == "__main__":
    sys.exit(main())
