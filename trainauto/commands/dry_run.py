"""A run from its building to its checkpoint, on real data, in a folder that is thrown away."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from trainauto.automations import Automation
from trainauto.build import build_run
from trainauto.commands.doctor_checks.reading_speed import reading
from trainauto.control.controller import controllers_of
from trainauto.core.decisions import Decision, Rollback, Stop
from trainauto.core.plan import Plan
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import ImageArray, Picture, RunEnd, RunSummary
from trainauto.engine.epochs import Epochs
from trainauto.engine.loop import train
from trainauto.engine.run import Frequencies, Run
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import kind_of
from trainauto.reporting.formatting import decision_lines


class DryRun:
    """The run of an option file, built by what builds real ones; only its folder is another.

    Args:
        loaded: the option file.
        folder: where the run directory goes; the caller removes it.
    """

    def __init__(self, loaded: LoadedOptions[FileOptions], folder: Path) -> None:
        start = time.perf_counter()
        self._kind = kind_of(loaded.options).samples
        with ExitStack() as stack:
            self._heard = stack.enter_context(_Warnings())
            self._run = stack.enter_context(build_run(loaded, root=folder))
            self._stack = stack.pop_all()  # taken down by `train`; where building fails, here
        self._seconds = time.perf_counter() - start

    def built(self) -> dict[str, Any]:
        """Return what is known before the first step, as plain values."""
        run, summary, batch_bytes = self._run, self._run.summary, self._run.loader.dataset.batch_bytes
        return {
            "device": summary.device,
            "device_type": run.model.device.type,
            "precision": summary.precision,
            "network": summary.network,
            "parameters": summary.parameters,
            "parameter_bytes": sum(
                tensor.numel() * tensor.element_size()
                for name in run.model.networks
                for tensor in run.model.kept_state(name).values()
            ),
            "averages": len(run.model.averages),
            "threads": torch.get_num_threads(),
            "plan": run.loader.plan.to_dict(),
            "plan_text": str(run.loader.plan),
            "configured_plan_text": str(run.first_plan),
            "batch_bytes": batch_bytes(run.loader.plan),
            "largest_batch_bytes": batch_bytes(largest) if (largest := _largest(run)) is not None else None,
            "samples": dict(summary.samples),
            "kind": self._kind,
            "not_read": dict(self._not_read()),
            "smallest_px": summary.smallest_px,
            "facts": dict(summary.facts),
            "limit_bytes": summary.memory_limit_bytes,
            "target_bytes": summary.memory_target_bytes,
            "seconds": self._seconds,
            "warnings": self._heard.take(),
        }

    def read(self) -> dict[str, Any]:
        """Return how fast one process reads the training set.

        Raises:
            InputError: an image cannot be decoded.
        """
        run = self._run
        return reading(run.loader.dataset, run.loader.plan.size)

    def _not_read(self) -> Counter[str]:
        """Return how many files beside the samples are of other kinds, in all sets."""
        datasets = (self._run.loader.dataset, *(validator.dataset for validator in self._run.validators))
        return sum((Counter(dataset.not_read) for dataset in datasets), Counter())

    def close(self) -> None:
        """Take the run down."""
        self._stack.close()

    def train(self, steps: int) -> dict[str, Any]:
        """Train, validate the largest image of each set or its longest texts, write a checkpoint, take the run down.

        Returns the outcome.

        Raises:
            TrainautoError: as a run would.
        """
        run, recorder = self._run, _Recorder()
        run.reporter = recorder
        run.closing, run.epochs = _nothing_more, Epochs(run.epochs.samples)  # nothing is made of what was trained
        run.journal.automations = [*run.journal.automations, _EndAfter(steps)]
        for validator in run.validators:
            validator.is_rehearsal = True
        every = steps if run.validators and _validates(run.frequencies) else 0
        run.frequencies = Frequencies(every, 0, run.frequencies.best_metric)
        with self._stack:
            train(run)
        files = [file for file in Path(run.last_checkpoint or "").rglob("*") if file.is_file()]
        return {
            "steps": [_step(record) for record in recorder.records],
            "decisions": recorder.decisions,
            "validations": [_validation(record) for record in recorder.validations],
            "checkpoint_bytes": sum(file.stat().st_size for file in files),
            "limit_bytes": run.meter.limit_bytes,
            "is_enforced": run.meter.is_enforced,
            "warnings": self._heard.take(),
        }


def _validates(frequencies: Frequencies) -> bool:
    return bool(frequencies.validate) or frequencies.validates_epochs or frequencies.validates_end


def _nothing_more(_progress: Progress) -> tuple[()]:
    return ()


def _largest(run: Run) -> Plan | None:
    """Return the largest plan a controller may go to; ``None`` where there is none."""
    controllers = controllers_of(run.journal.automations)
    if not controllers:
        return None
    return Plan.of(**{axis.name: axis.clamp(axis.maximum) for axis in controllers[0].bounded(run.axes)})


class _EndAfter(Automation):
    """Ends the run after some steps."""

    priority = 1000

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_step_end(self, record: StepRecord) -> Decision | None:
        """Stop when enough were trained."""
        return Stop("it was a dry run") if record.step >= self._steps else None


class _Recorder:
    """A reporter that keeps what is reported."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []
        self.decisions: list[str] = []
        self.validations: list[ValidationRecord] = []

    def start(self, summary: RunSummary) -> None:
        """Nothing is known yet."""

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:  # noqa: ARG002
        """Keep the record, and what automations asked for."""
        self.records.append(record)
        for decision in decisions:
            if not isinstance(decision, Stop):
                self.decisions += decision_lines(record.step, decision, 0)

    def validation(
        self,
        record: ValidationRecord,
        pictures: Sequence[Picture],  # noqa: ARG002
        decisions: Sequence[Decision] = (),  # noqa: ARG002
    ) -> None:
        """Keep the record."""
        self.validations.append(record)

    def first_samples(self, samples: Sequence[Mapping[str, ImageArray]]) -> None:
        """Nothing is shown."""

    def sync(self) -> None:
        """Nothing is written."""

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:  # noqa: ARG002
        """Keep what the run went back from."""
        self.decisions += decision_lines(rollback.to_step, rollback, 0)

    def end(self, summary: RunEnd) -> None:
        """Nothing more is wanted."""


