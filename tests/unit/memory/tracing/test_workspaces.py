"""Workspaces of CUDA's libraries: their size, and where a traced step has them."""

from typing import Any

import pytest
import torch

from trainauto.memory.cuda_allocator.steps import repeated
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.libraries import CUBLAS_CONFIG, Libraries, cublas_workspace_bytes
from trainauto.memory.tracing.trace import Trace, trace

MIB = 2**20
CARD = Libraries(8 * MIB)


@pytest.mark.parametrize(
    ("setting", "capability", "expected"),
    [
        (None, None, 8_519_680),
        (None, (8, 6), 8_519_680),
        (None, (9, 0), 33_554_432),
        (None, (12, 0), 33_554_432),
        (":4096:8", (8, 0), 32 * MIB),
        (":16:8", (9, 0), 128 * 1024),
        (":4096:2:16:8", (9, 0), 8_519_680),
        (":0:0", (8, 0), 0),
        ("nonsense", (8, 0), 8_519_680),
    ],
)
def test_size(
    setting: str | None, capability: tuple[int, int] | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CUBLAS_CONFIG, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if setting is not None:
        monkeypatch.setenv(CUBLAS_CONFIG, setting)
    assert cublas_workspace_bytes(capability) == expected


def traced(*, multiplies: bool, trains: bool = True, libraries: Libraries | None, steps: int = 1) -> Trace:
    with fake_world():
        weight = torch.ones(64, 64, requires_grad=True)

        def step() -> None:
            weight.grad = None
            with torch.set_grad_enabled(trains):
                out = (weight @ weight if multiplies else weight * weight).sum()
            if trains:
                out.backward()

        return trace(step, steps=steps, libraries=libraries)


@pytest.mark.parametrize("steps", [1, 2])
def test_forward_and_backward_have_one_each_through_the_whole_step(steps: int) -> None:
    without = traced(multiplies=True, libraries=None, steps=steps)
    found = traced(multiplies=True, libraries=CARD, steps=steps)
    assert found.persistent_bytes == without.persistent_bytes + 16 * MIB
    assert found.peak_bytes == without.peak_bytes + 16 * MIB
    assert found.held_bytes == without.held_bytes + 16 * MIB
    assert len(found.events) == len(without.events)
    for phase, peak in without.phase_peaks_bytes.items():
        assert found.phase_peaks_bytes[phase] == peak + 16 * MIB
    assert found.reserved_bytes(expandable=False) >= without.reserved_bytes(expandable=False) + 16 * MIB


def test_only_where_there_is_a_product() -> None:
    without, forward = (traced(multiplies=product, trains=False, libraries=CARD) for product in (False, True))
    assert forward.persistent_bytes == without.persistent_bytes + 8 * MIB
    assert traced(multiplies=False, libraries=CARD).persistent_bytes == without.persistent_bytes


@pytest.mark.parametrize(("transposed", "copies"), [(False, 0), (True, 1)])
def test_reflection_pad_works_on_a_copy_of_what_is_not_contiguous(transposed: bool, copies: int) -> None:
    def sizes(libraries: Libraries | None) -> list[int]:
        with fake_world():
            image = torch.ones(1, 3, 64, 64)
            image = image.transpose(2, 3) if transposed else image

            def step() -> None:
                torch.nn.functional.pad(image, (1, 1, 1, 1), mode="reflect")

            return [event.size_bytes for event in trace(step, steps=1, libraries=libraries).events]

    copy = 3 * 64 * 64 * 4
    assert sizes(None).count(copy) == 0
    assert sizes(CARD).count(copy) == sizes(Libraries(0)).count(copy) == copies  # also where cuBLAS may take nothing
    assert sizes(CARD)[1 : 1 + copies] == [copy] * copies  # after the result
    assert sizes(CARD).count(0) == sizes(None).count(0) + copies


def test_a_step_that_leaves_what_it_found_ends_the_trace_also_with_workspaces() -> None:
    steps = 0
    with fake_world():
        layer = torch.nn.Linear(64, 64, bias=False)
        layer.weight.grad = torch.zeros(64, 64)

        def step() -> None:
            nonlocal steps
            steps += 1
            layer.weight.grad = None
            layer(torch.ones(8, 64)).sum().backward()

        found = trace(step, steps=6, held=[layer], ends_early=True, libraries=CARD)
    assert steps == 1
    assert found.persistent_bytes == 16 * MIB + 2 * 64 * 64 * 4


def test_the_first_step_makes_the_optimizers_state_where_its_step_begins() -> None:
    """Before it, forward and backward have that room; profiled blocks of torch.optim hide no memory (issue 42)."""
    with fake_world():
        layer = torch.nn.Linear(64, 64, bias=False)
        adam = torch.optim.Adam(layer.parameters())

        def step() -> None:
            adam.zero_grad()
            layer(torch.ones(8, 64)).sum().backward()
            adam.step()

        found = trace(step, held=[layer, adam], libraries=CARD)
        again = {lazy: trace(step, held=[layer, adam], libraries=CARD, lazy_states=lazy).late for lazy in (False, True)}
    assert len(again[True]) == len(found.late)
    assert len(again[False]) == 2  # workspaces: the states were there before the run, as the engine makes them
    weight = 64 * 64 * 4
    places = [place for place, event in found.late if event.size_bytes == weight]
    assert len(places) == 2
    assert not found.hides_memory
    run = list(repeated(found.events, 2, found.initial, found.late))
    made = [number for number, event in enumerate(run) if event.size_bytes == weight]
    assert len([number for number in made if number < places[0]]) == 2  # weight and gradient
    assert found.workspaces_bytes == (8 * MIB, 8 * MIB)


FAST = Libraries(0, benchmark=True)


@pytest.mark.parametrize(
    ("convolution", "card", "working"),
    [
        ({}, FAST, True),
        ({"bias": False}, FAST, True),
        ({}, CARD, False),
        ({}, None, False),
        ({"stride": 2}, FAST, False),
        ({"dilation": 2, "padding": 2}, FAST, False),
        ({"groups": 4}, FAST, False),
        ({"dtype": torch.bfloat16}, FAST, False),
        ({"kernel_size": 1, "padding": 0}, FAST, False),
    ],
)
def test_in_benchmark_mode_plain_convolutions_work_in_room_of_their_own(
    convolution: dict[str, Any], card: Libraries | None, working: bool
) -> None:
    """Winograd's transforms of input, output and weights (F(4x4, 3x3), separate passes).

    Backward works in them once for the input's gradient and once for the weights'.
    """
    given = {"kernel_size": 3, "padding": 1, **convolution}
    with fake_world():
        layer = torch.nn.Conv2d(8, 16, **given)
        image = torch.ones(2, 8, 32, 32, dtype=given.get("dtype"), requires_grad=True)

        def step() -> None:
            layer(image).relu().sum().backward()  # the convolution's gradient needs no copy

        events = trace(step, steps=1, held=[layer], libraries=card).events
    room = 4 * (36 * 2 * (8 + 16) * 32 * 32 // 16 + 4 * 16 * 8 * 9)
    places = [number for number, event in enumerate(events) if event.size_bytes == room]
    assert len(places) == (3 if working else 0)
    for place in places:
        ident = events[place].ident
        assert [event.size_bytes for event in events if event.ident == ident] == [room, 0]


def test_a_convolution_without_padding_gives_less() -> None:
    with fake_world():
        layer, image = torch.nn.Conv2d(8, 16, 3), torch.ones(2, 8, 32, 32)
        events = trace(lambda: layer(image), steps=1, held=[layer], libraries=FAST).events
    room = 4 * (36 * 2 * (8 * 32 * 32 + 16 * 30 * 30) // 16 + 4 * 16 * 8 * 9)
    assert room in [event.size_bytes for event in events]
