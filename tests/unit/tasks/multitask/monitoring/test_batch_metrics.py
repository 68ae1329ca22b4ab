import json
import math

import pytest
import torch

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch
from trainauto.core.errors import InputError
from trainauto.core.json_text import to_json
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics, EpochMetrics


def test_fields_of_the_source_in_its_order() -> None:
    """A56, A57: code that gives figures by position, or reads them by name, goes on."""
    batch = BatchMetrics(3, 1.0, ["T1"], 2, 0.5, {"T1": 0.5}, 1e-4, 5000, 6000, 12.5, 0.9, True)
    assert (batch.learning_rate, batch.memory_allocated_mb, batch.memory_reserved_mb) == (1e-4, 5000.0, 6000.0)
    assert (batch.throughput_samples_per_sec, batch.gradient_norm, batch.is_oom_recovery) == (12.5, 0.9, True)
    epoch = EpochMetrics(0, 10, 160, 0.5, {"T1": 0.5}, {"T1": 160}, 5000.0, 4000.0, 12.5, 1, 60.0)
    assert (epoch.epoch, epoch.total_batches, epoch.total_samples, epoch.avg_loss) == (0, 10, 160, 0.5)
    assert (epoch.peak_memory_mb, epoch.avg_memory_mb, epoch.avg_throughput_samples_per_sec) == (5000.0, 4000.0, 12.5)
    assert (epoch.oom_recoveries, epoch.epoch_time_seconds) == (1, 60.0)


@pytest.mark.parametrize(
    ("task_types", "given_samples", "expected"),
    [
        (["T1", "T2", "T1", "T1"], None, {"T1": 3, "T2": 1}),
        (["T1", "T2"], None, {"T1": 2, "T2": 2}),
        (["T1", "T2", "T3"], None, {"T1": 2, "T2": 1, "T3": 1}),
        (["T1", "T2"], {"T1": 1, "T2": 3}, {"T1": 1, "T2": 3}),
        ([], None, {}),
    ],
    ids=["of each sample", "names alone", "names that do not divide them", "given", "no tasks"],
)
def test_samples_by_task(task_types: list[str], given_samples: dict[str, int] | None, expected: dict[str, int]) -> None:
    batch = BatchMetrics(0, 0.0, task_types, 4, 0.5, per_task_samples=given_samples)
    assert batch.samples_by_task == expected


def test_figures_of_any_kind_become_numbers() -> None:
    batch = a_batch(loss=torch.tensor(0.25), per_task_loss={"T1": torch.tensor(0.5)}, gradient_norm=torch.tensor(2.0))
    assert (batch.loss, batch.per_task_loss, batch.gradient_norm) == (0.25, {"T1": 0.5}, 2.0)
    assert isinstance(batch.loss, float)


def test_a_line_says_all_and_can_be_read_back() -> None:
    batch = a_batch(
        loss=math.inf, per_task_loss={"T1": math.nan, "T2": 1.0}, gradient_norm=-math.inf, learning_rate=None
    )
    line = json.loads(to_json({"epoch": 3, **batch.to_dict()}))
    again = BatchMetrics.from_dict(line)
    assert math.isnan(again.per_task_loss.pop("T1"))  # type: ignore[attr-defined]
    del batch.per_task_loss["T1"]  # type: ignore[attr-defined]
    assert again == batch
    assert line["per_task_samples"] == {"T1": 6, "T2": 2}


def test_an_epoch_can_be_read_back() -> None:
    epoch = EpochMetrics(2, 10, 160, math.nan, {"T1": math.inf}, {"T1": 160})
    again = EpochMetrics.from_dict(json.loads(to_json(epoch.to_dict())))
    assert math.isnan(again.avg_loss or 0)
    assert again.per_task_avg_loss == {"T1": math.inf}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_types": "T1"}, r"task_types is a list of task names, got the text 'T1'\n  Write \['T1'\]\."),
        ({"batch_idx": -1}, "batch_idx counts batches from 0, got -1"),
        ({"batch_size": 0}, "batch_size is the number of samples in the batch, 1 or more, got 0"),
        ({"batch_size": 1, "per_task_samples": None}, "task_types names 2 tasks, and batch_size is 1"),
        ({"per_task_samples": {"T1": 5, "T2": 2}}, r"7 samples in all .* batch_size is 8\n  Count each sample"),
        ({"per_task_samples": {"T1": 9, "T2": -1}}, "per_task_samples are 8 samples in all"),
        ({"per_task_loss": {"t-1": 0.5}}, r"per_task_loss has 't-1', of which .* no sample\n  Did you mean 'T1'\?"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_figures_that_contradict_each_other_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        a_batch(**changes)
