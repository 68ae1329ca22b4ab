"""Models of every task run a batch whole where layers compute with statistics of the batch."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainauto.models.base_model import BaseModel
from trainauto.optim.precision import Precision
from trainauto.tasks.finetune.conversation_model import ConversationModel
from trainauto.tasks.multitask.losses.step_tasks import StepTasks
from trainauto.tasks.multitask.task_model import TaskModel
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.row_layouts import PaddedRows

CPU = Precision(torch.device("cpu"))


def sgd(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), 0.1)


MODELS: dict[str, Callable[[nn.Module], BaseModel]] = {
    "conversations": lambda network: ConversationModel(network, sgd(network), CPU),
    "several tasks": lambda network: TaskModel(network, sgd(network), CPU, StepTasks(("a",), {}, None)),
    "texts": lambda network: LanguageModel(
        network, "causal", PaddedRows(), 0, lambda weights: torch.optim.SGD(weights, 0.1), CPU
    ),
}


@pytest.mark.parametrize("task", MODELS)
@pytest.mark.parametrize(("layer", "splittable"), [(nn.BatchNorm1d(4), False), (nn.LayerNorm(4), True)])
def test_a_batch_that_batch_norm_sees_is_not_split(task: str, layer: nn.Module, splittable: bool) -> None:
    model = MODELS[task](nn.Sequential(nn.Linear(4, 4), layer))
    assert [objective.splittable for objective in model.objectives()] == [splittable]
