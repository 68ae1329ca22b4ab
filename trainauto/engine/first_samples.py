"""What the first step trains on, to be looked at."""

from trainauto.core.batch import Batch
from trainauto.core.workload import ShowableSamples
from trainauto.engine.run import Run

SHOWN_SAMPLES = 6


def show_first_samples(run: Run, batch: Batch) -> None:
    """Report pictures of the first samples of the first step's batch, where samples can be shown."""
    workload = run.loader.dataset.workload
    if run.progress.steps or not isinstance(workload, ShowableSamples):
        return
    if shown := workload.shown(batch.tensors, SHOWN_SAMPLES):
        run.reporter.first_samples(shown)
