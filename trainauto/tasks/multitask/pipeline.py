"""A whole training on several tasks, from a configuration to its report."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.core.files import write_json_atomically
from trainauto.tasks.multitask.batches.task_shares import EPOCH, REPLACEMENT
from trainauto.tasks.multitask.batches.task_stream import TaskMixing
from trainauto.tasks.multitask.config import HeterogeneousTrainingConfig
from trainauto.tasks.multitask.losses.balancing import TaskBalancer, check_tasks
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer
from trainauto.tasks.multitask.monitoring.monitor import DynamicBatchingMonitor
from trainauto.tasks.multitask.pipeline_arguments import training_arguments
from trainauto.tasks.multitask.prediction.device_room import usable_device
from trainauto.tasks.multitask.prediction.gradient_checkpoint_manager import GradientCheckpointManager
from trainauto.tasks.multitask.prediction.oom_guardian import OOMGuardian
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer
from trainauto.tasks.multitask.trainer_data import collator_for, predictor_for

logger = logging.getLogger(__name__)

DEFAULT_OUTPUT = "./dynamic_training_outputs"
CONFIG_FILE = "training_config.json"
"""The settings of a training, in its output folder; ``config.json`` there is the model's."""


@dataclass(frozen=True)
class TrainingResult:
    """What a training came to.

    Attributes:
        metrics: of the training, and of the last evaluation (``eval_...``).
        report: see :meth:`~trainauto.tasks.multitask.monitoring.monitor.DynamicBatchingMonitor.generate_report`.
        output_dir: folder of all files: checkpoints, the trained model, ``training_metrics/``.
        paths: files of ``training_metrics/``, by name.
        trainer: that trained; its ``memory`` and ``state`` say more.
    """

    metrics: dict[str, float]
    report: dict[str, Any]
    output_dir: Path
    paths: dict[str, Path] = field(default_factory=dict)
    trainer: DynamicBatchingTrainer | None = None


