"""The Trainer of several tasks: batches by memory, losses by task."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from trainauto.core.errors import InputError, Problem
from trainauto.core.records import StepRecord
from trainauto.core.units import GIB, size_text
from trainauto.data.packing import BatchCost
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments, own_argument
from trainauto.integrations.huggingface.loss import Weighing
from trainauto.integrations.huggingface.own_stream import OwnStream
from trainauto.integrations.huggingface.step_rates import RateOfStep
from trainauto.integrations.huggingface.trainer import MemoryAwareTrainer
from trainauto.reporting.sinks import Sink
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.tasks.multitask.batches.task_stream import TaskMixing, own_stream
from trainauto.tasks.multitask.losses.balancing import TaskBalancer
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer
from trainauto.tasks.multitask.losses.sample_losses import losses_of_samples
from trainauto.tasks.multitask.losses.shared_search import shared_weights
from trainauto.tasks.multitask.losses.step_tasks import LargestPart, StepTasks
from trainauto.tasks.multitask.losses.task_losses import TaskSums, masks_of
from trainauto.tasks.multitask.model_inputs import TASK_IDS, TensorsOnly, accepted, named_inputs, predictions
from trainauto.tasks.multitask.monitoring.metrics_sink import MetricsSink
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor
from trainauto.tasks.multitask.prediction.oom_guardian import OOMGuardian
from trainauto.tasks.multitask.trainer_arguments import prepared_arguments
from trainauto.tasks.multitask.trainer_data import TaskSamples, check_evaluated, collator_for, follow_model

logger = logging.getLogger(__name__)


class DynamicBatchingTrainer(MemoryAwareTrainer):
    """A :class:`~trainauto.integrations.huggingface.trainer.MemoryAwareTrainer` of samples of several tasks.

    The loss of a step is the mean over its samples of each one's loss times the weight of its task, whatever parts it
    runs in. Losses of samples are the model's ``sample_losses``, else they follow from its logits and the labels; see
    :func:`~trainauto.tasks.multitask.losses.sample_losses.losses_of_samples`. An evaluation weighs all samples alike,
    and says the loss of each task, too.

    Attributes:
        tasks: their names, in the order of their ids.
        task_losses: mean loss of each task in the last step, without its weight.
        task_samples: samples of each task in the last step.

    Args:
        model: returns ``sample_losses`` or ``logits``.
        args: of transformers, or :class:`~trainauto.huggingface.MemoryAwareTrainingArguments`; they stay as they are.
        train_dataset: samples with a ``task_type``; ``get_sample_metadata(idx)`` says it before they are loaded.
        eval_dataset: of the same tasks.
        memory_predictor: learns from the peaks of steps; one without a model predicts what this model takes.
        oom_guardian: its margin is left free, and its limit kept, where the arguments say nothing of either. One
            without a predictor that knows a model asks the trainer's.
        batch_size_normalizer: says the samples of a step, and the rates of steps that grow.
        task_loss_weights: of each task; a task that is not named weighs 1.
        use_gradient_accumulation: whether a step has the normaliser's samples, whatever fits into one pass.
        balancer: changes the weights by gradient norms; it has its own initial weights.
        monitor: notes each step and epoch; by default in ``output_dir`` of the arguments, unless their
            ``run_directory`` is empty.
        mixing: how samples of tasks come together in batches. Batches that may grow (``max_batch_size``) are packed by
            what they cost; steps of a fixed number of samples have tasks in the order that is wanted.
        data_collator: makes batches with ``task_ids``, and knows its ``tasks``; without it, one for the tokenizer that
            is given as ``processing_class``. Samples with ``input_ids`` need neither.
        options: of transformers' Trainer.

    Raises:
        InputError: these do not go together; weights are of tasks of which there are no samples.
    """

    weighing = Weighing.SAMPLES

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        memory_predictor: MemoryPredictor | None = None,
        oom_guardian: OOMGuardian | None = None,
        batch_size_normalizer: EffectiveBatchSizeNormalizer | None = None,
        task_loss_weights: Mapping[str, float] | None = None,
        use_gradient_accumulation: bool = True,
        *,
        balancer: TaskBalancer | None = None,
        monitor: DynamicBatchingMonitor | None = None,
        mixing: TaskMixing | None = None,
        data_collator: Any = None,
        **options: Any,
    ) -> None:
        self.memory_predictor, self.oom_guardian = memory_predictor, oom_guardian
        collate = data_collator or collator_for(options.get("processing_class"), train_dataset)
        self._samples = TaskSamples.of(train_dataset, collate)
        self._mixing = mixing or TaskMixing()
        self._steps = StepTasks(self._samples.tasks, task_loss_weights or {}, balancer)
        self._evaluated = TaskSums(self.tasks)
        self.task_losses: dict[str, float] = {}
        self.task_samples: dict[str, int] = {}
        self._unlogged: dict[str, tuple[float, int]] = {}
        if self.tasks:
            check_evaluated(eval_dataset, self.tasks)
        arguments = prepared_arguments(
            args or MemoryAwareTrainingArguments("trainer_output"),
            oom_guardian,
            batch_size_normalizer,
            use_gradient_accumulation=use_gradient_accumulation,
        )
        super().__init__(
            model=model,
            args=arguments,
            data_collator=TensorsOnly(collate),
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            **options,
        )
        self._prepare_prediction(train_dataset, collate)
        self._set_signature_columns_if_needed()
        self._inputs = named_inputs(self.model, self._signature_columns)
        self.can_return_loss = True  # of any batch, whether its model has a parameter for labels or not
        self._watch_steps(batch_size_normalizer, monitor)

    def _watch_steps(
        self, normalizer: EffectiveBatchSizeNormalizer | None, monitor: DynamicBatchingMonitor | None
    ) -> None:
        if normalizer is not None:
            self.add_callback(RateOfStep(self, normalizer))
        if monitor is None and self._samples.present and own_argument(self.args, "run_directory") != "":
            monitor = DynamicBatchingMonitor(self.args.output_dir or "trainer_output")
        self._monitor = monitor
        if monitor is not None:
            monitor.prepare()  # before a budget is measured

    def own_sinks(self, curves: TensorBoard | None) -> Sequence[Sink]:
        """Return what has the monitor note each step and epoch."""
        return () if self._monitor is None else [MetricsSink(self._monitor, len(self.train_dataset), curves)]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of their ids."""
        return self._steps.tasks

    @property
    def task_weights(self) -> dict[str, float]:
        """Weight of each task's loss now."""
        return self._steps.weights

    @property
    def balancer(self) -> TaskBalancer | None:
        """What changes the weights."""
        return self._steps.balancer

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a part of a batch, the mean over its samples; see the class.

        Raises:
            InputError: the loss of each sample cannot be told, or its task.
        """
        del num_items_in_batch  # it is a mean over samples, not over labels
        outputs = model(**accepted(inputs, self._inputs))
        losses, masks = self._losses_of(outputs, inputs)
        if model.training and torch.is_grad_enabled():
            loss = self._steps.loss(losses, masks)
            if self.memory is None or self.memory.loss.is_rehearsal:
                self._steps.rehearse(model, loss, losses, masks)
            else:
                looks = self._steps.is_looked_at(self._step)
                self._steps.note(model, inputs, losses, masks, looks=looks)
        else:
            self._evaluated.add(losses, masks)
            loss = losses.mean()
        return (loss, predictions(outputs)) if return_outputs else loss

    def _losses_of(self, outputs: Any, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample, and which samples are of each task."""
        count = next(len(leaf) for leaf in inputs.values() if isinstance(leaf, Tensor))
        losses = losses_of_samples(outputs, inputs.get("labels"), count, shifts_labels=self._loss_shifts_labels)
        task_ids = inputs.get(TASK_IDS)
        if task_ids is not None:
            return losses, masks_of(task_ids, len(self.tasks))
        if len(self.tasks) > 1:
            raise InputError(
                Problem(
                    f"batches do not say of which task each sample is: they have no {TASK_IDS}",
                    advice="Take HeterogeneousCollator, or have the data_collator add them: (N,) int64.",
                )
            )
        return losses, torch.ones(1, count, dtype=torch.bool, device=losses.device)

    @property
    def _step(self) -> int:
        """Number of the step on its way, from 0."""
        return self.memory.progress.steps if self.memory is not None else 0

    def largest_sample(self) -> int | None:
        """Return the number of the sample with most images, and of those with most tokens."""
        return self._samples.largest

    def own_stream(self, seed: int, step_samples: int | None) -> OwnStream | None:
        """Return mixed batches: packed where they may grow, in their order where steps are counted.

        A sampling strategy or a budget of tokens that the arguments name is kept to instead.

        Raises:
            InputError: the mixing cannot be used.
        """
        table, args = self._samples.table, self.args
        asks_otherwise = args.train_sampling_strategy != "random" or own_argument(args, "tokens_per_batch") is not None
        if table is None or asks_otherwise:
            return None
        most = own_argument(args, "max_batch_size")
        packs = step_samples is None and most is not None and args.world_size == 1
        return own_stream(
            table,
            self._mixing,
            self._cost() if packs else None,
            seed,
            step_samples=step_samples * args.world_size if step_samples is not None else None,
            most_samples=most if packs else args.per_device_train_batch_size * args.world_size,
            packs=packs,
        )

    def _cost(self) -> BatchCost | None:
        """Return what batches take by the traced model; ``None`` where it cannot be traced."""
        predictor = self.memory_predictor
        return predictor.as_cost() if predictor is not None and predictor.follows_model else None

    def prepare_loss(self) -> None:
        """Begin with the weights that were given, find where gradients are compared, and have memory predicted."""
        self._steps.forget()
        if self.balancer is not None and self.memory is not None:
            self.balancer.begin(self._samples.present)
            names = shared_weights(self.model, self.balancer.shared_layer, self._one_of_each, self._plain_losses)
            self._steps.balance_at(names)
            logger.info("gradients of tasks are compared at %s", ", ".join(names))
        if self.memory_predictor is not None and self._samples.present:
            self._foresee(self.memory_predictor)

    def _one_of_each(self) -> Any:
        """Return a batch with a sample of each task."""
        if self.memory is None:
            raise RuntimeError("a run has begun by now")
        data = self.memory.data
        device = next(self.model.parameters()).device
        leaves = data.samples.some(self._samples.one_of_each)
        return data.structure.rebuild(
            {name: leaf.to(device) if isinstance(leaf, Tensor) else leaf for name, leaf in leaves.items()}
        )

    def _plain_losses(self, model: nn.Module, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        with self.compute_loss_context_manager():
            return self._losses_of(model(**accepted(inputs, self._inputs)), inputs)

    def _foresee(self, predictor: MemoryPredictor) -> None:
        """Have the predictor trace the model now, and say where the first batch may not fit.

        In a step the trace would count as the step's memory.
        """
        samples, tasks = self.args.per_device_train_batch_size, self._samples.present
        counts = dict.fromkeys(tasks, max(1, samples // len(tasks)))
        predicted_gib = predictor.predict_batch_memory(counts)
        if self.oom_guardian is not None and not self.oom_guardian.preflight_check(predicted_gib):
            logger.warning(
                "a batch of %d samples is predicted to take %s, more than is free: it will run in parts",
                samples,
                size_text(predicted_gib * GIB),
            )

    def forget_attempt(self) -> None:
        """Drop what was noted of the step on its way."""
        self._steps.forget()

    def takes_full_memory(self) -> bool:
        """Whether the step on its way looks at gradients of tasks, where any does."""
        return self._steps.takes_full_memory(self._step)

    def step_recorded(self, record: StepRecord, *, skipped: bool) -> Mapping[str, tuple[float, int]]:
        """Return losses and samples of tasks; have the balancer change their weights, and the predictor learn."""
        largest, is_full = self._steps.largest, self.takes_full_memory()
        self.task_losses, self.task_samples = self._steps.end(self.accelerator.reduce, skipped=skipped)
        for task, loss in self.task_losses.items():
            total, count = self._unlogged.get(task, (0.0, 0))
            self._unlogged[task] = total + loss * self.task_samples[task], count + self.task_samples[task]
        if self.memory_predictor is not None and largest is not None and is_full and not record.ooms:
            self._tell(self.memory_predictor, largest, record)
        return {task: (loss, self.task_samples[task]) for task, loss in self.task_losses.items()}

    def own_state(self) -> dict[str, Any]:
        """Return weights of tasks and what they follow from, and what the predictor has learned."""
        learned = {"predictor": self.memory_predictor.state_dict()} if self.memory_predictor is not None else {}
        return {**self._steps.state_dict(), **learned}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up what a checkpoint holds.

        Raises:
            InputError: its weights of tasks follow another rule, or are of other tasks.
        """
        self._steps.load_state_dict(state)
        if self.memory_predictor is not None and "predictor" in state:
            self.memory_predictor.load_state_dict(state["predictor"])

    def evaluation_loop(self, *arguments: Any, metric_key_prefix: str = "eval", **options: Any) -> Any:
        """Evaluate as the Trainer does; the loss of each task is in the metrics, too."""
        self._evaluated.forget()
        output = super().evaluation_loop(*arguments, metric_key_prefix=metric_key_prefix, **options)
        sums = self._evaluated.packed()
        losses, _ = self._evaluated.read(self.accelerator.reduce(sums) if sums is not None else None)
        output.metrics.update({f"{metric_key_prefix}_loss_{task}": loss for task, loss in losses.items()})
        self._evaluated.forget()
        return output

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log with the loss of each task since the last line, and its weight now."""
        if "loss" in logs and self.task_losses:
            means = {task: total / count for task, (total, count) in self._unlogged.items()}
            logs.update({f"loss_{task}": float(f"{loss:.6g}") for task, loss in means.items()})
            self._unlogged.clear()
            if self.balancer is not None:
                logs.update({f"weight_{task}": round(weight, 4) for task, weight in self.task_weights.items()})
        super().log(logs, *arguments, **options)

    def _prepare_prediction(self, dataset: Any, collate: Any) -> None:
        """Have predictor and guardian know the model that is trained, where they were given none.

        Raises:
            InputError: a predictor does not know a task: it would fail at the first step.
        """
        guardian = self.oom_guardian
        if self.memory_predictor is None and guardian is not None:
            self.memory_predictor = guardian.predictor
        predictor = self.memory_predictor
        if predictor is None:
            return
        if not predictor.has_model and self._samples.present:
            follow_model(predictor, self.model, dataset, collate)
        for task in self._samples.present:
            predictor.size_of(task)
        if guardian is not None and not guardian.predictor.has_model:
            guardian.predictor = predictor

    def _tell(self, predictor: MemoryPredictor, largest: LargestPart, record: StepRecord) -> None:
        if record.peak is not None:
            predictor.record_batch(
                largest.counts(self.tasks), record.peak.allocated, tokens=largest.tokens, images=largest.images
            )
