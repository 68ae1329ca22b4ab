"""Buffers that models assign, and weights that follow others, are put back before a pass runs again."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainauto.engine import module_state
from trainauto.engine.module_state import LEARNING_STEPS, TURNS, ModuleState
from trainauto.engine.run_errors import CannotRepeatError
from trainauto.engine.snapshot import StepSnapshot

CPU = torch.device("cpu")


def follow(teacher: nn.Module, student: nn.Module, how: str) -> None:
    """Move a teacher towards its student, in one of the ways in which people write it."""
    for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
        match how:
            case "in place":
                with torch.no_grad():
                    mine.mul_(0.9).add_(other, alpha=0.1)
            case "data":
                mine.data.lerp_(other.data, 0.1)
            case "assigned":
                mine.data = mine.data * 0.9 + other.data * 0.1


class Distilled(nn.Module):
    """A student and a teacher that follows it in ``forward``, a centre that is assigned, and more of that kind."""

    def __init__(self, how: str = "in place") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.student = nn.Linear(3, 2).double()
        self.teacher = deepcopy(self.student).requires_grad_(False)
        self.how = how
        self.register_buffer("center", torch.zeros(2, dtype=torch.float64), persistent=False)
        self.register_buffer("last", None)
        self.register_buffer("constant", torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        follow(self.teacher, self.student, self.how)
        out = self.student(x)
        self.center = 0.9 * self.center + 0.1 * out.detach().mean(0)
        self.last = out.detach().mean(0)
        if "made" not in self._buffers:
            self.register_buffer("made", torch.zeros(()))
        self.made += 1
        return (out - self.teacher(x) + self.center).square().mean()


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def same(first: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return first.keys() == other.keys() and all(torch.equal(first[name], other[name]) for name in first)


def x_of(step: int) -> Tensor:
    return torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("how", ["in place", "data", "assigned"])
@pytest.mark.parametrize("fails", [{0}, {1}, {3}, {5}])
def test_a_failed_attempt_changes_nothing(how: str, fails: set[int]) -> None:
    """In the first step, while the teacher still is the student, and later."""
    torch.manual_seed(0)
    model, plain = Distilled(how), Distilled(how)
    optimizers = [torch.optim.SGD(each.student.parameters(), 0.1) for each in (model, plain)]
    snapshot = StepSnapshot([model], CPU, [optimizers[0]])
    for step in range(6):
        snapshot.take()
        before = state_of(model)
        if step in fails:
            model(x_of(step))
            assert not same(state_of(model), before)
            snapshot.restore()
            assert same(state_of(model), before)
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            each(x_of(step)).backward()
            optimizer.step()
        snapshot.commit_pass()
        snapshot.commit_step()
    assert same(state_of(model), state_of(plain))


def test_what_is_copied_is_what_changes() -> None:
    model = Distilled()
    optimizer = torch.optim.SGD(model.student.parameters(), 0.1)
    snapshot = StepSnapshot([model], CPU, [optimizer])
    for step in range(LEARNING_STEPS + 1):
        snapshot.take()
        model(x_of(step)).backward()
        optimizer.step()
        snapshot.commit_pass()
        snapshot.commit_step()
    assert sorted(snapshot.changing_by_piece) == ["center", "last", "made", "teacher.bias", "teacher.weight"]
    snapshot.take()
    assert len(snapshot._state._copies) == 5


def test_names_are_those_of_the_network_that_was_compiled() -> None:
    class Compiled(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self._orig_mod = module

    snapshot = StepSnapshot([Compiled(nn.BatchNorm1d(3))], CPU)
    snapshot.take()
    snapshot._state._networks[0]._orig_mod(torch.rand(4, 3))
    snapshot.commit_pass()
    assert snapshot.changing_by_piece == ["running_mean", "running_var", "num_batches_tracked"]


def test_a_module_of_two_networks_is_one() -> None:
    norm = nn.BatchNorm1d(3)
    state = ModuleState([nn.Sequential(norm), nn.Sequential(norm, nn.Linear(3, 3))])
    state.take()
    assert len(state._slots) == 3


@pytest.mark.parametrize("how", ["in place", "assigned"])
def test_frozen_weights_beyond_the_size_of_the_trained_ones_are_not_copied(how: str) -> None:
    """Fine-tuning with adapters: a copy of the model would be as large as the model."""
    model = nn.ModuleDict({"base": nn.Linear(100, 100).requires_grad_(False), "adapter": nn.Linear(4, 4)})
    snapshot = StepSnapshot([model], CPU, [torch.optim.SGD(model["adapter"].parameters(), 0.1)])
    snapshot.take()
    assert not snapshot._state._copies
    follow(model["base"], nn.Linear(100, 100), how)
    with pytest.raises(CannotRepeatError, match=r"base\.weight, base\.bias of the model"):
        snapshot.restore()


def test_what_changes_between_passes_is_not_taken_for_a_change_of_the_pass() -> None:
    model = Distilled()
    del model.center, model.last
    snapshot = StepSnapshot([model], CPU, [torch.optim.SGD(model.student.parameters(), 0.1)])
    for _ in range(LEARNING_STEPS + 2):
        snapshot.take()
        snapshot.commit_pass()
        snapshot.commit_step()
        follow(model.teacher, model.student, "in place")  # in the loop, after the step
    snapshot.take()
    snapshot.restore()
    assert not snapshot.changing_by_piece


@pytest.mark.parametrize("fails", range(TURNS + 2))
@pytest.mark.parametrize("how", ["in place", "assigned"])
def test_what_begins_to_change_late_is_put_back_or_refused(
    how: str, fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions and addresses are read in turn by then: a failure is refused until all have been read once more."""
    six = [nn.ModuleList(nn.Linear(4, 4) for _ in range(6)) for _ in range(2)]
    model = nn.ModuleDict({"base": six[0].requires_grad_(False), "head": six[1]})
    other = deepcopy(model["base"][4])
    snapshot = StepSnapshot([model], CPU, [torch.optim.SGD(model["head"].parameters(), 0.1)])
    monkeypatch.setattr(module_state, "MANY", 12)  # of the weights and biases of six layers
    begins, refused = LEARNING_STEPS + 3, False
    for step in range(begins + fails + 1):
        snapshot.take()
        before = state_of(model)
        if step == begins:
            assert snapshot._state._turns == TURNS
        if step >= begins:
            follow(model["base"][4], other, how)
        if step == begins + fails:
            try:
                snapshot.restore()
            except CannotRepeatError as error:
                refused = "base.4" in str(error)
            assert refused or same(state_of(model), before)
        snapshot.commit_pass()
        snapshot.commit_step()
    assert refused == (fails == 0) or 0 < fails < TURNS