class DynamicBatchingTrainingPipeline:
    """Trains a model on several tasks as a configuration says: batches by memory, losses balanced, all of it noted.

    Args:
        config: what it is told; see there.
        model: returns ``sample_losses``, or ``logits`` that go with the labels.
        tokenizer: of the texts; ``None`` where samples have ``input_ids``.
        output_dir: folder of all files.
        device: ``None`` takes the first card, the CPU where there is none.
        data_collator: makes batches with ``task_ids``; ``HeterogeneousCollator`` where it is ``None``.
        balancer: of the tasks' weights; GradNorm where it is ``None`` and the configuration asks for balancing.
        sampling: ``"epoch"``, every sample once an epoch, or ``"replacement"``, shares of tasks are kept to.
        compute_metrics: of an evaluation, as of transformers' Trainer.
        training_arguments: what else its Trainer is told: ``{"dataloader_num_workers": 2, "seed": 7}``.
        callbacks: of its Trainer.
    """

    def __init__(
        self,
        config: HeterogeneousTrainingConfig,
        model: nn.Module,
        tokenizer: Any,
        *,
        output_dir: str | os.PathLike[str] = DEFAULT_OUTPUT,
        device: str | None = None,
        data_collator: Any = None,
        balancer: TaskBalancer | None = None,
        sampling: str = EPOCH,
        compute_metrics: Callable[..., Any] | None = None,
        training_arguments: Mapping[str, Any] | None = None,
        callbacks: list[Any] | None = None,
    ) -> None:
        self.config = config
        self.model = model
        self.tokenizer = tokenizer
        self.output_dir = Path(output_dir)
        self.device = usable_device(device or ("cuda:0" if torch.cuda.is_available() else "cpu"))
        self._collator = data_collator
        self._balancer = balancer
        self._sampling = sampling
        self._compute_metrics = compute_metrics
        self._arguments = dict(training_arguments or {})
        self._callbacks = callbacks

    def train(
        self, train_dataset: Any, eval_dataset: Any = None, *, resume_from_checkpoint: str | bool | None = None
    ) -> TrainingResult:
        """Train, and return what it came to.

        Args:
            train_dataset: samples with a ``task_type``; ``get_sample_metadata(idx)`` says it before they are loaded.
            eval_dataset: of the same tasks; evaluated after each epoch and at the end.
            resume_from_checkpoint: a checkpoint's folder; ``True`` takes the newest whole one of ``output_dir``.

        Raises:
            InputError: something cannot be used.
            NothingFitsError: memory runs out, and there is no smaller batch.
        """
        self.config.check()
        self.output_dir.mkdir(parents=True, exist_ok=True)
        monitor = DynamicBatchingMonitor(self.output_dir)
        write_json_atomically(self.output_dir / CONFIG_FILE, self.config.as_dict())
        trainer = self._trainer(train_dataset, eval_dataset, monitor)
        try:
            output = trainer.train(resume_from_checkpoint)
        finally:
            monitor.close()
        metrics = dict(output.metrics)
        if eval_dataset is not None:
            metrics |= trainer.evaluate()
        trainer.save_model()
        report = monitor.generate_report()
        if trainer.task_losses:
            monitor.plot_training_curves()
            monitor.plot_task_comparison()
        paths = {path.name: path for path in sorted(monitor.folder.iterdir()) if path.is_file()}
        return TrainingResult(metrics, report, self.output_dir, paths, trainer)

    def _trainer(
        self, train_dataset: Any, eval_dataset: Any, monitor: DynamicBatchingMonitor
    ) -> DynamicBatchingTrainer:
        config = self.config
        logger.info(config.length.reason)
        if config.enable_gradient_checkpointing:
            GradientCheckpointManager.enable_gradient_checkpointing(self.model)
        self.model.to(self.device)
        collate = self._collator or collator_for(self.tokenizer, train_dataset)
        predictor = predictor_for(self.model, train_dataset, collate, self.device)
        tasks = predictor.tasks
        weights = self._weights(tasks)
        balancer = self._balancer
        if balancer is None and config.use_grad_norm_balancing and len(tasks) > 1:
            balancer = GradNormBalancer(weights, config.grad_norm_alpha)
        arguments = training_arguments(
            config,
            self.output_dir,
            len(train_dataset),
            self._arguments,
            on_cpu=self.device.type == "cpu",
            evaluates=eval_dataset is not None,
        )
        return DynamicBatchingTrainer(
            self.model,
            arguments,
            train_dataset,
            eval_dataset,
            predictor,
            OOMGuardian(
                str(self.device),
                config.memory_margin_percent,
                predictor=predictor,
                max_memory_mb=config.max_memory_mb,
            ),
            self._normalizer(),
            {} if balancer is not None else weights,
            config.use_gradient_accumulation,
            balancer=balancer,
            monitor=monitor,
            mixing=self._mixing(tasks),
            data_collator=collate,
            compute_metrics=self._compute_metrics,
            callbacks=self._callbacks,
            processing_class=self.tokenizer if hasattr(self.tokenizer, "save_pretrained") else None,
        )

    def _weights(self, tasks: list[str]) -> dict[str, float]:
        """Return the initial weights of the tasks there are.

        Raises:
            InputError: a person named a task that there are no samples of, and left out one that there are.
        """
        config = self.config
        for name in ("initial_task_loss_weights", "task_distribution"):
            if config.is_written(name):
                check_tasks(name, getattr(config, name), tasks)
        return {task: config.initial_task_loss_weights.get(task, 1.0) for task in tasks}

    def _mixing(self, tasks: list[str]) -> TaskMixing:
        """Return how samples come together: in shares of tasks where they were written, or quotas are to be kept to."""
        shares = self.config.task_distribution
        of_samples = {task: shares[task] for task in tasks if task in shares}
        if self.config.is_written("task_distribution"):
            return TaskMixing(of_samples, self._sampling)
        are_known = self._sampling == REPLACEMENT and len(of_samples) == len(tasks)
        return TaskMixing(of_samples if are_known else None, self._sampling)

    def _normalizer(self) -> EffectiveBatchSizeNormalizer:
        """Return what scales rates: the rate is for the samples of a step that a run begins with."""
        config = self.config
        samples = config.effective_batch_size
        return EffectiveBatchSizeNormalizer(
            config.base_batch_size,
            samples,
            config.learning_rate,
            reference_batch_size=samples if config.use_gradient_accumulation else config.base_batch_size,
        )
