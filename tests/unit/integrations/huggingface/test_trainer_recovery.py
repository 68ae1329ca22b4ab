"""A memory-aware Trainer's steps that run out of memory, said by the loss; real failures are in tests/integration."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainers import Regression, Watched, points, rows, tiny_model, watched, weights
from trainauto.engine.run_errors import NothingFitsError

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


class Tight(Watched):
    """Has room for so many samples; the third part of the second step fails in its backward pass, too."""

    most = 3
    fails_backward = True

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        samples = len(next(iter(inputs.values())))
        if model.training and torch.is_grad_enabled() and samples > self.most:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        loss = super().compute_loss(model, inputs, *arguments, **options)
        parts = sum(step == 1 for step, _ in self.parts)
        if self.fails_backward and torch.is_grad_enabled() and self.state.global_step == 1 and parts == 3:
            loss.register_hook(_fail)
        return loss


def _fail(_gradient: Any) -> None:
    raise torch.OutOfMemoryError(OUT_OF_MEMORY)


def test_failures_in_either_pass_corrupt_nothing(tmp_path: Path) -> None:
    """C07, A42: the same weights as without failures (SGD, fp64), each sample once, and the log says so."""
    results = []
    for kind in (Watched, Tight):
        net = tiny_model().double()
        trainer = watched(
            tmp_path,
            net,
            rows(ragged=True),
            kind=kind,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            num_train_epochs=2,
            optim="sgd",
        )
        trainer.train()
        results.append((weights(net), [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
        assert trainer.memory.progress.samples == 40
        assert trainer.state.epoch == 2
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-9)
    assert results[0][1] == pytest.approx(results[1][1])
    noted = [entry for entry in trainer.state.log_history if "out_of_memory" in entry]
    assert [(entry["step"], entry["out_of_memory"]) for entry in noted] == [(2, 1)]
    assert any("out of memory" in entry.get("reason", "") for entry in trainer.state.log_history)


def test_a_whole_batch_that_does_not_fit_runs_in_parts(tmp_path: Path) -> None:
    net, undisturbed = tiny_model().double(), tiny_model().double()
    options: dict[str, Any] = {"per_device_train_batch_size": 8, "num_train_epochs": 1, "optim": "sgd"}
    trainer = watched(tmp_path, net, rows(8), kind=Tight, **options)
    trainer.fails_backward = False
    trainer.train()
    watched(tmp_path, undisturbed, rows(8), **options).train()
    assert [len(part["input_ids"]) for _, part in trainer.parts] == [2, 2, 2, 2]
    assert Counter(trainer.trained()) == Counter(range(8))
    torch.testing.assert_close(weights(net), weights(undisturbed), rtol=1e-9, atol=1e-9)


class Normed(Regression):
    """Computes with statistics of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()


def test_batches_that_cannot_be_parted_come_again_smaller(tmp_path: Path) -> None:
    trainer = watched(tmp_path, Normed(), points(), kind=Tight, per_device_train_batch_size=8, num_train_epochs=2)
    trainer.most, trainer.fails_backward = 5, False
    trainer.train()
    seen = Counter(float(row[0]) for _, part in trainer.parts for row in part["x"])
    assert set(seen.values()) == {2}
    assert len(seen) == 20
    assert max(len(part["x"]) for _, part in trainer.parts) <= 5
    samples = [entry["samples"] for entry in trainer.state.log_history if "loss" in entry]
    assert samples[-1] == 40
    assert trainer.state.epoch == 2


def test_one_sample_that_does_not_fit_ends_it_in_words(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(layers=2), rows(), kind=Tight, per_device_train_batch_size=2)
    trainer.most = 0
    with pytest.raises(NothingFitsError, match="one sample does not fit") as caught:
        trainer.train()
    assert "Gradient checkpointing, switched on in your model, would help (" in str(caught.value)
    assert trainer.args.gradient_accumulation_steps == 1


def test_other_errors_are_not_taken_for_memory(tmp_path: Path) -> None:
    """A46."""

    class Broken(Watched):
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            if torch.is_grad_enabled() and self.state.global_step == 1:
                raise RuntimeError("shapes cannot be multiplied")
            return super().compute_loss(model, inputs, *arguments, **options)

    trainer = watched(tmp_path, tiny_model(), rows(), kind=Broken, per_device_train_batch_size=2)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        trainer.train()


class Late(Watched):
    """The second step runs out of memory once its forward pass has moved the statistics."""

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        if torch.is_grad_enabled() and self.state.global_step == 1 and len(inputs["x"]) > 5:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return loss


def test_a_failed_attempt_leaves_no_trace_in_statistics(tmp_path: Path) -> None:
    """BatchNorm has counted as many batches as there were passes that stayed."""
    trainer = watched(tmp_path, Normed(), points(), kind=Late, per_device_train_batch_size=7, num_train_epochs=1)
    trainer.train()
    assert [len(parts) for parts in trainer.steps()] == [1, 3, 2]
    assert int(trainer.model.net[1].num_batches_tracked) == 5


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"max_batch_size": 64}])
def test_steps_keep_their_samples_where_passes_shrink(tmp_path: Path, options: dict[str, Any]) -> None:
    """As many steps as the stock Trainer takes, of the same samples, with the weights of undisturbed ones."""
    results = []
    for kind in (Watched, Tight):
        net = Regression()
        size = 8 // options.get("gradient_accumulation_steps", 1)
        trainer = watched(
            tmp_path,
            net,
            points(40),
            kind=kind,
            per_device_train_batch_size=size,
            num_train_epochs=1,
            optim="sgd",
            lr_scheduler_type="constant",
            **options,
        )
        trainer.fails_backward = False
        trainer.train()
        lines = [entry for entry in trainer.state.log_history if "loss" in entry]
        assert [line["step_samples"] for line in lines] == [8] * 5
        assert trainer.state.global_step == trainer.state.max_steps == 5
        results.append(weights(net))
    assert max(len(part["x"]) for _, part in trainer.parts) == 3
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


def test_passes_that_couple_samples_are_as_asked_for_or_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """BatchNorm computes with passes of 4: memory makes no larger ones of them, and smaller ones are told, once."""
    options: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_batch_size": 64}
    for most, passes, is_said in ((64, {4}, 0), (3, {2, 3}, 1)):
        caplog.clear()
        trainer = watched(tmp_path, Normed(), points(16), kind=Tight, num_train_epochs=1, **options)
        trainer.most, trainer.fails_backward = most, False
        trainer.train()
        assert trainer.memory.running.axes[0].maximum == 4
        assert {len(part["x"]) for _, part in trainer.parts} == passes
        assert trainer.state.global_step == 2
        said = [line for line in caplog.messages if "net.1 (BatchNorm1d) computes with all samples of a pass" in line]
        assert len(said) == is_said
        assert all(line.startswith("a pass holds 3 samples in place of 4") for line in said)