def test_buffers_are_known_where_the_first_step_is_left_out() -> None:
    model = nn.BatchNorm1d(3)
    snapshot = StepSnapshot([model], CPU)
    for leaves_out in (True, False):
        snapshot.take()
        model(torch.rand(4, 3))
        if leaves_out:
            snapshot.leave_out()
        snapshot.commit_pass()
        snapshot.commit_step()
        assert len(snapshot.changing()) == 3
    snapshot.take()
    before = model.running_mean.clone()
    model(torch.rand(4, 3))
    snapshot.restore()
    assert torch.equal(model.running_mean, before)


class _Ranks:
    """What two ranks tell each other: this one, and one whose state is given."""

    world_size = 2

    def __init__(self, other: dict[str, Any]) -> None:
        self.other, self.sent = other, []

    def all_gather_object(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        return [self.other, message]

    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        self.sent = list(tensors)


def test_ranks_send_what_changes_on_any_of_them() -> None:
    """One without samples in the first step has seen nothing change, and must send as much as the others."""
    model = nn.BatchNorm1d(3)
    state = ModuleState([model])
    state.take()
    kinds = ["torch.float32 (3,)", "torch.float32 (3,)", "torch.int64 ()"]
    ranks = _Ranks({"changing": [0, 1], "kinds": kinds})
    state.share(ranks)  # type: ignore[arg-type]
    assert [id(one) for one in ranks.sent] == [id(model.running_mean), id(model.running_var)]
    ranks.other = {"changing": [0, 2], "kinds": ["torch.float32 (9,)", *kinds[1:]]}
    state.share(ranks)  # type: ignore[arg-type]
    assert [id(one) for one in ranks.sent] == [id(model.running_var), id(model.num_batches_tracked)]
