"""Workspaces of CUDA's libraries: their size, and where a traced step has them."""

import pytest
import torch

from trainauto.memory.fake import fake_world
from trainauto.memory.trace import Trace, trace
from trainauto.memory.workspaces import CUBLAS_CONFIG, cublas_workspace_bytes

MIB = 2**20


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


def traced(*, multiplies: bool, trains: bool = True, workspace_bytes: int | None, steps: int = 1) -> Trace:
    with fake_world():
        weight = torch.ones(64, 64, requires_grad=True)

        def step() -> None:
            weight.grad = None
            with torch.set_grad_enabled(trains):
                out = (weight @ weight if multiplies else weight * weight).sum()
            if trains:
                out.backward()

        return trace(step, steps=steps, workspace_bytes=workspace_bytes)


@pytest.mark.parametrize("steps", [1, 2])
def test_forward_and_backward_have_one_each_through_the_whole_step(steps: int) -> None:
    without = traced(multiplies=True, workspace_bytes=None, steps=steps)
    found = traced(multiplies=True, workspace_bytes=8 * MIB, steps=steps)
    assert found.persistent_bytes == without.persistent_bytes + 16 * MIB
    assert found.peak_bytes == without.peak_bytes + 16 * MIB
    assert found.held_bytes == without.held_bytes + 16 * MIB
    assert len(found.events) == len(without.events)
    for phase, peak in without.phase_peaks_bytes.items():
        assert found.phase_peaks_bytes[phase] == peak + 16 * MIB
    assert found.reserved_bytes(expandable=False) >= without.reserved_bytes(expandable=False) + 16 * MIB


def test_only_where_there_is_a_product() -> None:
    without, forward = (traced(multiplies=product, trains=False, workspace_bytes=8 * MIB) for product in (False, True))
    assert forward.persistent_bytes == without.persistent_bytes + 8 * MIB
    assert traced(multiplies=False, workspace_bytes=8 * MIB).persistent_bytes == without.persistent_bytes


@pytest.mark.parametrize(("transposed", "copies"), [(False, 0), (True, 1)])
def test_reflection_pad_works_on_a_copy_of_what_is_not_contiguous(transposed: bool, copies: int) -> None:
    def sizes(workspace_bytes: int | None) -> list[int]:
        with fake_world():
            image = torch.ones(1, 3, 64, 64)
            image = image.transpose(2, 3) if transposed else image

            def step() -> None:
                torch.nn.functional.pad(image, (1, 1, 1, 1), mode="reflect")

            return [event.size_bytes for event in trace(step, steps=1, workspace_bytes=workspace_bytes).events]

    copy = 3 * 64 * 64 * 4
    assert sizes(None).count(copy) == 0
    assert sizes(8 * MIB).count(copy) == sizes(0).count(copy) == copies  # also where cuBLAS may take nothing
    assert sizes(8 * MIB)[:copies] == [copy] * copies  # before the result, and freed after it
    assert sizes(8 * MIB).count(0) == sizes(None).count(0) + copies


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

        found = trace(step, steps=6, held=[layer], ends_early=True, workspace_bytes=8 * MIB)
    assert steps == 1
    assert found.persistent_bytes == 16 * MIB + 2 * 64 * 64 * 4
