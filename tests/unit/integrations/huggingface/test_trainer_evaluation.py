"""Evaluation of a memory-aware Trainer: its loss does not depend on batches, and its failures are its own."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from tests.trainers import Tagger, Watched, rows, tiny_model, watched, without_labels
from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading
from trainauto.core.units import MIB
from trainauto.engine.run_errors import NothingFitsError
from trainauto.integrations.huggingface.evaluation import EvaluationMemory

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


class TightInEvaluation(Watched):
    """Has room for so many samples in evaluation."""

    most = 99

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if not model.training and not self.is_beginning and len(inputs["input_ids"]) > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return super().compute_loss(model, inputs, *arguments, **options)

    @property
    def is_beginning(self) -> bool:
        return self.memory is not None and self.memory.training is None


def expected_loss() -> float:
    batch = {name: torch.stack([row[name] for row in rows(ragged=True)]) for name in ("input_ids", "labels")}
    return float(tiny_model()(**batch).loss.detach())


@pytest.mark.parametrize("size", [1, 3, 7, 20])
def test_its_loss_is_the_mean_over_labels_whatever_the_batches_are(tmp_path: Path, size: int) -> None:
    """transformers' own is a mean of means, which follows the batch."""
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_eval_batch_size=size)
    metrics = trainer.evaluate(rows(ragged=True))
    assert metrics["eval_loss"] == pytest.approx(expected_loss(), rel=1e-5)
    assert metrics["eval_batch_size"] == size


def test_running_out_of_memory_shrinks_evaluation_and_not_training(tmp_path: Path, caplog: Any) -> None:
    trainer = watched(
        tmp_path,
        tiny_model(),
        rows(),
        kind=TightInEvaluation,
        more={"eval_dataset": rows(ragged=True)},
        per_device_train_batch_size=4,
        per_device_eval_batch_size=10,
        eval_strategy="epoch",
        learning_rate=0.0,
        num_train_epochs=2,
    )
    trainer.most = 4
    trainer.train()
    lines = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [line["eval_loss"] for line in lines] == pytest.approx([expected_loss()] * 2, rel=1e-5)
    assert [line["eval_out_of_memory"] for line in lines] == [3, 0]  # 10, and its halves
    assert lines[1]["eval_batch_size"] == 3
    assert trainer.memory.running.loader.plan == Plan.of(batch_size=4)
    assert trainer.memory.record.ooms == 0
    assert "out of memory in evaluation with 10 samples" in caplog.text


def test_predictions_come_whole_and_in_order(tmp_path: Path) -> None:
    results = []
    for most in (99, 2):
        trainer = watched(tmp_path, tiny_model(), rows(), kind=TightInEvaluation, per_device_eval_batch_size=7)
        trainer.most = most
        results.append(trainer.predict(rows(ragged=True)))
    np.testing.assert_allclose(results[0].predictions, results[1].predictions, atol=1e-6)
    np.testing.assert_array_equal(results[0].label_ids, results[1].label_ids)
    np.testing.assert_array_equal(results[1].label_ids[:, 0], np.arange(20))
    assert results[1].metrics["test_loss"] == pytest.approx(expected_loss(), rel=1e-5)


def test_a_sample_that_does_not_fit_alone_is_an_error(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), kind=TightInEvaluation, per_device_eval_batch_size=2)
    trainer.most = 0
    with pytest.raises(NothingFitsError, match=r"one sample of the evaluation does not fit .*\n.*last checkpoint"):
        trainer.evaluate(rows())


