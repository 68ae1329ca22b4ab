"""What became of a step: it stepped, or it does not fit. The same kind on every rank."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from trainauto.core.noise_scale import NoiseSample
from trainauto.core.records import MicrobatchSplit
from trainauto.core.words import counted
from trainauto.engine.part_norms import PartNorms
from trainauto.memory.monitor.oom import in_words

ELSEWHERE = "another rank has run out of memory"


@dataclass(frozen=True)
class Failure:
    """A pass that ran out of memory and was run again.

    Attributes:
        pass_name: which.
        samples: samples in the largest forward pass that failed.
        pieces: micro-batches it then ran in.
        message: what the allocator said.
        extent: size of the samples it then ran with: side of crops in low-quality pixels, tokens of padded rows.
        fitted: samples of the largest forward pass it then ran in.
        is_cut: whether samples had been made smaller for that than the loader gave them.
    """

    pass_name: str
    samples: int
    pieces: int
    message: str
    extent: int
    fitted: int = 0
    is_cut: bool = False


@dataclass(frozen=True)
class DoesNotFit:
    """Not even the smallest piece of a batch fits; nothing has changed, and the batch may be cut down.

    Attributes:
        pass_name: the pass that ran out of memory.
        samples: samples of the piece that failed.
        message: what the allocator said.
        extent: size of the samples of the batch, as in its shape; 0 if unknown.
    """

    pass_name: str
    samples: int
    message: str
    extent: int = 0

    @classmethod
    def elsewhere(cls, pass_name: str) -> "DoesNotFit":
        """Return what a rank says whose own part of a pass did fit."""
        return cls(pass_name, 0, ELSEWHERE)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it was another rank that ran out of memory."""
        return self.message == ELSEWHERE

    def __str__(self) -> str:
        return f"pass '{self.pass_name}' does not fit with {counted(self.samples, 'sample')}: {in_words(self.message)}"


@dataclass(frozen=True)
class Gradients:
    """What computing the gradients of a pass gave.

    Attributes:
        terms: its loss terms.
        handed_on: what it adds to the batch, for the passes after it.
        split: how it ran.
        failures: how often it ran out of memory before.
        differing: names of what the parts of the batch added that had different values (:func:`handed_on.joined`).
        told: names of terms without gradients: they are reported, and not minimised.
        norms: what the gradients of its parts say, where that is measured.
    """

    terms: dict[str, Tensor]
    handed_on: dict[str, Any]
    split: MicrobatchSplit
    failures: tuple[Failure, ...] = ()
    differing: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()
    norms: PartNorms | None = None


@dataclass(frozen=True)
class Stepped:
    """What a step gave, on this rank.

    Attributes:
        losses: value of each loss term of every pass, weighted by samples; on several ranks, this one's part of it.
        grad_norms: gradient norm of each pass, before clipping.
        skipped: passes whose float16 gradients overflowed, so that their weights were left alone.
        seconds: how long it took.
        failures: passes that ran out of memory on the way, in order.
        pieces: how each pass ran in the end that did not run as the plan says.
        non_finite: passes whose gradients were no finite numbers, so that their weights were left alone.
        told: loss terms without gradients, which are reported and not minimised.
        left_out: passes that the model does not run in this step.
        noise: by pass, how the gradients of its parts differ, where that is measured; of this rank's parts.
        task_losses: by task, its mean loss and how many samples that is of; of this rank.
    """

    losses: Mapping[str, float]
    grad_norms: Mapping[str, float]
    skipped: tuple[str, ...]
    seconds: float
    failures: tuple[Failure, ...] = field(default=())
    pieces: Mapping[str, MicrobatchSplit] = field(default_factory=dict)
    non_finite: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    noise: Mapping[str, NoiseSample] = field(default_factory=dict)
    task_losses: Mapping[str, tuple[float, int]] = field(default_factory=dict)


StepOutcome = Stepped | DoesNotFit
