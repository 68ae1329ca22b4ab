"""What a run says about itself: progress, memory readings and one record a step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainauto.core.noise_scale import NoiseSample
from trainauto.core.plan import BATCH_SIZE, BatchShape, Plan
from trainauto.core.sharding import SampleSharding


@dataclass(frozen=True)
class PeakReading:
    """Bytes of one window of one phase. ``None`` where the device cannot tell.

    Attributes:
        allocated: peak bytes held by tensors (CUDA), or the process's peak resident bytes (CPU).
        reserved: peak bytes the caching allocator took from the device (CUDA), or the private writable memory of the
            process at the end of the window, which is what a budget bounds (CPU).
        device_used: bytes in use on the device by every process, at the end of the window.
        limit: bytes this process may use.
        alloc_retries: times the allocator had to flush its cache within the window.
        current: bytes held when the window ended, counted as ``allocated`` is.
        available: what ``reserved`` may grow to: the limit, or what other processes leave of the device (CUDA).
    """

    allocated: int
    reserved: int | None = None
    device_used: int | None = None
    limit: int | None = None
    alloc_retries: int = 0
    current: int | None = None
    available: int | None = None


@dataclass(frozen=True)
class Probe:
    """A plan that was measured before the first step, without training it.

    Attributes:
        plan: which.
        peak: what it took; ``None`` if it did not fit.
        limit: bytes this process may use.
        left: how many more plans may be measured.
    """

    plan: Plan
    peak: PeakReading | None
    limit: int | None
    left: int


@dataclass(frozen=True)
class MicrobatchSplit:
    """How a pass ran in the end: what it takes to run it so again, to the bit.

    Attributes:
        micro_batches: pieces of the batch.
        extent: size of its samples: side of crops in low-quality pixels, tokens of padded rows.
        without_onednn: running out of memory had broken oneDNN, so that torch's own convolutions did the work (CPU).
    """

    micro_batches: int
    extent: int
    without_onednn: bool = False


@dataclass(frozen=True)
class RankFigures:
    """What of a step only several ranks have.

    Attributes:
        count: how many ranks trained it.
        planned_samples: samples that a step under its plan holds on all of them.
        worst: the rank that used the largest share of its memory; the record's peak is its reading.
        ooms: times each rank that ran out of memory did so, by its number.
        shares: batch of each rank relative to the largest; empty where they are equal.
    """

    count: int
    planned_samples: int
    worst: int = 0
    ooms: Mapping[int, int] = field(default_factory=dict)
    shares: tuple[float, ...] = ()

    @property
    def sharding(self) -> SampleSharding:
        """How samples were divided among them."""
        return SampleSharding(self.shares) if self.shares else SampleSharding.equal(self.count)


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step, as it was, on all ranks together.

    Attributes:
        step: 1-based number of the step.
        plan: the plan the batch was trained under; its batch is that of one rank.
        drawn: the plan it was drawn under; it differs while batches in flight are re-cut after a shrink.
        shape: what the batch really held.
        first_sample: position of its first sample in the run's stream of samples (0-based).
        losses: value of each loss term, weighted by samples over the micro-batches.
        learning_rates: rate of each optimizer's first group at this step.
        grad_norms: gradient norm of each pass before clipping.
        data_seconds: time the loop waited for the batch.
        step_seconds: time from having the batch to having the losses.
        compile_seconds: the part of it that ``torch.compile`` took; such a step's peak does not count for its plan.
        units: work in the batch, in the unit its throughput is reported in: high-quality pixels, or tokens.
        peak: memory reading of the step's window.
        skipped: passes whose optimizer step was skipped because fp16 gradients overflowed.
        ooms: times a pass ran out of memory and was run again in smaller pieces.
        predicted: bytes the plan was expected to peak at, before the step ran; ``None`` if unknown.
        pieces: how each pass ran that did not run as the plan says; on several ranks, on the one that took most pieces.
        ranks: what only several ranks have; ``None`` on one.
        draw_samples: samples of the whole draw it is of, on all ranks; 0 where that is the ``batch_size`` of ``drawn``.
        task_losses: mean loss of each task over its samples, without weights, where several tasks are trained at once.
        task_samples: how many samples of each task that is a mean over, where the engine has trained them.
        non_finite: passes that left the weights alone because their gradients were no finite numbers, where something
            watches for that; those of float16 that overflow are in ``skipped``.
        told: loss terms that are reported only, since they have no gradients: parts of a total, an accuracy.
        left_out: passes that the model does not run in this step, as a generator between steps of its own.
        noise: of steps in which it was measured, how the gradients of the batch's parts differ, by pass.
        fills_plan: whether its samples were about as large as the largest there are, where plans do not say how large
            samples are: what a step of small ones took, its plan needs at least. Not in logs.
    """

    step: int
    plan: Plan
    drawn: Plan
    shape: BatchShape
    first_sample: int
    losses: Mapping[str, float]
    learning_rates: Mapping[str, float]
    grad_norms: Mapping[str, float]
    data_seconds: float
    step_seconds: float
    units: int = 0
    peak: PeakReading | None = None
    skipped: tuple[str, ...] = ()
    ooms: int = 0
    predicted: int | None = None
    pieces: Mapping[str, MicrobatchSplit] = field(default_factory=dict)
    ranks: RankFigures | None = None
    draw_samples: int = 0
    task_losses: Mapping[str, float] = field(default_factory=dict)
    task_samples: Mapping[str, int] = field(default_factory=dict)
    non_finite: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    noise: Mapping[str, NoiseSample] = field(default_factory=dict)
    fills_plan: bool = True
    compile_seconds: float = 0.0

    @property
    def loss(self) -> float:
        """Sum of the loss terms that are minimised."""
        return sum(value for name, value in self.losses.items() if name not in self.told)

    @property
    def is_as_planned(self) -> bool:
        """Whether it trained as many samples, and as large ones, as its plan says, in all passes."""
        if self.left_out:
            return False
        if BATCH_SIZE not in self.plan:  # it leaves the number open: it trained all that was drawn, and under that plan
            return self.shape.samples == self.draw_samples and self.plan == self.drawn
        samples = self.plan.batch_size if self.ranks is None else self.ranks.planned_samples
        return self.shape.samples == samples and self._is_of_planned_size

    @property
    def _is_of_planned_size(self) -> bool:
        if self.shape.tokens:  # texts are as long as they are; their plan bounds them
            return not self.plan.has_size or self.shape.extent <= self.plan.size
        return not self.plan.has_size or self.shape.extent == self.plan.size

    @property
    def is_whole(self) -> bool:
        """Whether it trained what its plan says at the first attempt, so that its peak is the plan's."""
        is_undivided = not self.ooms and not self.pieces  # a replay runs in pieces without a failure
        return self.is_as_planned and is_undivided and not self.compile_seconds