class _Warnings(logging.Handler):
    """Keeps what rooms and libraries warn of; each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: dict[str, None] = {}
        self._loggers = [logging.getLogger(name) for name in ("trainauto", "py.warnings")]

    def __enter__(self) -> "_Warnings":
        logging.captureWarnings(capture=True)
        for logger in self._loggers:
            logger.addHandler(self)
        return self

    def __exit__(self, *_exception: object) -> None:
        logging.captureWarnings(capture=False)
        for logger in self._loggers:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a text."""
        self._texts[record.getMessage().strip()] = None

    def take(self) -> list[str]:
        """Return what was kept since the last call."""
        texts = list(self._texts)
        self._texts.clear()
        return texts


def _step(record: StepRecord) -> dict[str, Any]:
    return {
        "step": record.step,
        "plan_text": str(record.plan),
        "losses": dict(record.losses),
        "grad_norms": dict(record.grad_norms),
        "step_seconds": record.step_seconds,
        "data_seconds": record.data_seconds,
        "peak_bytes": record.peak.allocated if record.peak else None,
        "predicted_bytes": record.predicted,
        "ooms": record.ooms,
        "pieces": {name: split.micro_batches for name, split in record.pieces.items()},
    }


def _validation(record: ValidationRecord) -> dict[str, Any]:
    found = record.scores[0] if record.scores else record  # of the one image: a mean leaves out an infinite value
    return {
        "dataset": record.dataset,
        "image": record.scores[0].name if record.scores else "",
        "metrics": dict(found.metrics),
        "baseline": dict(found.baseline),
        "baseline_name": record.baseline_name,
        "seconds": record.seconds,
        "tile_px": record.tile_px,
        "peak_bytes": record.peak.allocated if record.peak else None,
    }
