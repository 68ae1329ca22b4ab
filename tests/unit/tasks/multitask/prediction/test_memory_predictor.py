"""Predictions by task, and what they learn."""

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.mixed_samples import MixedSamples, collate, model_of
from trainauto.core.errors import InputError
from trainauto.core.units import GIB, MIB
from trainauto.data.packing import check_monotone
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator
from trainauto.tasks.multitask.prediction.batch_memory import PaddedShape
from trainauto.tasks.multitask.prediction.memory_predictor import MemoryPredictor
from trainauto.tasks.multitask.prediction.published_constants import published_gib
from trainauto.tasks.multitask.prediction.task_sizes import TaskSize


@pytest.fixture(scope="module")
def traced() -> MemoryPredictor:
    """A predictor of a small model; what tests record in it is theirs to take back."""
    torch.set_num_threads(1)
    model = model_of()
    return MemoryPredictor("cpu", model=model, samples=MixedSamples(9, longest=24), collator=collate)


@pytest.fixture
def predictor(traced: MemoryPredictor) -> Any:
    """The same, without any record."""
    fresh = {"has_model": True, "factors": {"1": {"records": []}}, "errors": {}}
    traced.load_state_dict(fresh)
    yield traced
    traced.load_state_dict(fresh)


def test_sixteen_samples_take_about_sixteen_times_one() -> None:
    """A31: the source multiplied by a share for every sample, and sixteen took 5.6e-19 GB."""

    def faulty(tasks: list[str]) -> float:
        total = 0.0
        for _ in tasks:
            total += published_gib(1)
            total *= 1.0 / len(tasks)
        return total

    predictor = MemoryPredictor("cpu")
    one = predictor.predict_batch_memory(["T1"])
    assert predictor.predict_batch_memory(["T1"] * 16) == pytest.approx(16 * one, rel=0.1)
    assert faulty(["T1"] * 16) < 0.1 * one


def test_of_a_model_each_sample_takes_as_much_and_their_order_does_not_matter(predictor: MemoryPredictor) -> None:
    few, many = (predictor.predict_batch_memory(["one"] * count) for count in (3200, 6400))
    assert many == pytest.approx(2 * few, rel=0.1)
    mixed = ["one", "four", "two", "one"]
    assert predictor.predict_batch_memory(mixed) == predictor.predict_batch_memory(sorted(mixed))
    assert predictor.predict_batch_memory(mixed) > predictor.predict_batch_memory(["one"] * 4)
    assert predictor.predict_sample_memory("two") == predictor.predict_batch_memory(["two"])
    assert predictor.predict_batch_memory({"two": 40}, is_training=False) < predictor.predict_batch_memory({"two": 40})


