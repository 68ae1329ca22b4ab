"""What a run tells the people who watch it: how it begins, its pictures, how it ends, and to whom it tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trainauto.core.decisions import Decision, Rollback
from trainauto.core.plan import Plan
from trainauto.core.records import Progress, StepRecord, ValidationRecord

DETAIL = 15
"""Level, between DEBUG and INFO, of messages for training.log alone: what one looks up, and need not see."""

ImageArray = NDArray[np.uint8]
"""One image, (H, W, C) in RGB order with C = 3, or (H, W, 1) in grey."""

LengthUnit = Literal["steps", "samples"]
"""What the length of a run is counted in: optimizer steps, or samples drawn."""

EndStatus = Literal["completed", "stopped", "interrupted", "failed"]
"""``completed``: its whole length; ``stopped``: an automation asked for it; ``interrupted``: a signal; ``failed``."""


@dataclass(frozen=True)
class RunSummary:
    """What is known of a run before its first step.

    Attributes:
        name: name of the experiment.
        run_directory: where its files are, as the person should read it.
        device: where it trains, e.g. ``cuda:0 NVIDIA H100 (79.1 GiB)``.
        network: the network in words, e.g. ``SRResNet x4``.
        parameters: number of trained parameters.
        plan: the plan it starts (or resumes) with.
        total: length of the run, in ``unit``.
        unit: what the length is counted in.
        samples: number of training samples, and of samples of each validation set, by the name of the set.
        train_set: which of ``samples`` is trained on; empty where there is no such count.
        smallest_px: shorter side of its smallest image, at the network's input; ``None`` if unknown.
        progress: the counters at the start; they hold more than 0 steps when the run was resumed.
        precision: number format of forward and loss.
        facts: further (label, text) lines of the start-up summary, in order.
        plan_is_open: a controller measures plans before the first batch, which may then be drawn under another one.
        memory_target_bytes: peak that a controller steers to; ``None`` where none does.
        memory_limit_bytes: memory this process may use; ``None`` if unknown.
        page: where its page is, as the person should read it; empty where it has none.
    """

    name: str
    run_directory: str
    device: str
    network: str
    parameters: int
    plan: Plan
    total: int
    unit: LengthUnit = "steps"
    samples: Mapping[str, int] = field(default_factory=dict)
    train_set: str = ""
    smallest_px: int | None = None
    progress: Progress = field(default_factory=Progress)
    precision: str = "fp32"
    facts: tuple[tuple[str, str], ...] = ()
    plan_is_open: bool = False
    memory_target_bytes: int | None = None
    memory_limit_bytes: int | None = None
    page: str = ""

    @property
    def resumed(self) -> bool:
        """Whether the run resumes from a checkpoint."""
        return self.progress.steps > 0

    def done(self, progress: Progress) -> int:
        """Return how much of ``total`` lies behind, in ``unit``."""
        return progress.steps if self.unit == "steps" else progress.samples


@dataclass(frozen=True)
class RunEnd:
    """How a run ended.

    Attributes:
        status: in which way.
        reason: why, in words; shown as it is.
        progress: the counters at the end.
        checkpoint: the last checkpoint written, as the person should read it; empty where there is none.
        facts: further (label, text) lines of the end summary, in order.
        resume_command: the command that resumes it; empty where there is nothing to resume.
        termination_status: what ended it, in one word for programs (``auto_complete``, ``user_stop``); empty where its
            status says enough.
    """

    status: EndStatus
    reason: str
    progress: Progress
    checkpoint: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    resume_command: str = ""
    termination_status: str = ""


@dataclass(frozen=True, eq=False)
class Picture:
    """One validation image as it came out, beside what it is compared with.

    Attributes:
        name: name of the image within its set.
        output: what the network made.
        baseline: what costs nothing: plain enlargement of the same input; ``None`` where there is none.
        reference: what it should have been; ``None`` where there is none.
    """

    name: str
    output: ImageArray
    baseline: ImageArray | None = None
    reference: ImageArray | None = None


class ReporterLike(Protocol):
    """What the engine reports to. Nothing that is reported is ever changed, and reporting never fails the run.

    The engine calls :meth:`start` once, :meth:`step` after every optimizer step, :meth:`validation` after every
    validation set, :meth:`rolled_back` after every rollback, :meth:`sync` before every checkpoint and :meth:`end` once,
    also when the run fails. What is said in words goes to the stdlib logger ``trainauto`` (or a child of it) from any
    room; reporters listen to that.
    """

    def start(self, summary: RunSummary) -> None:
        """Before the first step."""

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        """After an optimizer step: its record, what was decided upon it, and the progress with this step in it."""

    def first_samples(self, samples: Sequence[Mapping[str, ImageArray]]) -> None:
        """After the first step of a new run: pictures of some of its samples, by name, where they can be shown."""

    def validation(
        self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision] = ()
    ) -> None:
        """After a validation set, with some of its pictures and what was decided upon it."""

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        """After the run has gone back to a checkpoint: what was reported after that step no longer counts."""

    def sync(self) -> None:
        """Before a checkpoint is put in its place: what was reported is to survive a power cut as it does."""

    def end(self, summary: RunEnd) -> None:
        """After the last step, whichever way the run ended."""