@dataclass(frozen=True)
class OutOfMemory:
    """A real allocation failure in a step.

    Attributes:
        step: 1-based number of the step it happened in.
        plan: the plan the batch was trained under.
        shape: what was in the largest forward pass that failed.
        pass_name: which pass failed.
        message: what the allocator said.
        pieces: micro-batches the batch then ran in; 0 if it could not be run in pieces at all.
        limit: bytes this process may use; ``None`` if unknown.
        peak: of a step that has no record, for its batch went back; ``None`` where a record follows.
    """

    step: int
    plan: Plan
    shape: BatchShape
    pass_name: str
    message: str
    pieces: int
    limit: int | None = None
    peak: PeakReading | None = None

    @property
    def recovered(self) -> bool:
        """Whether the very batch was trained after all, in pieces."""
        return self.pieces > 0


@dataclass(frozen=True)
class Progress:
    """The progress counters that schedules, EMA, logging and stopping read: what is kept of all that was trained.

    Attributes:
        undone_steps: steps that were trained and undone by rollbacks.
        undone_samples: samples of those steps.
        undone_seconds: their time.
    """

    steps: int = 0
    samples: int = 0
    units: int = 0
    tokens: int = 0
    seconds: float = 0.0
    undone_steps: int = 0
    undone_samples: int = 0
    undone_seconds: float = 0.0

    @classmethod
    def from_dict(cls, counters: Mapping[str, Any]) -> "Progress":
        """Return the counters of a checkpoint; ``units`` were called ``pixels`` before."""
        return cls(**{"units" if name == "pixels" else name: value for name, value in counters.items()})

    def __add__(self, record: StepRecord) -> "Progress":
        return replace(
            self,
            steps=self.steps + 1,
            samples=self.samples + record.shape.samples,
            units=self.units + record.units,
            tokens=self.tokens + record.shape.tokens,
            seconds=self.seconds + record.data_seconds + record.step_seconds,
        )

    def gone_back_to(self, earlier: "Progress") -> "Progress":
        """Return the counters after a rollback from here to an earlier moment of the run."""
        return replace(
            earlier,
            undone_steps=self.undone_steps + self.steps - earlier.steps,
            undone_samples=self.undone_samples + self.samples - earlier.samples,
            undone_seconds=self.undone_seconds + self.seconds - earlier.seconds,
        )


@dataclass(frozen=True)
class ImageScore:
    """Metrics of one validation image, and those of what costs nothing: bicubic enlargement of the same input."""

    name: str
    metrics: Mapping[str, float]
    baseline: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ValidationRecord:
    """One validation of one set.

    Attributes:
        step: step after which it ran.
        dataset: name of the set.
        metrics: mean of each metric over the set; NaN where no image counts.
        baseline: the same means of what costs nothing: of images, bicubic enlargement of the inputs.
        scores: one entry an image.
        seconds: how long it took.
        tile_px: side of the tiles in pixels of the input at the end; 0 when images ran whole.
        better_is_higher: for each metric, whether a higher value is better.
        peak: memory reading of the validation's own window.
        ooms: times memory ran out in it, so that tiles shrank.
        baseline_name: what ``baseline`` is of.
        seen: what was validated on, in words; empty for the images of ``scores``.
        left_out: for each metric, how many images its means leave out: a value of theirs is infinite or NaN.
        measured_by: for each metric, its arguments and the samples, in words. Only values of the same are compared.
    """

    step: int
    dataset: str
    metrics: Mapping[str, float]
    baseline: Mapping[str, float]
    scores: tuple[ImageScore, ...]
    seconds: float
    tile_px: int
    better_is_higher: Mapping[str, bool] = field(default_factory=dict)
    peak: PeakReading | None = None
    ooms: int = 0
    baseline_name: str = "bicubic"
    seen: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    measured_by: Mapping[str, str] = field(default_factory=dict)

    def says_nothing_of(self, metric: str) -> bool:
        """Whether the mean of a metric leaves out every image."""
        return 0 < len(self.scores) <= self.left_out.get(metric, 0)
