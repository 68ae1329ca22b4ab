"""Several tasks by the engine beside the Trainer of several tasks: the same bits, weights of tasks among them."""

from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from tests.integration.commands import write_options
from tests.integration.multitask_runs import multitask_options
from trainauto.build import build_run
from trainauto.builders.multitask_data import TRAIN, build_task_data
from trainauto.builders.multitask_networks import build_network
from trainauto.core.records import StepRecord
from trainauto.engine.loop import train
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.tasks.multitask.batches.task_stream import TaskMixing
from trainauto.tasks.multitask.losses.gradnorm import GradNormBalancer
from trainauto.tasks.multitask.losses.normalizer import EffectiveBatchSizeNormalizer
from trainauto.tasks.multitask.losses.step_tasks import StepTasks
from trainauto.tasks.multitask.trainer import DynamicBatchingTrainer

STEPS = 20

Figures = list[tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float], Mapping[str, float]]]
"""Losses, losses by task, gradient norms and weights of tasks, after each step."""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    with chdir(tmp_path):
        yield tmp_path


def options_of(folder: Path, **train_options: Any) -> LoadedOptions[MultitaskOptions]:
    changes = {"total_epochs": None, "total_iter": STEPS, "weight_decay": 0.1, "grad_clip": 1.0, **train_options}
    return load_options(write_options(folder / "run.yml", multitask_options(train=changes))).of(MultitaskOptions)


class Watching(TrainerCallback):
    """Keeps what steps gave."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.figures: Figures = []

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        record = self.trainer.memory.record
        self.figures.append((record.losses, record.task_losses, record.grad_norms, dict(self.trainer.task_weights)))
        return control


def by_the_trainer(loaded: LoadedOptions[MultitaskOptions], folder: Path) -> tuple[Figures, dict[str, Tensor]]:
    options, watching = loaded.options.train, Watching()
    torch.manual_seed(loaded.options.manual_seed)
    data = build_task_data(loaded)
    network = build_network(loaded, data)
    normalizer = EffectiveBatchSizeNormalizer(
        options.base_batch_size, options.target_batch_size, reference_batch_size=options.target_batch_size
    )
    arguments = MemoryAwareTrainingArguments(
        str(folder),
        per_device_train_batch_size=options.base_batch_size,
        max_steps=STEPS,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=options.weight_decay,
        max_grad_norm=options.grad_clip,
        seed=loaded.options.manual_seed,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    balancer = GradNormBalancer(options.initial_task_loss_weights, options.grad_norm_alpha)
    trainer = DynamicBatchingTrainer(
        network,
        arguments,
        data.sets[TRAIN],
        batch_size_normalizer=normalizer,
        balancer=balancer if options.use_grad_norm_balancing else None,
        task_loss_weights=None if options.use_grad_norm_balancing else options.initial_task_loss_weights,
        mixing=TaskMixing(options.task_distribution or None, options.sampling, options.task_diversity_weight),
        data_collator=data.collate.collate,
        callbacks=[watching],
    )
    watching.trainer = trainer
    trainer.train()
    return watching.figures, weights_of(network)


def by_the_engine(
    loaded: LoadedOptions[MultitaskOptions], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Figures, dict[str, Tensor]]:
    figures: Figures = []
    recorded = StepTasks.recorded

    def note(self: StepTasks, record: StepRecord, ranks: Any) -> None:
        recorded(self, record, ranks)
        figures.append((record.losses, record.task_losses, record.grad_norms, dict(self.weights)))

    monkeypatch.setattr(StepTasks, "recorded", note)
    with build_run(loaded, root=folder) as run:
        train(run)
        return figures, weights_of(run.model.networks["model"])


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in network.named_parameters()}


@pytest.mark.parametrize(
    "changes",
    [{}, {"use_grad_norm_balancing": False, "initial_task_loss_weights": {"T3": 2.0}}, {"base_batch_size": 16}],
    ids=["two passes", "weights that stay", "one pass"],
)
def test_the_same_bits(here: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    """GradNorm's weights step by step; steps at the ends of epochs are smaller."""
    loaded = options_of(here, **changes)
    theirs, their_weights = by_the_trainer(loaded, here / "trainer")
    ours, our_weights = by_the_engine(loaded, here / "engine", monkeypatch)
    assert len(ours) == STEPS
    assert ours == theirs
    assert all(torch.equal(weight, their_weights[name]) for name, weight in our_weights.items())
    if not changes:
        assert len({tuple(weights.values()) for *_, weights in ours}) == STEPS // 5
