"""What losses write into their batches: later objectives find it, whatever pieces either runs in."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from trainauto import AdaptiveLoop, ModelObjective

SAMPLES = 8
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1.00 GiB."


class Size(NamedTuple):
    """One thing that has parts."""

    height: int
    width: int


class Pair:
    """Two objectives, of which the first writes into its batch, and the second notes what it finds."""

    def __init__(self, writes: Any, first_fits: int, second_fits: int = SAMPLES, *, pairs: bool = False) -> None:
        torch.manual_seed(0)
        self.nets = nn.ModuleDict({"one": nn.Linear(4, 1), "two": nn.Linear(4, 1)})
        self.writes, self.pairs, self.found = writes, pairs, list[dict[str, Any]]()
        self.fits = {"one": first_fits, "two": second_fits}
        rows: list[Any] = [{"x": torch.full((4,), float(number)), "meta": {"y": number}} for number in range(SAMPLES)]
        self.rows = [(number, row) for number, row in enumerate(rows)] if pairs else rows

    def loss(self, name: str, model: Any, batch: Any) -> Tensor:
        held = batch[1] if self.pairs else batch
        if len(held["x"]) > self.fits[name]:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        if name == "one":
            self.writes(held)
        else:
            self.found.append(held)
        return model[name](held["x"]).mean()

    def step(self) -> Any:
        loop = self.loop()
        return loop.step(next(loop.batches()))

    def loop(self) -> AdaptiveLoop:
        objectives = [
            ModelObjective(
                name,
                torch.optim.SGD(self.nets[name].parameters(), 0.1),
                lambda model, batch, name=name: self.loss(name, model, batch),
            )
            for name in self.nets
        ]
        return AdaptiveLoop(self.nets, objectives, self.rows, batch_size=SAMPLES)


@dataclass
class Rows:
    """A batch that is no mapping."""

    x: Tensor
    number: Tensor


@pytest.mark.parametrize("second", [SAMPLES, 3])
@pytest.mark.parametrize("first", [SAMPLES, 3])
def test_a_dataclass_is_divided_and_written_to_as_a_mapping_is(first: int, second: int) -> None:
    nets = nn.ModuleDict({"one": nn.Linear(4, 1), "two": nn.Linear(4, 1)})
    found: list[Any] = []

    def loss(name: str, model: Any, batch: Any) -> Tensor:
        if len(batch.x) > (first if name == "one" else second):
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        if name == "one":
            batch.twice, batch.scale = 2 * batch.number, 0.5
        else:
            found.append(batch)
        return model[name](batch.x).mean()

    loop = AdaptiveLoop(
        nets,
        [
            ModelObjective(name, torch.optim.SGD(net.parameters(), 0.1), partial(loss, name))
            for name, net in nets.items()
        ],
        [(torch.ones(4), number) for number in range(SAMPLES)],
        batch_size=SAMPLES,
        collate_fn=lambda samples: Rows(*default_collate(samples)),
    )
    assert loop.step(next(loop.batches())).trained
    assert all(torch.equal(batch.twice, 2 * batch.number) and batch.scale == 0.5 for batch in found)
    assert sorted(torch.cat([batch.number for batch in found]).tolist()) == list(range(SAMPLES))


def test_what_is_as_long_as_a_part_by_chance_is_known_by_other_parts() -> None:
    def write(batch: dict[str, Any]) -> None:
        batch["two"], batch["rows"] = [0.1, 0.2], tuple(batch["meta"]["y"].tolist())

    task = Pair(write, SAMPLES)
    loop = task.loop()
    batches = loop.batches(2)
    assert loop.step(next(batches)).trained
    task.fits["one"] = 2  # in four parts of two samples
    assert loop.step(next(batches)).trained
    for batch in task.found:
        assert batch["two"] == [0.1, 0.2]
        assert batch["rows"] == tuple(batch["meta"]["y"].tolist())


def test_a_tuple_that_all_parts_write_alike_goes_whole_with_parts_of_its_length() -> None:
    def write(batch: dict[str, Any]) -> None:
        batch["pair"] = Size(3, 4) if len(batch["x"]) == 2 else None

    task = Pair(write, 2, 2)
    task.step()
    assert [batch["pair"] for batch in task.found] == [Size(3, 4)] * 4


def everything(batch: dict[str, Any]) -> None:
    rows = batch["x"][:, 0] * 2
    batch["temperature"], batch["words"], batch["flag"] = 0.5, ["a", "b", "c", "d", "e"], None
    batch["scale"], batch["book"] = torch.tensor(3.0), torch.arange(5.0)
    batch["made"] = {"rows": rows, "pair": [rows + 1, rows + 2]}
    batch["meta"]["names"] = [str(number) for number in batch["meta"]["y"].tolist()]


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("second", [SAMPLES, 3])
@pytest.mark.parametrize("first", [SAMPLES, 3])
def test_all_that_a_loss_writes_is_found_in_the_shape_it_has(first: int, second: int, pairs: bool) -> None:
    task = Pair(everything, first, second, pairs=pairs)
    step = task.step()
    assert step.trained
    for batch in task.found:
        rows = batch["x"][:, 0] * 2
        assert (batch["temperature"], batch["words"], batch["flag"]) == (0.5, ["a", "b", "c", "d", "e"], None)
        assert (batch["scale"].item(), batch["book"].tolist()) == (3, [0, 1, 2, 3, 4])
        assert torch.equal(batch["made"]["rows"], rows)
        assert [torch.equal(row, rows + more) for more, row in enumerate(batch["made"]["pair"], 1)] == [True, True]
        assert batch["meta"]["names"] == [str(number) for number in batch["meta"]["y"].tolist()]
    assert sum(len(batch["x"]) for batch in task.found) == SAMPLES


@pytest.mark.parametrize("second", [SAMPLES, 3])
@pytest.mark.parametrize("first", [SAMPLES, 3])
def test_what_a_loss_puts_in_place_of_something_is_found_as_in_a_plain_loop(first: int, second: int) -> None:
    def normalise(batch: dict[str, Any]) -> None:
        batch["x"] = batch["x"] / 2 - 1
        batch["meta"]["y"] = batch["meta"]["y"] + 10

    task = Pair(normalise, first, second)
    task.step()
    numbers = torch.cat([batch["meta"]["y"] for batch in task.found]) - 10
    assert sorted(numbers.tolist()) == list(range(SAMPLES))
    assert torch.equal(torch.cat([batch["x"][:, 0] for batch in task.found]), numbers / 2 - 1)


def test_numbers_that_parts_disagree_on_are_means_and_said(caplog: pytest.LogCaptureFixture) -> None:
    def count(batch: dict[str, Any]) -> None:
        batch["n"] = (batch["x"] > 2).sum()

    whole, parts = Pair(count, SAMPLES), Pair(count, 5)
    whole.step()
    assert whole.found[0]["n"] == 20
    assert not caplog.text
    parts.step()
    assert parts.found[0]["n"] == 20 / 2  # of two equal parts
    assert caplog.text.count("adds 'n' to its batch, which ran in parts that have different values") == 1


@pytest.mark.parametrize("value", [torch.tensor(3), 0.5, [1, 2], "word", torch.arange(7), None])
@pytest.mark.parametrize("fits", [SAMPLES, 3])
def test_a_single_objective_may_write_what_it_likes(value: Any, fits: int) -> None:
    net = nn.Linear(4, 1)

    def loss(model: Any, batch: dict[str, Any]) -> Tensor:
        if len(batch["x"]) > fits:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        batch["written"] = value
        return model(batch["x"]).mean()

    rows = [{"x": torch.ones(4)}] * SAMPLES
    loop = AdaptiveLoop(
        net, ModelObjective("fit", torch.optim.SGD(net.parameters(), 0.1), loss), rows, batch_size=SAMPLES
    )
    assert loop.step(next(loop.batches())).trained
