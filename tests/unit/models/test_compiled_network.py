"""What a plan change costs a compiled network, and what follows where torch.compile fails; the compilers are stand-ins.

Inductor itself: tests/integration/test_precision.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

from tests.compiler import in_own_process
from trainauto.core.errors import InputError
from trainauto.models.compiled_network import CompiledNetwork, compilation, failed_compilations_told

pytestmark = in_own_process

Backend = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def compiled_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Backend], CompiledNetwork]:
    real = torch.compile

    def network(backend: Backend) -> CompiledNetwork:
        monkeypatch.setattr(torch, "compile", lambda forward, **_how: real(forward, backend=backend))
        return CompiledNetwork(nn.Conv2d(3, 4, 3, padding=1), None)

    return network


def images(count: int, height: int, width: int) -> Tensor:
    return torch.rand(count, 3, height, width)


def as_it_is(graph: fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    return graph.forward


def only_fixed_sides(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    if sum(isinstance(value, torch.SymInt) for value in inputs) > 1:  # sides beside the number of images
        raise TypeError("cannot determine truth value of Relational")
    return graph.forward


def test_other_numbers_and_sizes_need_no_other_graph(compiled_by: Callable[..., CompiledNetwork]) -> None:
    network, before = compiled_by(as_it_is), compilation().graphs
    for count, height, width in ((4, 16, 16), (6, 24, 24), (3, 40, 24)):
        assert network(images(count, height, width)).shape == (count, 4, height, width)
    assert compilation().graphs == before + 1


def test_a_network_for_one_size_only_is_compiled_again_for_each(
    compiled_by: Callable[..., CompiledNetwork], caplog: pytest.LogCaptureFixture
) -> None:
    """Said once; another number of images takes no other graph."""
    network = compiled_by(only_fixed_sides)
    before = compilation().graphs
    for count, side, graphs in ((4, 16, 1), (6, 16, 1), (4, 24, 2), (5, 24, 2), (4, 16, 2)):
        assert network(images(count, side, side)).shape == (count, 4, side, side)
        assert compilation().graphs == before + graphs
    (said,) = [record.message for record in caplog.records if "torch.compile" in record.message]
    assert "cannot determine truth value" in said
    assert "each time that lq_size changes" in said


def test_more_sizes_than_torch_keeps_by_default(compiled_by: Callable[..., CompiledNetwork]) -> None:
    network, before = compiled_by(only_fixed_sides), compilation().graphs
    for side in range(8, 24):
        network(images(2, side, side))
    assert compilation().graphs == before + 16


def test_one_that_cannot_be_compiled_is_an_input_error(compiled_by: Callable[..., CompiledNetwork]) -> None:
    def fails(_graph: fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        raise RuntimeError("no C++ compiler found")

    with pytest.raises(InputError, match="no C\\+\\+ compiler") as caught:
        compiled_by(fails)(images(2, 8, 8))
    assert caught.value.problems[0].advice == "Leave out use_compile."


def test_memory_that_runs_out_while_compiling_is_that(compiled_by: Callable[..., CompiledNetwork]) -> None:
    def greedy(_graph: fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        raise MemoryError

    with pytest.raises(MemoryError):
        compiled_by(greedy)(images(2, 8, 8))


def test_a_failing_surrounding_is_logged_and_ends_no_count(
    compiled_by: Callable[..., CompiledNetwork], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def around() -> Iterator[None]:
        yield
        raise MemoryError

    network, known = compiled_by(as_it_is), compilation()
    monkeypatch.setattr(known, "around", around)
    known.begin_step()
    network(images(2, 8, 8))
    assert known.seconds > 0
    assert "what surrounds a compilation failed" in caplog.text
    torch.compiler.reset()  # refuses while a compilation is open


def test_a_backward_pass_that_cannot_be_compiled_is_noted(compiled_by: Callable[..., CompiledNetwork]) -> None:
    def fails(_graph: fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        raise TypeError("no order of strides")

    network = compiled_by(aot_autograd(fw_compiler=as_it_is, bw_compiler=fails))
    network.compilation.begin_step()
    output = network(images(2, 8, 8))
    model = SimpleNamespace(compilation=lambda: network.compilation)
    with pytest.raises(InputError, match="no order of strides"), failed_compilations_told(model):
        output.sum().backward()
    with pytest.raises(TypeError, match="another"), failed_compilations_told(model):
        raise TypeError("another")


def test_seconds_are_those_of_compiling_and_something_holds_around_it(
    compiled_by: Callable[..., CompiledNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        times.append("begin")
        yield
        times.append("end")

    network, known = compiled_by(only_fixed_sides), compilation()
    network(images(2, 8, 8))
    monkeypatch.setattr(known, "around", around)
    known.begin_step()
    network(images(3, 8, 8))
    network(images(1, 8, 8))  # of one image torch makes a graph of its own
    known.begin_step()
    times.clear()
    network(images(5, 8, 8))
    assert (known.seconds, times) == (0.0, [])
    network(images(3, 16, 16))
    assert known.seconds > 0
    assert times == ["begin", "end"]
