"""What a training on several tasks is told: the names and defaults of its users, and the rules among them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.tasks.multitask.config_checks import problems_of
from trainauto.tasks.multitask.losses.normalizer import accumulation_steps

TASKS = ("T1", "T2", "T3")
"""Tasks of the example: one image of one subject, several images of one, several subjects."""


class Unwritten(int):
    """A whole number that is a default: it tells a default from the same number written by a person."""


class UnwrittenByTask(dict[str, float]):
    """Numbers by task that are a default: they tell defaults from the same numbers written by a person."""


@dataclass(frozen=True)
class TrainingLength:
    """How long a training is: one of the two counts, the other is ``None``.

    Attributes:
        max_steps: optimizer steps.
        num_epochs: times that each sample is trained.
        reason: why it is this one, for the log.
    """

    max_steps: int | None
    num_epochs: int | None
    reason: str


@dataclass
class HeterogeneousTrainingConfig:
    """What a :class:`~trainauto.tasks.multitask.pipeline.DynamicBatchingTrainingPipeline` is told.

    Attributes may be set after it was made; they are checked when they are used. Two that are whole numbers and not
    written yield to what is written: see :attr:`length` and :attr:`steps_of_accumulation`.

    Attributes:
        num_epochs: times that each sample is trained.
        learning_rate: of a step of the samples that a run begins with.
        base_batch_size: samples of a forward pass to begin with; memory decides in how many passes a step runs.
        target_batch_size: samples of a step; without accumulation, the most that steps may grow to.
        gradient_accumulation_steps: passes of a step; it follows from the two before, and may be left out.
        use_gradient_accumulation: whether a step has ``target_batch_size`` samples whatever fits into one pass. Without
            it a step is one pass, and grows with the memory there is.
        max_memory_mb: memory that steps may take, in MiB: of a card in all, on a CPU beside what is held before. More
            than there is becomes what there is.
        memory_margin_percent: share of it that is left free, 0 to 1: 0.1 is a tenth.
        enable_gradient_checkpointing: whether activations are computed a second time in place of being kept.
        task_distribution: share of each task in what is drawn.
        initial_task_loss_weights: of each task's loss; a task that is not named weighs 1.
        use_grad_norm_balancing: whether weights follow gradient norms from there on (GradNorm).
        grad_norm_alpha: how strongly GradNorm favours tasks that learn more slowly; 0 makes norms equal.
        warmup_steps: steps in which the rate rises; the default yields in runs that are shorter than ten times as many.
        max_steps: optimizer steps; 0 or less leaves the length to ``num_epochs``.

    Raises:
        InputError: an attribute is set that there is not; it names the nearest.
    """

    num_epochs: int = Unwritten(3)
    learning_rate: float = 5e-5
    base_batch_size: int = 16
    target_batch_size: int = Unwritten(32)
    gradient_accumulation_steps: int = Unwritten(2)
    use_gradient_accumulation: bool = True
    max_memory_mb: float = 30000
    memory_margin_percent: float = 0.10
    enable_gradient_checkpointing: bool = False
    task_distribution: dict[str, float] = field(default_factory=lambda: UnwrittenByTask(T1=0.4, T2=0.3, T3=0.3))
    initial_task_loss_weights: dict[str, float] = field(default_factory=lambda: UnwrittenByTask.fromkeys(TASKS, 1.0))
    use_grad_norm_balancing: bool = True
    grad_norm_alpha: float = 1.5
    warmup_steps: int = Unwritten(500)
    max_steps: int = Unwritten(10000)

    def __setattr__(self, name: str, value: Any) -> None:
        names = [known.name for known in fields(self)]
        if name not in names:
            raise InputError(Problem(f"a training has no setting '{name}'", advice=nearest(name, names)))
        object.__setattr__(self, name, value)

    def is_written(self, name: str) -> bool:
        """Whether a person wrote a setting; of fractions and switches, whether it is not the default."""
        value = getattr(self, name)
        default = getattr(type(self)(), name)
        tells = isinstance(default, Unwritten | UnwrittenByTask)
        return bool(value != default) or (tells and not isinstance(value, Unwritten | UnwrittenByTask))

    def check(self) -> None:
        """Refuse settings that cannot be used, or contradict each other.

        Raises:
            InputError: all of them, each with what to do.
        """
        problems = [*problems_of(self), *self._contradictions()]
        if problems:
            raise InputError(problems)

    @property
    def effective_batch_size(self) -> int:
        """Samples of a step: the target; if not written, no less than a forward pass holds."""
        if self.is_written("target_batch_size"):
            return self.target_batch_size
        return max(int(self.target_batch_size), self.base_batch_size)

    @property
    def steps_of_accumulation(self) -> int:
        """Passes of a step to begin with: as many as the target takes, 1 without accumulation."""
        if not self.use_gradient_accumulation:
            return 1
        return accumulation_steps(self.effective_batch_size, self.base_batch_size)

    @property
    def length(self) -> TrainingLength:
        """How long the training is.

        ``max_steps`` above 0 that was written wins over ``num_epochs``; its default yields to a ``num_epochs`` that was
        written; with neither written, ``max_steps`` drives.
        """
        steps, epochs = int(self.max_steps), int(self.num_epochs)
        is_written = self.is_written("max_steps")
        if steps > 0 and is_written:
            over = f", whatever num_epochs={epochs} says" if self.is_written("num_epochs") else ""
            return TrainingLength(steps, None, f"max_steps={steps} was written and ends the training{over}")
        if steps > 0 and not self.is_written("num_epochs"):
            return TrainingLength(steps, None, f"max_steps={steps} ends the training: nothing else was written")
        why = f"the default of max_steps, {steps}, yields to it" if steps > 0 else f"max_steps={steps} counts no steps"
        return TrainingLength(None, epochs, f"num_epochs={epochs} ends the training: {why}")

    def warmup_of(self, run_steps: int) -> int:
        """Return the steps in which the rate rises; by default, they are a tenth of the run at most.

        Args:
            run_steps: steps of the whole run, of the samples it begins with.
        """
        written = int(self.warmup_steps)
        return written if self.is_written("warmup_steps") else min(written, run_steps // 10)

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as plain numbers and texts, for files."""
        values = {known.name: getattr(self, known.name) for known in fields(self)}
        plain = {Unwritten: int, UnwrittenByTask: dict}
        return {name: plain.get(type(value), lambda same: same)(value) for name, value in values.items()}

    def _contradictions(self) -> Iterator[Problem]:
        if not all(_is_count(value) for value in (self.base_batch_size, self.target_batch_size)):
            return
        if self.effective_batch_size < self.base_batch_size:
            yield Problem(
                f"target_batch_size={self.target_batch_size} is below base_batch_size={self.base_batch_size}: a step "
                "holds at least one forward pass",
                advice=f"Write base_batch_size={self.target_batch_size}, or a larger target.",
            )
            return
        given, right = self.gradient_accumulation_steps, self.steps_of_accumulation
        if self.use_gradient_accumulation and self.is_written("gradient_accumulation_steps") and given != right:
            yield Problem(
                f"gradient_accumulation_steps={given} contradicts target_batch_size={self.effective_batch_size} in "
                f"passes of base_batch_size={self.base_batch_size}, which are {right}",
                advice=f"Leave it out, or write {right}.",
            )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