def test_without_a_model_published_figures_stand_in_and_are_said_as_such_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A29, A30: units are binary gigabytes."""
    predictor = MemoryPredictor("cpu")
    with caplog.at_level(logging.WARNING):
        assert predictor.predict_sample_memory("T1", is_training=True) == pytest.approx(0.90, rel=1e-6)
        assert predictor.predict_sample_memory("T3", is_training=False) == pytest.approx(0.83, rel=1e-6)
    assert [record.message[:24] for record in caplog.records] == ["no model is at hand: mem"]
    with pytest.raises(InputError, match=r"no sample is of task 'T4'\n.*Known: T1, T2, T3"):
        predictor.predict_sample_memory("T4")


def test_records_bring_a_prediction_to_what_is_measured() -> None:
    """A32, A34: comparing the corrected prediction with the measured peak feeds it back, and never settles."""

    def faulty_error() -> float:
        factor, errors = 1.0, []
        for _ in range(40):
            predicted = 0.9 * factor
            errors.append(abs(predicted / 1.8 - 1))
            factor = 1.8 / predicted  # of the corrected prediction; it should be 1.8 / 0.9
        return max(errors[-10:])

    predictor = MemoryPredictor("cpu")
    for _ in range(10):
        predictor.record_actual_memory("T1", 1.8 * 1024)
    assert predictor.predict_sample_memory("T1") == pytest.approx(1.8, rel=0.02)
    assert faulty_error() > 0.4


def test_accuracy_is_of_predictions_made_before_their_record() -> None:
    """A33: ten equal records of twice what is predicted; the first was 50 % off, and knew nothing of the others."""
    predictor = MemoryPredictor("cpu")
    errors = [predictor.record_batch(["T1"] * 4, int(2 * 0.9 * 4 * GIB)) for _ in range(10)]
    assert errors[0] == pytest.approx(0.5, abs=1e-6)
    assert errors[-1] is not None
    assert errors[-1] < 0.01
    accuracy = predictor.get_calibration_accuracy()
    assert set(accuracy) == {"T1"}
    assert accuracy["T1"] == pytest.approx(float(np.mean([error or 0.0 for error in errors])))


def test_after_ten_mixed_batches_every_task_is_known(predictor: MemoryPredictor) -> None:
    """A35, on made peaks: tasks take 12 %, 3 % and 5 % more than predicted, with noise."""
    more, generator = {"one": 0.12, "two": 0.03, "four": 0.05}, np.random.default_rng(0)
    for number in range(30):
        tasks = [list(more)[number % 3]] * 4000 + list(generator.choice(list(more), 1000))
        shape = predictor.shape_of(tasks)
        plain = math.log(float(predictor._typical_bytes(shape, True)))
        share = float(np.mean([more[task] for task in tasks]))
        predictor.record_batch(tasks, int(math.exp(plain + share + generator.normal(0, 0.01))))
    for task, factor in more.items():
        shape = PaddedShape(20000, 24, 4)
        expected = predictor._typical_bytes(shape, True) * math.exp(factor)
        assert predictor.predict_bytes(shape, {task: 20000}) == pytest.approx(expected, rel=0.03)
    assert all(error < 0.08 for error in predictor.get_calibration_accuracy().values())


def test_quantiles_come_nearer_with_records(predictor: MemoryPredictor) -> None:
    shape = predictor.shape_of(["four"] * 500)

    def spread() -> float:
        return predictor.predict_bytes(shape, quantile=0.99) / predictor.predict_bytes(shape)

    before = spread()
    for _ in range(12):
        predictor.record_batch(["four"] * 500, predictor.predict_bytes(shape))
    assert 1.0 < spread() < before < 1.6
    with pytest.raises(ValueError, match="between 0 and 1"):
        predictor.predict_bytes(shape, quantile=1.0)


def test_costs_are_those_of_the_packing_layer(predictor: MemoryPredictor) -> None:
    cost = predictor.as_cost()
    check_monotone(cost, 24, 64)
    one = np.array([8000]), np.array([24]), np.array([8000 * 4])
    assert int(cost.cost(*one)[0]) == pytest.approx(predictor.predict_bytes(PaddedShape(8000, 24, 4)), abs=1)
    assert int(predictor.cost(*one)[0]) == int(cost.cost(*one)[0])
    before = int(cost.cost(*one)[0])
    for _ in range(5):
        predictor.record_batch(["four"] * 8000, 2 * before, tokens=24)
    assert int(cost.cost(*one)[0]) == before  # what an epoch was packed by stays what it was
    assert int(predictor.as_cost().cost(*one)[0]) > 1.2 * before
    assert cost.unit == predictor.unit == "bytes"
    assert 1.0 < cost.margin(0.1) < cost.margin(0.01) < 1.4
    check_monotone(MemoryPredictor("cpu").as_cost(), 24, 64)


def test_peaks_that_show_nothing_are_left_aside(predictor: MemoryPredictor) -> None:
    assert predictor.record_batch(["one"], 5 * MIB, held_bytes=6 * MIB) is None
    assert predictor.get_calibration_accuracy() == {}


def test_a_peak_of_a_batch_is_not_taken_for_that_of_one_sample(
    predictor: MemoryPredictor, caplog: pytest.LogCaptureFixture
) -> None:
    before = predictor.predict_bytes(PaddedShape(16, 24, 4), ["four"] * 16)
    for _ in range(3):
        predictor.record_actual_memory("four", 20 * before / MIB)
    assert caplog.text.count("say how many samples it has") == 1
    assert predictor.get_calibration_accuracy() == {}
    predictor.record_actual_memory("four", before / MIB, samples=16)
    assert predictor.get_calibration_accuracy()["four"] < 0.1


def test_in_a_loop_a_peak_is_that_of_its_batch(predictor: MemoryPredictor, caplog: pytest.LogCaptureFixture) -> None:
    """Other batches are those of another size, and those that nothing holds any more."""
    predictor._has_asked = False
    tokens = lambda texts: {"input_ids": [[1] * len(text) for text in texts]}  # noqa: E731
    collate_text = HeterogeneousCollator(tokens, tasks=["one"])
    images = torch.zeros(1, 3, 8, 8)
    samples = [{"text": "x" * length, "task_type": "one", "images": images} for length in (6, 12, 9)]
    for batch in DataLoader(samples, batch_size=2000, sampler=[0, 1, 2] * 2000, collate_fn=collate_text):  # type: ignore[arg-type]
        shape = PaddedShape(len(batch.metadata), 12, 1)
        predicted = predictor.predict_bytes(shape, {"one": 2000})
        predictor.record_actual_memory("one", 1.25 * predicted / MIB)
        break
    assert predictor.get_calibration_accuracy() == {"one": pytest.approx(0.2, abs=1e-3)}
    assert predictor.predict_bytes(shape, {"one": 2000}) > 1.05 * predicted
    learned = predictor.state_dict()
    predictor.record_actual_memory("one", predicted / 10 / MIB)
    assert "2000 samples of one would take" in caplog.text
    predictor.record_actual_memory("two", predicted / MIB)  # the loop names one task, whatever its batch holds
    assert set(predictor.get_calibration_accuracy()) == {"one"}
    predictor.load_state_dict(learned)
    batch.metadata[0]["task_type"] = "three"
    predictor.record_actual_memory("one", predicted / 2000 / MIB)  # nor is it one sample's where a task is not known
    assert predictor.state_dict() == learned
    batch.metadata[0]["task_type"] = "one"
    moved = batch.to("cpu")
    del batch
    predictor.record_actual_memory("one", predicted / MIB)
    assert predictor.get_calibration_accuracy()["one"] < 0.2
    predictor.load_state_dict(learned)
    del moved
    predictor.record_actual_memory("one", predicted / MIB)  # of one sample: far too much
    assert predictor.state_dict() == learned


def test_what_was_recorded_comes_back_from_a_checkpoint() -> None:
    predictor, other = MemoryPredictor("cpu"), MemoryPredictor("cpu")
    for _ in range(4):
        predictor.record_actual_memory("T2", 3000)
    other.load_state_dict(predictor.state_dict())
    assert other.predict_sample_memory("T1") == predictor.predict_sample_memory("T1")
    assert other.get_calibration_accuracy() == predictor.get_calibration_accuracy()


def test_a_model_that_cannot_be_traced_is_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    class Depends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
            return {"loss": self.weight * input_ids[input_ids > 3].sum()}  # its size is that of the data

    dataset = MixedSamples(3)
    predictor = MemoryPredictor("cpu", model=Depends(), samples=dataset, collator=collate)
    with caplog.at_level(logging.WARNING):
        assert predictor.predict_sample_memory("one") == pytest.approx(published_gib(1))
    assert [record.message[:29] for record in caplog.records] == ["the model cannot be traced (t"]
    assert not predictor.follows_model  # so that nothing of this model is weighed by another one's figures


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InputError, match="nothing says what its batches are"):
        MemoryPredictor("cpu", model=model_of())
    with pytest.raises(InputError, match="nothing says what its batches are"):
        MemoryPredictor("cpu", model=model_of(), samples={"T1": TaskSize(8, 1)})
    with pytest.raises(InputError, match=r"did you mean \['T1'\]"):
        MemoryPredictor("cpu").predict_batch_memory("T1")
    with pytest.raises(InputError, match="one sample at least"):
        MemoryPredictor("cpu").predict_batch_memory([])


def test_sizes_and_batches_can_be_given_instead_of_a_dataset() -> None:
    def make_batch(shape: PaddedShape) -> Tensor:
        return torch.empty(shape.samples, 1 + 10 * shape.images)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return model(batch[:, :1]).square().mean()

    sizes = {"a": TaskSize(0, 1), "b": TaskSize(0, 3)}
    predictor = MemoryPredictor("cpu", model=nn.Linear(1, 4), samples=sizes, make_batch=make_batch, loss=loss)
    assert predictor.tasks == ["a", "b"]
    assert predictor.follows_model
    assert predictor.predict_batch_memory({"b": 900_000}) > 1.5 * predictor.predict_batch_memory({"a": 900_000})