class Counted:
    """Metrics that are gathered batch by batch."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.losses = 0

    def __call__(self, seen: Any, compute_result: bool = True) -> dict[str, float]:
        self.sizes.append(len(seen.label_ids))
        self.losses += 0 if seen.losses is None else len(seen.losses)
        return {"count": float(sum(self.sizes)), "losses": float(self.losses)} if compute_result else {}


@pytest.mark.parametrize("workers", [0, 1])
def test_metrics_that_are_gathered_batch_by_batch(tmp_path: Path, workers: int) -> None:
    """They are computed with the last batch, and come with a loss for each sample."""
    metrics = Counted()
    trainer = watched(
        tmp_path,
        tiny_model(),
        rows(),
        more={"compute_metrics": metrics},
        batch_eval_metrics=True,
        include_for_metrics=["loss"],
        per_device_eval_batch_size=8,
        dataloader_num_workers=workers,
    )
    for _ in range(2):
        figures = trainer.evaluate(rows())
    assert metrics.sizes == [8, 8, 4] * 2
    assert (figures["eval_count"], figures["eval_losses"]) == (40, 40)


def test_metrics_get_a_loss_for_each_sample(tmp_path: Path) -> None:
    """Of batches whose sizes differ; the Trainer knows one size."""
    trainer = watched(
        tmp_path,
        tiny_model(),
        rows(),
        kind=TightInEvaluation,
        more={"compute_metrics": lambda seen: {"losses": len(seen.losses)}},
        include_for_metrics=["loss"],
        per_device_eval_batch_size=8,
    )
    trainer.most = 4
    assert trainer.evaluate(rows())["eval_losses"] == 20


def test_a_batch_size_that_is_set_later(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_eval_batch_size=8)
    assert trainer.evaluate(rows())["eval_batch_size"] == 8
    trainer.args.per_device_eval_batch_size = 3
    assert trainer.evaluate(rows())["eval_batch_size"] == 3
    assert len(trainer.get_eval_dataloader(rows())) == 7  # a bar has a length


def test_models_that_count_no_labels_of_a_step(tmp_path: Path) -> None:
    """The loss is the mean over labels for them as well; a batch without labels counts nothing."""
    samples = without_labels(3)
    whole = {name: torch.stack([row[name] for row in samples]) for name in samples[0]}
    expected = float(Tagger()(**whole)["loss"].detach())
    for size in (1, 7):
        trainer = watched(tmp_path, Tagger(), samples, per_device_eval_batch_size=size, logging_nan_inf_filter=False)
        assert trainer.evaluate(samples)["eval_loss"] == pytest.approx(expected)


@pytest.mark.parametrize("filters", [True, False])
def test_losses_that_are_no_numbers(tmp_path: Path, filters: bool) -> None:
    """Left out where ``logging_nan_inf_filter`` says so, seen where it does not."""

    class Broken(Watched):
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            loss, outputs = super().compute_loss(model, inputs, True)
            return loss * (float("nan") if int(inputs["input_ids"][0, 0]) == 0 else 1.0), outputs

    trainer = watched(
        tmp_path, tiny_model(), rows(), kind=Broken, per_device_eval_batch_size=5, logging_nan_inf_filter=filters
    )
    assert np.isfinite(trainer.evaluate(rows())["eval_loss"]) == filters


class Measured:
    """A device on which a sample of evaluation takes 10 MiB."""

    limit = 1000 * MIB

    def __init__(self) -> None:
        self.reading: PeakReading | None = None
        self.samples = 0

    def now_bytes(self) -> int:
        return 200 * MIB

    @contextmanager
    def window(self) -> Iterator["Measured"]:
        yield self
        used = self.now_bytes() + self.samples * 10 * MIB
        self.reading = PeakReading(used, limit=self.limit)


def test_a_first_batch_slightly_above_the_target_makes_later_ones_slightly_smaller(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), per_device_eval_batch_size=80)
    memory, meter = EvaluationMemory(trainer), Measured()
    memory.begin()
    sizes = []
    for _ in range(4):
        meter.samples = memory.size
        sizes.append(memory.size)
        inputs = {"input_ids": torch.zeros(memory.size, 4, dtype=torch.long)}
        memory.predict(inputs, lambda _part: (None, None, None), meter)  # type: ignore[arg-type]
    target = (trainer.memory_target * 1000 - 200) / 10
    assert sizes[0] > target >= sizes[-1] > 0.8 * target


def test_only_the_network_is_under_the_memory_budget(tmp_path: Path) -> None:
    """Metrics, and the samples they are made of, may take what they need."""
    limits: dict[str, int] = {}

    class Limits(Watched):
        def compute_loss(self, model: Any, *arguments: Any, **options: Any) -> Any:
            if not model.training and self.memory.training is not None:
                limits["network"] = resource.getrlimit(resource.RLIMIT_DATA)[0]
            return super().compute_loss(model, *arguments, **options)

    def metrics(_seen: Any) -> dict[str, float]:
        limits["metrics"] = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return {}

    options = {"memory_budget": "900MiB", "max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    more = {"compute_metrics": metrics, "eval_dataset": rows(4)}
    watched(tmp_path, tiny_model(), rows(), kind=Limits, more=more, **options).train()
    unlimited = resource.getrlimit(resource.RLIMIT_DATA)[0]
    assert limits["metrics"] == unlimited != limits["network"]


def test_a_model_card_of_a_run_whose_last_evaluation_ran_out_of_memory(tmp_path: Path) -> None:
    options = {"eval_strategy": "epoch", "num_train_epochs": 2, "per_device_eval_batch_size": 10}
    more = {"eval_dataset": rows()}
    trainer = watched(tmp_path, tiny_model(), rows(), kind=TightInEvaluation, more=more, **options)
    trainer.add_callback(Tightening(trainer))
    trainer.train()
    trainer.create_model_card()
    assert "Out Of Memory" in (tmp_path / "README.md").read_text()


class Tightening(TrainerCallback):
    """Leaves less room after the first evaluation."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_evaluate(self, *_arguments: Any, **_options: Any) -> None:
        self.trainer.most = 4


def test_its_peak_is_what_it_adds_within_training_and_without(tmp_path: Path) -> None:
    """B17: and not all that the process holds, where no run is on its way."""
    held = torch.ones(100 * MIB // 4)
    trainer = watched(
        tmp_path, tiny_model(), rows(), num_train_epochs=1, eval_strategy="epoch", more={"eval_dataset": rows()}
    )
    before = trainer.evaluate()
    trainer.train()
    within = [line for line in trainer.state.log_history if "eval_peak_memory_mib" in line]
    for figures in (before, *within, trainer.evaluate()):
        assert 0 <= figures["eval_peak_memory_mib"] < 90
    assert len(held)


def test_metrics_that_run_out_of_memory_are_said_to(tmp_path: Path) -> None:
    def metrics(_prediction: Any) -> dict[str, float]:
        return {"sum": float(torch.empty(2**60, dtype=torch.uint8).sum())}

    trainer = watched(tmp_path, tiny_model(), rows(), more={"compute_metrics": metrics})
    with pytest.raises(NothingFitsError, match=r"(?s)beside its forward passes.*eval_accumulation_steps=1"):
        trainer.evaluate(rows(ragged=True))
