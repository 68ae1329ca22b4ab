"""What the first step trains on, to be looked at."""

from trainauto.core.batch import Batch
from trainauto.core.workload import ShowableSamples
from trainauto.engine.run import Run

SHOWN_SAMPLES = 6


def show_first_samples(run: Run, batch: Batch) -> None:
    """Report pictures of a batch's first samples before the first step, where samples can be shown."""
    workload = run.loader.dataset.workload
    if not run.progress.steps and isinstance(workload, ShowableSamples):
        run.reporter.first_samples(workload.shown(batch.tensors, SHOWN_SAMPLES))
