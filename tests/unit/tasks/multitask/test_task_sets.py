"""Sets of several tasks: what a validation counts, and that a resume knows its samples."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.signals import StopSignals
from trainauto.optim.precision import Precision
from trainauto.tasks.multitask.batches.collator import HeterogeneousCollator
from trainauto.tasks.multitask.batches.samples import read_samples
from trainauto.tasks.multitask.losses.step_tasks import StepTasks
from trainauto.tasks.multitask.model_inputs import TensorsOnly
from trainauto.tasks.multitask.task_model import TaskModel
from trainauto.tasks.multitask.task_sets import TaskSampleSet, TaskValidation, accuracies, accuracy_text

TASKS = ("even", "odd")
ROWS = [
    {"input_ids": [1] * (1 + number % 4), "label": number % 3, "task_type": TASKS[number % 2]} for number in range(7)
]


class Says(nn.Module):
    """Says 0 of every sample, and loses its label."""

    def __init__(self, *, predicts: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self._predicts = predicts

    def forward(self, input_ids: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        said = {"predictions": torch.zeros(len(input_ids), dtype=torch.long)} if self._predicts else {}
        return {"sample_losses": labels.float() + self.weight, **said}


def a_set(rows: list[dict[str, Any]]) -> TaskSampleSet:
    collate = HeterogeneousCollator(tasks=TASKS)
    return TaskSampleSet("val", rows, read_samples(rows), TensorsOnly(collate), 3)


def a_model(network: nn.Module) -> TaskModel:
    steps = StepTasks(TASKS, {}, None)
    return TaskModel(network, torch.optim.SGD(network.parameters(), 0.1), Precision(torch.device("cpu")), steps)


def measured(network: nn.Module, rows: list[dict[str, Any]], most: int) -> Mapping[str, float]:
    validation = TaskValidation(a_set(rows), most, TASKS)
    record, _ = validation.validate(a_model(network), 1, SINGLE_PROCESS, StopSignals()) or pytest.fail("no record")
    assert record.metrics.keys() <= record.better_is_higher.keys()
    return record.metrics


@pytest.mark.parametrize("most", [1, 2, 7])
def test_means_are_over_the_samples_of_each_task_whatever_the_batches(most: int) -> None:
    found = measured(Says(), ROWS, most)
    labels = {task: [row["label"] for row in ROWS if row["task_type"] == task] for task in TASKS}
    for task, of_task in labels.items():
        assert found[f"loss_{task}"] == pytest.approx(sum(of_task) / len(of_task))
        assert found[f"accuracy_{task}"] == pytest.approx(of_task.count(0) / len(of_task))
    everything = [*labels["even"], *labels["odd"]]
    assert found["loss"] == pytest.approx(sum(everything) / 7)
    assert found["accuracy"] == pytest.approx(everything.count(0) / 7)
    assert accuracy_text(accuracies(found, TASKS)) == "even 50.0 %, odd 33.3 %"


def test_a_task_without_samples_and_a_model_without_predictions_have_no_figures() -> None:
    even = [row for row in ROWS if row["task_type"] == "even"]
    assert set(measured(Says(), even, 3)) == {"loss", "accuracy", "loss_even", "accuracy_even"}
    silent = measured(Says(predicts=False), ROWS, 3)
    assert set(silent) == {"loss", "loss_even", "loss_odd"}
    assert accuracies(silent, TASKS) == {}


def test_other_samples_have_another_identity() -> None:
    assert a_set(ROWS).identity() == a_set([dict(row) for row in ROWS]).identity()
    others = [{**row, "task_type": "odd"} for row in ROWS[:1]] + ROWS[1:]
    assert a_set(ROWS).identity() != a_set(others).identity()
