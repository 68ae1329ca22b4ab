"""A few steps of a Trainer's run, and what came of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformers import TrainerCallback

from trainauto.builders.trainer_run import Pair
from trainauto.core.records import StepRecord
from trainauto.core.units import size_text
from trainauto.core.words import counted


class _Records(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Keeps the records of steps."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.steps: list[StepRecord] = []

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        """Keep the step's."""
        self.steps.append(self._trainer.memory.record)
        return control


def try_trainer(trainer: Any) -> Sequence[Pair]:
    """Train what the trainer's arguments say, measure where it has something to measure on, and return lines of it."""
    records = _Records(trainer)
    trainer.add_callback(records)
    trainer.train()
    pairs = [pair for record in records.steps for pair in _step_pairs(record, trainer.memory.running.limit_bytes)]
    if trainer.eval_dataset is not None:
        metrics = trainer.evaluate()
        pairs.append(("measured", f"loss {metrics['eval_loss']:.4g} in {metrics['eval_runtime']:.1f} s"))
    return pairs


def _step_pairs(record: StepRecord, limit_bytes: int | None) -> Iterator[Pair]:
    losses = ", ".join(f"{name} {value:.4g}" for name, value in record.losses.items())
    norms = ", ".join(f"{value:.3g}" for value in record.grad_norms.values())
    yield f"step {record.step}", f"{losses}; gradient norm {norms}"
    yield (
        "",
        f"{counted(record.shape.samples, 'sample')} in {record.step_seconds:.2f} s; waited {record.data_seconds:.2f} s",
    )
    if record.peak is not None:
        of = f" of {size_text(limit_bytes)}" if limit_bytes else ", all that the process holds"
        yield "memory", f"peak {size_text(record.peak.allocated)}{of}"
    if record.ooms:
        yield "out of mem.", f"{counted(record.ooms, 'time')}; the step ran in smaller parts"
