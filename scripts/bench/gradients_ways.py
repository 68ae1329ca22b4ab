"""The three ways in which ``gradients.py`` trains a cell: the engine's step, an AdaptiveLoop, a Trainer."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gradients_cases import TOTAL, Cell
from gradients_watch import Watch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto import AdaptiveLoop, ModelObjective, Range
from trainauto.core.batch import Batch
from trainauto.core.errors import Saving, saving_before
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import Plan
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.integrations.samples import NestedSamples, template_of
from trainauto.integrations.structure import leaves_of
from trainauto.models.base_model import BaseModel


class MixtureKeptError(Exception):
    """Weights of which some have moved would be saved, or were."""


class TouchedError(Exception):
    """A batch that was given back has changed weights, buffers or the generator."""


def train(cell: Cell, watch: Watch) -> bool:
    """Train a cell; say whether all its samples were trained, since what does not fit may be given back.

    Raises:
        TrainautoError: refused in words.
    """
    way = {"engine": _in_engine, "loop": _in_loop, "trainer": _in_trainer}[cell.way]
    return way(cell, watch)


class EngineModel(BaseModel):
    """A model of one objective, as the engine knows it; of a loss in parts it gets the parts, whose sum it takes."""

    def __init__(self, cell: Cell, watch: Watch) -> None:
        super().__init__(torch.device("cpu"))
        self._watch = watch
        self.networks["net"] = watch.net
        self.optimizers["train"] = watch.optimizer
        self._objectives = [Objective("train", watch.optimizer, self._terms, not cell.couples)]

    def objectives(self) -> Sequence[Objective]:
        """Return its objective."""
        return self._objectives

    def _terms(self, part: MicroBatch) -> LossTerms:
        result = self._watch.loss(self._watch.net, part)
        terms = {TOTAL: result} if isinstance(result, Tensor) else result
        return {name: value for name, value in terms.items() if len(terms) == 1 or name != TOTAL}


def _in_engine(cell: Cell, watch: Watch) -> bool:
    samples = cell.model.samples(cell.misuse.total_samples)
    template = template_of(_cut(samples, [0]), _cut(samples, [0, 1, 2]), leaves_of, {})
    workload = NestedSamples(template, _weigh_of(cell))
    model = EngineModel(cell, watch)
    snapshot = StepSnapshot(model.networks.values(), model.device)
    size = cell.misuse.samples
    starts = range(0, cell.misuse.total_samples, size)
    waiting = [_cut(samples, list(range(start, start + size))) for start in starts]
    while waiting:
        leaves = waiting.pop(0)
        numbers = leaves["number"].tolist()
        plan = Plan.of(batch_size=len(numbers))
        names = tuple(map(str, numbers))
        batch = Batch(leaves, workload, names, numbers[0], plan, plan, workload.shape(leaves))
        watch.begin_step()
        generator = torch.get_rng_state()
        try:
            outcome = optimize_parameters(model, batch, snapshot=snapshot)
        except Exception as error:
            if saving_before(error) is not Saving.NOBODY and not watch.is_untouched:
                raise MixtureKeptError(f"before this error a run saves: {error}") from error
            raise
        if not isinstance(outcome, DoesNotFit):
            watch.end_step()
            continue
        if not watch.is_untouched or not torch.equal(generator, torch.get_rng_state()):
            raise TouchedError("a batch that did not fit has changed weights, buffers or the generator")
        half = len(numbers) // 2
        if cell.model.needs_two and half < 2:
            return False
        waiting[:0] = [workload.part(leaves, 0, half), workload.part(leaves, half, len(numbers))]
    return True


def _in_loop(cell: Cell, watch: Watch) -> bool:
    size = cell.misuse.samples
    loop = AdaptiveLoop(
        watch.net,
        ModelObjective("train", watch.optimizer, watch.loss, splittable=False if cell.loss.couples else None),
        _rows(cell),
        batch_size=Range(size, size, minimum=2 if cell.model.needs_two else 1) if cell.couples else size,
        weigh=_weigh_of(cell),
        memory_budget=cell.misuse.budget,
    )
    with loop:
        for batch in loop.batches(epochs=1):
            watch.begin_step()
            if loop.step(batch).trained:
                watch.end_step()
            elif not watch.is_untouched:
                raise TouchedError("a batch that did not fit has changed weights or buffers")
    return True


def _in_trainer(cell: Cell, watch: Watch) -> bool:
    from transformers import TrainerCallback

    from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTrainingArguments

    class Noting(TrainerCallback):
        def on_step_begin(self, *_arguments: Any, **_options: Any) -> None:
            watch.begin_step()

        def on_step_end(self, *_arguments: Any, **_options: Any) -> None:
            watch.end_step()

    class CaseTrainer(MemoryAwareTrainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            del return_outputs, num_items_in_batch
            return watch.total(model, inputs)

    with tempfile.TemporaryDirectory() as folder:
        saves = cell.misuse.fails_in_optimizer is not None
        arguments = MemoryAwareTrainingArguments(
            folder,
            per_device_train_batch_size=cell.misuse.samples // cell.misuse.passes,
            gradient_accumulation_steps=cell.misuse.passes,
            num_train_epochs=1,
            max_grad_norm=0,
            lr_scheduler_type="constant",
            remove_unused_columns=False,
            memory_budget=cell.misuse.budget,
            run_directory="",
            report_to=[],
            use_cpu=True,
            save_strategy="steps" if saves else "no",
            save_steps=1,
            logging_strategy="no",
            disable_tqdm=True,
        )
        optimizers: tuple[Optimizer, Any] = (watch.optimizer, None)
        trainer = CaseTrainer(
            model=watch.net,
            args=arguments,
            train_dataset=_rows(cell),
            callbacks=[Noting()],
            optimizers=optimizers,
            **_declared(cell),
        )
        try:
            trainer.train()
        except Exception as error:
            if len(list(Path(folder).glob("checkpoint-*"))) > len(watch.steps):
                raise MixtureKeptError(f"a checkpoint was written before this error: {error}") from error
            raise
    return True


def _declared(cell: Cell) -> dict[str, Any]:
    """Return what a Trainer is told of the loss: how parts weigh, or that they are no way out."""
    if not cell.misuse.declares:
        return {}
    if cell.loss.couples:
        return {"splittable": False}
    own = partial(_weight, cell)
    is_function = cell.misuse.weighs_floats or cell.loss.weighs == "its own"
    return {"loss_weighing": own if is_function else cell.loss.weighs}


def _weigh_of(cell: Cell) -> Any:
    """Return what parts weigh, where that is not their samples."""
    return None if cell.loss.weighs == "samples" and not cell.misuse.weighs_floats else partial(_weight, cell)


def _weight(cell: Cell, batch: Mapping[str, Tensor]) -> float:
    return cell.weigh(batch)


def _rows(cell: Cell) -> list[dict[str, Tensor]]:
    samples = cell.model.samples(cell.misuse.total_samples)
    return [{name: tensor[number].clone() for name, tensor in samples.items()} for number in range(len(samples["x"]))]


def _cut(samples: Mapping[str, Tensor], numbers: list[int]) -> dict[str, Tensor]:
    return {name: tensor[numbers].clone() for name, tensor in samples.items()}
