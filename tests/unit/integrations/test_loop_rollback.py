"""A loop of one's own that goes back to checkpoints that only it can load."""

import copy
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainauto import AdaptiveLoop, ModelObjective
from trainauto.automations.controller_automation import ControllerAutomation
from trainauto.automations.stop_file import STOP_FILE
from trainauto.control.controller import Controller
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.engine.rollback import GivenUpError

GUARD: dict[str, Any] = {"SpikeGuard": {}}


class Loop:
    """A loop of twenty samples in batches of four that keeps its states in memory, every five steps.

    Args:
        spoilt: losses that are NaN, by their number.
    """

    def __init__(self, spoilt: tuple[int, ...] = (), folder: Path | None = None, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.adam = torch.optim.Adam(self.model.parameters(), 1e-2)
        inputs = torch.arange(60.0).reshape(20, 3) / 60
        self.spoilt, self.losses, self.order = spoilt, 0, list[list[int]]()
        self.saved: dict[int, Any] = {}
        given = {"automations": GUARD, "go_back": self.go_back, **options}
        self.loop = AdaptiveLoop(
            self.model,
            ModelObjective("fit", self.adam, self.loss),
            torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True)),
            batch_size=4,
            run_directory=folder,
            **given,
        )

    def loss(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        if not loss.is_meta and model is self.model:
            self.losses += 1
            if self.losses in self.spoilt:
                return loss * torch.nan
        return loss

    def save(self) -> None:
        parts = {"model": self.model.state_dict(), "adam": self.adam.state_dict(), "loop": self.loop.state_dict()}
        self.saved[self.loop.progress.steps] = copy.deepcopy(parts)

    def go_back(self, good_until: int) -> None:
        state = copy.deepcopy(self.saved[max(step for step in self.saved if step <= good_until)])
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        self.loop.load_state_dict(state["loop"])

    def train(self, epochs: int) -> "Loop":
        self.save()
        with self.loop:
            for batch in self.loop.batches(epochs=epochs):
                samples = [round(float(row[0]) * 20) for row in self.loop.contents(batch)[0]]
                self.order = [*self.order[: self.loop.progress.steps], samples]
                self.loop.step(batch)
                if self.loop.progress.steps % 5 == 0:
                    self.save()
        return self


def test_it_goes_back_and_trains_the_rest_in_another_order(tmp_path: Path) -> None:
    plain, back = Loop().train(3), Loop((8,), tmp_path).train(3)
    assert back.loop.progress.steps == 15
    assert back.loop.progress.undone_steps == 3
    assert bool(torch.isfinite(back.model.weight).all())
    assert back.order[:5] == plain.order[:5]
    assert back.order[5:] != plain.order[5:]
    for epoch in range(3):
        assert sorted(chain(*back.order[5 * epoch : 5 * epoch + 5])) == list(range(20))
    run = (tmp_path / "current").resolve()
    lines = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert [(one["from_step"], one["to_step"]) for one in lines if one["kind"] == "rollback"] == [(8, 5)]
    steps = [json.loads(line)["step"] for line in (run / "training_log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 16))


def test_an_end_that_a_person_asks_for_in_the_step_that_is_undone_is_heard(tmp_path: Path) -> None:
    class Asked(Loop):
        def loss(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
            if self.losses == 7 and not batch[0].is_meta and model is self.model:
                (tmp_path / "current" / STOP_FILE).touch()
            return super().loss(model, batch)

    loop = Asked((8,), tmp_path, automations={**GUARD, "StopFile": {}}).train(3).loop
    assert loop.progress.steps == 5
    assert loop.progress.undone_steps == 3
    assert loop.stop_reason == "STOP_TRAINING requested it after step 8"
    assert not (tmp_path / "current" / STOP_FILE).exists()


def test_plans_that_ran_out_of_memory_are_remembered() -> None:
    class Short(Loop):
        def loss(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
            if self.losses == 6 and not batch[0].is_meta and model is self.model:
                self.controller.after_failure(Plan.of(batch_size=64), 2**30, recovered=True)
            return super().loss(model, batch)

        @property
        def controller(self) -> Controller:
            (found,) = (one for one in self.loop.training.journal.automations if isinstance(one, ControllerAutomation))
            return found.controller

    loop = Short((8,)).train(3)
    assert loop.loop.progress.undone_steps == 3
    blocked = loop.controller.state_dict()["failures"]["blocks"]
    assert [plan["batch_size"] for plan, *_ in blocked] == [64]


def test_a_step_that_is_left_out_changes_nothing(tmp_path: Path) -> None:
    loop = Loop((8,), automations={"SpikeGuard": {"skip_nonfinite": 1}}).train(3)
    assert loop.losses == 15
    assert loop.loop.progress.undone_steps == 0
    assert bool(torch.isfinite(loop.model.weight).all())


def test_it_ends_where_it_has_gone_back_often_enough() -> None:
    with pytest.raises(GivenUpError, match="after 1 rollback"):
        Loop((8, 9), automations={"SpikeGuard": {"max_rollbacks": 1}}).train(3)


def test_a_loop_that_cannot_go_back_is_refused() -> None:
    with pytest.raises(InputError, match=r"go_back=\.\.\."):
        Loop(go_back=None)
    with pytest.raises(InputError, match="has left the loop at step 8"):
        Loop((8,), go_back=lambda step: None).train(3)
