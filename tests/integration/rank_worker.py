"""One rank of a run, as train.py has it, and besides a file of what this rank saw: batches, plans, weights.

python rank_worker.py OPTIONS OUT [--auto_resume]
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.scripted_loader import crops
from trainauto.build import build_run
from trainauto.core.batch import Batch
from trainauto.distributed.communicator import init_distributed
from trainauto.engine.loop import train
from trainauto.engine.run import Run
from trainauto.options.load import load_options


class Watched:
    """A loader whose batches are noted."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.seen: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            self.seen.append(
                {
                    "names": [Path(name).name for name in batch.names],
                    "plan": batch.plan.to_dict(),
                    "drawn": batch.drawn.to_dict(),
                    "first": batch.first_sample,
                    "step_samples": batch.step_samples,
                    "crops": crops(batch),
                }
            )
            yield batch


def digest(run: Run) -> str:
    found = hashlib.sha256()
    for name, network in run.model.networks.items():
        for tensor in network.state_dict().values():
            found.update(name.encode() + tensor.numpy().tobytes())
    for average in run.model.averages.values():
        for tensor in average.network.state_dict().values():
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def main(options: str, out: str, *arguments: str) -> None:
    launcher = "pytorch" if "--alone" not in arguments else "none"
    loaded = load_options(Path(options))
    with (
        init_distributed(launcher) as ranks,
        build_run(loaded, auto_resume="--auto_resume" in arguments, ranks=ranks) as run,
    ):
        watched = run.loader = Watched(run.loader)  # type: ignore[assignment]
        train(run)
        seen = {"rank": ranks.rank, "batches": watched.seen, "weights": digest(run), "progress": vars(run.progress)}
    Path(out).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
