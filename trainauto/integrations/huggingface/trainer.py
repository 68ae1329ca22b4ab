"""The Trainer of transformers whose batches follow memory."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainauto.core.process import without_memory_limit
from trainauto.integrations.huggingface.arguments import own_argument
from trainauto.integrations.huggingface.callback import MemoryCallback
from trainauto.integrations.huggingface.checkpoints import checkpoint_to_take, whole_at_the_end
from trainauto.integrations.huggingface.evaluation import EvaluationMemory
from trainauto.integrations.huggingface.hooks import TrainingHooks
from trainauto.integrations.huggingface.loss import declared_weighing
from trainauto.integrations.huggingface.optimizer_steps import clipped, told_with_checkpoint
from trainauto.integrations.huggingface.overrides import check_overrides, no_planned_batches
from trainauto.integrations.huggingface.refusals import check_train_dataset, check_trainer
from trainauto.integrations.huggingface.rollback import Undone, undone_by
from trainauto.integrations.huggingface.schedule import in_samples, say_what_it_counts
from trainauto.integrations.huggingface.session import MemorySession
from trainauto.integrations.huggingface.train_batches import PlannedInputs, TrainBatches
from trainauto.integrations.huggingface.train_data import build_train_data
from trainauto.integrations.loop_controller import settings_of
from trainauto.memory.monitor.meter import MemoryMeter

logger = logging.getLogger(__name__)


class MemoryAwareTraining(TrainingHooks):
    """What a Trainer becomes memory-aware by: a mixin, to be named before it.

        class MemoryAwareSFTTrainer(MemoryAwareTraining, SFTTrainer):
            pass

    The Trainer's own loop runs: its callbacks, clipping, schedules, logs and checkpoints are what they are. Batches
    come from a stream of samples, each exactly once an epoch. A step accumulates in :meth:`training_step`, and one that
    runs out of memory is run again there in parts, so that the loop sees one batch a step.

    Args:
        arguments: of the Trainer.
        loss_weighing: what the losses of parts of a batch are weighted by to make up that of the batch. It is
            ``"samples"``, ``"labels"`` (those that are not -100), ``"sum"`` (they add up: they are divided by
            ``num_items_in_batch``), or a function of a batch, as the collator makes it, that returns what its loss is
            divided by. It is found out by some forward passes where it is not given.
        splittable: ``False`` says that losses of parts do not make up that of a batch (contrastive losses): a batch
            that runs out of memory then trains in smaller passes, and a warning says so. ``True`` has batches run in
            parts even where a model has BatchNorm. It is found out where it is not given.
        options: of the Trainer.

    Attributes:
        memory: the session of the call of ``train`` on its way, or of the last one; ``None`` before the first.
        checkpoint_to_resume: folder that the call of ``train`` on its way resumes from.
        undone: what the start before has left, where the call of ``train`` on its way goes back to that checkpoint.
    """

    args: Any
    model: nn.Module
    train_dataset: Any
    eval_dataset: Any
    callback_handler: Any
    control: Any
    state: Any
    optimizer: Any
    lr_scheduler: Any
    _get_output_dir: Any

    def __init__(
        self,
        *arguments: Any,
        loss_weighing: str | Callable[[Any], float] | None = None,
        splittable: bool | None = None,
        **options: Any,
    ) -> None:
        declared_weighing(loss_weighing, splittable)
        super().__init__(*arguments, **options)
        check_trainer(self)
        if loss_weighing is not None:
            self.loss_weighing = loss_weighing
        if splittable is not None:
            self.splittable = splittable
        check_overrides(self, MemoryAwareTraining)
        self.memory: MemorySession | None = None
        self.checkpoint_to_resume: str | None = None
        self.undone: Undone | None = None
        self._passes = 0
        self._ignored_data_skip = False
        self._evaluation = EvaluationMemory(self)
        self.callback_handler.callbacks.insert(0, MemoryCallback(self))

    def train(self, resume_from_checkpoint: Any = None, *arguments: Any, **options: Any) -> Any:
        """Train as the Trainer does; see there.

        Raises:
            CheckpointError: what is to be resumed is damaged, or of another Trainer.
            GivenUpError, NothingToGoBackToError: the run went wrong, and SpikeGuard was to end it.
            InputError: what was given does not go together with batches by memory.
            MachineFailedError: memory runs out where nothing is run again, or the device fails.
            NothingFitsError: memory runs out, and there is no smaller plan.
            OptimizerOutOfMemoryError: memory runs out in the optimizer's step, and some weights may have changed.
        """
        check_trainer(self)
        check_train_dataset(self)
        self.checkpoint_to_resume = checkpoint_to_take(resume_from_checkpoint, self.args.output_dir)
        resume_from_checkpoint, self.undone = self.checkpoint_to_resume or resume_from_checkpoint, None
        while True:
            result = self._train_once(resume_from_checkpoint, *arguments, **options)
            run = self.memory.training if self.memory is not None else None
            self.undone = undone_by(run, self.args.output_dir) if run is not None else None
            if self.undone is None:
                return result
            self.checkpoint_to_resume = resume_from_checkpoint = str(self.undone.checkpoint)

    def _train_once(self, resume_from_checkpoint: Any, *arguments: Any, **options: Any) -> Any:
        """Run the Trainer's loop once."""
        self.memory = None
        error: BaseException | None = None
        try:
            with self._loop_of_whole_steps():
                return super().train(resume_from_checkpoint, *arguments, **options)  # type: ignore[misc]
        except BaseException as raised:
            error = told_with_checkpoint(raised, self.args.output_dir, self.state.global_step)
            if error is raised:
                raise
            raise error from raised
        finally:
            self._close(error)

    def _close(self, error: BaseException | None) -> None:
        if self.memory is not None:
            self.memory.close(error)

    def get_train_dataloader(self) -> Any:
        """Return the batches of a run, whose size follows memory.

        Raises:
            InputError: samples or bounds cannot be used.
        """
        if self._passes and self.memory is not None:
            return self.memory.batches  # a callback asks for what is being trained
        check_trainer(self)
        data = build_train_data(self, self._passes or self.args.gradient_accumulation_steps)
        batches = TrainBatches(data, self.train_dataset, counts_epochs=self.args.max_steps <= 0)
        if self._passes:
            self.memory = MemorySession(self, data, batches)
        return batches

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return the schedule of rates; where the run is as long as its epochs, it counts samples.

        The Trainer takes as many steps as there are samples, so that shares of them are right; steps of warm-up are
        taken to be of the samples that steps begin with.
        """
        args, memory = self.args, self.memory
        if memory is None:
            return super().create_scheduler(num_training_steps, optimizer)  # type: ignore[misc]
        samples, step_samples = memory.samples_to_train, memory.data.first_step_samples * args.world_size
        if samples is None:
            return super().create_scheduler(num_training_steps, optimizer)  # type: ignore[misc]
        warmup, arguments = args.warmup_steps, args.lr_scheduler_kwargs
        is_given = self.lr_scheduler is not None and not getattr(self, "_created_lr_scheduler", False)
        if warmup >= 1:
            args.warmup_steps = round(warmup * step_samples)
        args.lr_scheduler_kwargs = in_samples(arguments, step_samples)
        try:
            scheduler = super().create_scheduler(num_training_steps, optimizer)  # type: ignore[misc]
        finally:
            args.warmup_steps, args.lr_scheduler_kwargs = warmup, arguments
        say_what_it_counts(scheduler, samples, is_given=is_given)
        return scheduler

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute the gradients of a step, in as many parts as its plan and memory ask for.

        Raises:
            InputError: the batch is not of the loader of this run.
            NothingFitsError: memory runs out, and there is no smaller plan.
        """
        if self.memory is None or not isinstance(inputs, PlannedInputs):
            if self._passes:
                raise no_planned_batches(self)
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
            return loss
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        share = self.memory.step(inputs, num_items_in_batch).loss.to(self.args.device)
        processes: int = self.args.world_size
        return share * processes  # the Trainer logs the mean over them

    @property
    def memory_target(self) -> float:
        """Share of the memory that batches are to fill."""
        return settings_of(own_argument(self.args, "memory_settings") or {}).target_vram_usage

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the batches of an evaluation, whose size follows memory."""
        named = self.eval_dataset[eval_dataset] if isinstance(eval_dataset, str) else eval_dataset
        dataset = named if named is not None else self.eval_dataset
        if self.args.world_size > 1 or not _is_map_style(dataset):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self._evaluation.loader(dataset, "evaluation")

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the batches of a prediction, whose size follows memory."""
        if self.args.world_size > 1 or not _is_map_style(test_dataset):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return self._evaluation.loader(test_dataset, "test")

    def evaluation_loop(self, *arguments: Any, metric_key_prefix: str = "eval", **options: Any) -> Any:
        """Evaluate as the Trainer does; the loss is a mean over labels (or samples), whatever the batches are."""
        loop = super().evaluation_loop  # type: ignore[misc]
        self._evaluation.begin()
        if self.args.world_size > 1:
            output = loop(*arguments, metric_key_prefix=metric_key_prefix, **options)
            self._tell_of_evaluation(metric_key_prefix, output)
            return output
        with self._evaluation.whole_loop(), self._evaluation.naming_shortage():
            output = loop(*arguments, metric_key_prefix=metric_key_prefix, **options)
        self._evaluation.end(metric_key_prefix, output.metrics)
        self._tell_of_evaluation(metric_key_prefix, output)
        return output

    def _tell_of_evaluation(self, prefix: str, output: Any) -> None:
        if self.memory is not None and self.memory.training is not None:
            record = self._evaluation.record(self.state.global_step, prefix, output.metrics, output.num_samples)
            self.memory.tell_of_evaluation(record)

    def prediction_step(self, model: nn.Module, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Run a batch without gradients; where it does not fit, in halves."""
        step = super().prediction_step  # type: ignore[misc]
        if self.args.world_size > 1:
            return step(model, inputs, *arguments, **options)
        meter = (self.memory.meter if self.memory is not None else None) or MemoryMeter(self.args.device)
        return self._evaluation.predict(inputs, lambda part: step(model, part, *arguments, **options), meter)

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip at what the arguments say, or at what was decided since."""
        clip = self._clip_again(super()._clip_grad_norm)  # type: ignore[misc]
        if self.memory is None or not self.memory.clips_as_decided:
            return clip(model)
        given, norm = self.args.max_grad_norm, self.memory.max_norm()
        self.args.max_grad_norm = math.inf if norm is None else norm
        try:
            return clip(model)
        finally:
            self.args.max_grad_norm = given

    def _clip_again(self, clip: Callable[[nn.Module], Any]) -> Callable[[nn.Module], Any]:
        """Return what clips, so that running out of memory in it is survived while the engine runs the steps."""
        run = self.memory.training if self.memory is not None else None
        return clip if run is None else lambda model: clipped(partial(clip, model), run)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        decided = self.memory is not None and self.memory.clips_as_decided and self.memory.max_norm() is not None
        if grad_norm is None and decided:
            grad_norm = self._clip_grad_norm(model)  # the Trainer itself clips only where its arguments say so
        norm = super()._get_grad_norm(model, grad_norm)  # type: ignore[misc]
        if self.memory is not None:
            self.memory.see_grad_norm(norm)
        return norm

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log with the samples so far, the plan, its peak, the rate that was used; speeds are of what was trained."""
        memory = self.memory
        if memory is not None and memory.record is not None:
            if "loss" in logs:
                logs.update(memory.figures())
            if "loss" in logs and "learning_rate" in logs:
                logs.update(memory.rate_used())
            if logs.get("train_runtime"):
                logs["train_samples_per_second"] = round(memory.trained_samples / logs["train_runtime"], 3)
        super().log(logs, *arguments, **options)  # type: ignore[misc]

    def save_beginning(self) -> None:
        """Save the run before its first step, for what its first steps may have to go back to."""
        self._save_checkpoint(self.model, None)

    def _maybe_log_save_evaluate(self, *arguments: Any, **options: Any) -> Any:
        """Save and evaluate nothing of a step that is about to be undone: its checkpoint could displace a good one."""
        if self.memory is not None and self.memory.goes_back:
            self.control.should_save = self.control.should_evaluate = False
        return super()._maybe_log_save_evaluate(*arguments, **options)  # type: ignore[misc]

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        with self._arguments_as_given(), without_memory_limit():
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            is_ours = self.memory is not None and self.args.should_save
            if self.memory is not None and is_ours:
                self.memory.save(folder)
            with whole_at_the_end(folder, is_first=is_ours):
                super()._save_checkpoint(model, trial)  # type: ignore[misc]

    def _hp_search_setup(self, trial: Any) -> None:
        """Take a trial's values; accumulation among them is done here, as that which was given."""
        if self._passes:
            self.args.gradient_accumulation_steps = self._passes
        super()._hp_search_setup(trial)  # type: ignore[misc]
        if self._passes:
            self._passes, self.args.gradient_accumulation_steps = self.args.gradient_accumulation_steps, 1

    @contextmanager
    def _loop_of_whole_steps(self) -> Iterator[None]:
        """Have the Trainer's loop see one batch a step, and skip none on a resume: both are done here."""
        args = self.args
        self._passes, self._ignored_data_skip = args.gradient_accumulation_steps, args.ignore_data_skip
        args.gradient_accumulation_steps, args.ignore_data_skip = 1, True
        try:
            yield
        finally:
            args.gradient_accumulation_steps, args.ignore_data_skip = self._passes, self._ignored_data_skip
            self._passes = 0

    @contextmanager
    def _arguments_as_given(self) -> Iterator[None]:
        """Have what is saved hold the arguments that were given."""
        args = self.args
        those_of_the_loop = args.gradient_accumulation_steps, args.ignore_data_skip
        if self._passes:
            args.gradient_accumulation_steps, args.ignore_data_skip = self._passes, self._ignored_data_skip
        try:
            yield
        finally:
            args.gradient_accumulation_steps, args.ignore_data_skip = those_of_the_loop


def _is_map_style(dataset: Any) -> bool:
    return hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, dict)


class MemoryAwareTrainer(MemoryAwareTraining, Trainer):  # type: ignore[misc]  # mypy does not follow transformers
    """:class:`transformers.Trainer` with batches that follow memory, and steps that survive running out of it.

    Everything that the Trainer takes is taken; see :class:`MemoryAwareTraining`, and docs/huggingface.md for what
    differs. With plain ``TrainingArguments`` a step trains the samples it trained before.
    """
