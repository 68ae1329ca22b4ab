"""Fine-tuning by the engine beside transformers' Trainer and the memory-aware one: the same bits."""

from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.integration.commands import merged, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from trainauto.build import build_run
from trainauto.builders.finetune import build_network, schedule_of
from trainauto.builders.finetune_data import build_finetune_data, processor_of
from trainauto.engine.loop import train
from trainauto.integrations.huggingface.arguments import MemoryAwareTrainingArguments
from trainauto.integrations.huggingface.trainer import MemoryAwareTrainer
from trainauto.optim.adamw import trainer_adamw
from trainauto.optim.precision import Precision
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions, load_options
from trainauto.reporting.reporter import Reporter
from trainauto.tasks.finetune.conversation_model import ConversationModel
from trainauto.tasks.finetune.conversation_samples import for_model
from trainauto.tasks.finetune.datasets import PlannedConversations

STEPS, SAMPLES = 20, 18
LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}
CPU = Precision(torch.device("cpu"))

Figures = list[tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]]]


class ConversationTrainer(MemoryAwareTrainer):
    """A Trainer of conversations, as a person would write it."""

    def compute_loss(self, model: nn.Module, inputs: Any, *arguments: Any, **options: Any) -> Any:
        return super().compute_loss(model, {**for_model(inputs), "use_cache": False}, *arguments, **options)

    def own_workload(self, one: Mapping[str, Any]) -> PlannedConversations:
        return PlannedConversations.of(self.data_collator.samples, one)


class Watching(TrainerCallback):
    """Seeds the first step as the engine's is seeded, and keeps what steps gave."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.figures: Figures = []

    def on_step_begin(self, _args: Any, state: Any, control: Any, **_others: Any) -> Any:
        if state.global_step == 0:
            torch.manual_seed(5)
        return control

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_others: Any) -> Any:
        record = self.trainer.memory.record
        self.figures.append((record.losses, record.grad_norms, record.learning_rates))
        return control


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_chats(folder / "chats.jsonl", SAMPLES)
    with chdir(folder):
        yield folder


def options_of(made: Path, size: int, passes: int, changes: dict[str, Any]) -> LoadedOptions[FinetuneOptions]:
    training = {
        "max_steps": STEPS,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": passes,
        "warmup_ratio": 0.1,
        "weight_decay": 0.01,
        "lr_scheduler_type": "cosine",
    }
    base = finetune_options(made / "model", made / "chats.jsonl", training=training)
    file = write_options(made / "run.yml", merged(base, changes))
    return load_options(file).of(FinetuneOptions)


def by_the_trainer(loaded: LoadedOptions[FinetuneOptions], folder: Path) -> tuple[Figures, dict[str, Tensor]]:
    training, watching = loaded.options.training, Watching()
    torch.manual_seed(loaded.options.manual_seed)
    network = build_network(loaded, CPU)
    data = build_finetune_data(loaded, processor_of(loaded), None)
    arguments = MemoryAwareTrainingArguments(
        str(folder),
        per_device_train_batch_size=training.per_device_train_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        max_batch_size=training.per_device_train_batch_size,
        max_steps=STEPS,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        max_grad_norm=1.0,
        seed=loaded.options.manual_seed,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
    )
    optimizer = trainer_adamw(network, training.learning_rate, training.weight_decay)
    schedule = schedule_of(training, len(data.train), STEPS, "steps", 1.0)
    trainer = ConversationTrainer(
        model=network,
        args=arguments,
        data_collator=data.collate,
        train_dataset=data.train,
        callbacks=[watching],
        optimizers=(optimizer, LambdaLR(optimizer, schedule.factor_at)),
    )
    watching.trainer = trainer
    trainer.train()
    return watching.figures, weights_of(network)


def by_the_engine(
    loaded: LoadedOptions[FinetuneOptions], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Figures, dict[str, Tensor]]:
    figures: Figures = []
    report, begin = Reporter.step, ConversationModel.begin_step

    def step(self: Reporter, record: Any, *arguments: Any) -> None:
        figures.append((record.losses, record.grad_norms, record.learning_rates))
        report(self, record, *arguments)

    def begin_step(self: ConversationModel, number: int | None) -> None:
        if number == 1:
            torch.manual_seed(5)
        begin(self, number)

    monkeypatch.setattr(Reporter, "step", step)
    monkeypatch.setattr(ConversationModel, "begin_step", begin_step)
    with build_run(loaded, root=folder) as run:
        train(run)
        return figures, weights_of(run.model.networks["model"])


def by_a_plain_trainer(
    loaded: LoadedOptions[FinetuneOptions], batches: list[dict[str, Tensor]], folder: Path
) -> dict[str, Tensor]:
    training = loaded.options.training
    torch.manual_seed(loaded.options.manual_seed)
    network = build_network(loaded, CPU)
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=1,
        max_steps=len(batches),
        learning_rate=training.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=training.weight_decay,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        train_sampling_strategy="sequential",
    )
    Trainer(network, arguments, data_collator=lambda batch: batch[0], train_dataset=batches).train()
    return weights_of(network)


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in network.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("changes", [{}, {"lora": LORA}], ids=["all weights", "adapters"])
def test_the_same_bits_in_steps_of_one_pass(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Steps at the ends of epochs are smaller; dropout of adapters draws the same numbers."""
    loaded = options_of(made, 4, 1, changes)
    theirs, their_weights = by_the_trainer(loaded, tmp_path / "trainer")
    ours, our_weights = by_the_engine(loaded, tmp_path / "engine", monkeypatch)
    assert len(ours) == STEPS
    assert ours == theirs
    assert our_weights.keys() == their_weights.keys()
    assert all(torch.equal(weight, their_weights[name]) for name, weight in our_weights.items())


def test_other_passes_learn_the_same(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same steps in one pass and in two: only rounding differs."""
    theirs, their_weights = by_the_trainer(options_of(made, 4, 1, {}), tmp_path / "trainer")
    ours, our_weights = by_the_engine(options_of(made, 2, 2, {}), tmp_path / "engine", monkeypatch)
    for (losses, _, _), (their_losses, _, _) in zip(ours, theirs, strict=True):
        assert losses["loss"] == pytest.approx(their_losses["loss"], rel=1e-5)
    for name, weight in our_weights.items():
        torch.testing.assert_close(weight, their_weights[name], rtol=0, atol=1e-4)


def test_a_plain_trainer_learns_the_same_bits_from_the_same_batches(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, clipping, optimizer and which weights decay are those of transformers' Trainer."""
    batches: list[dict[str, Tensor]] = []
    compute = ConversationModel._loss

    def loss(self: ConversationModel, part: Any) -> Any:
        batches.append({name: tensor.clone() for name, tensor in for_model(part).items()})
        return compute(self, part)

    monkeypatch.setattr(ConversationModel, "_loss", loss)
    loaded = options_of(made, 4, 1, {"training": {"lr_scheduler_type": "constant", "warmup_ratio": 0}})
    _, our_weights = by_the_engine(loaded, tmp_path / "engine", monkeypatch)
    assert len(batches) == STEPS
    their_weights = by_a_plain_trainer(loaded, batches, tmp_path / "trainer")
    assert our_weights.keys() == their_weights.keys()
    assert all(torch.equal(weight, their_weights[name]) for name, weight in our_weights.items())
