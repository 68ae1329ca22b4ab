"""Evaluation of a memory-aware Trainer: its loss does not depend on batches, and its failures are its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers import Watched, rows, tiny_model, watched
from trainauto.core.plan import Plan

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
    assert [line.get("eval_out_of_memory") for line in lines] == [3, None]  # 10, and its halves
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
    with pytest.raises(torch.OutOfMemoryError):
        trainer.evaluate(rows())
