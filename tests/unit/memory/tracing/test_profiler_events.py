"""What torch's profiler is asked for: every byte of a step, and which of them are tensors."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainauto.memory.tracing.phases import BACKWARD, OPTIMIZER
from trainauto.memory.tracing.profiler_events import REST, MemoryEvent, profiled

KIB = 1024


def test_calls_are_told_apart_and_later_ones_free_what_earlier_ones_made() -> None:
    kept: list[torch.Tensor] = []
    before = torch.empty(KIB, dtype=torch.uint8)
    made, freed = profiled(lambda: kept.append(torch.empty(4 * KIB, dtype=torch.uint8)), kept.clear)
    assert made == [MemoryEvent(4 * KIB, REST, is_tensor=True)]
    assert freed == [MemoryEvent(-4 * KIB, REST, is_tensor=True)]
    held = [before]
    del before
    assert profiled(held.clear) == [[]]  # nobody saw it being made


def test_what_an_operator_frees_itself_is_no_tensor_of_ours() -> None:
    """A convolution's reordered copies are its own; a tensor that lives for one line of Python is not."""
    kernel = nn.Conv2d(3, 8, 3)
    image = torch.ones(2, 3, 40, 40)

    def own() -> None:
        (image + 1).sum()

    (events,) = profiled(lambda: kernel(image))
    inside = [event for event in events if not event.is_tensor]
    assert sum(event.size_bytes for event in inside) == 0
    assert inside
    output_bytes = 4 * 2 * 8 * 38 * 38
    assert MemoryEvent(output_bytes, REST, is_tensor=True) in events
    (events,) = profiled(own)
    assert MemoryEvent(image.nbytes, REST, is_tensor=True) in events
    assert MemoryEvent(-image.nbytes, REST, is_tensor=True) in events


def test_intermediates_of_operators_made_of_others_are_tensors() -> None:
    """``einsum`` of a mode is several operators; what lies between them it sees."""
    a = torch.ones(64, 64)
    (events,) = profiled(lambda: torch.einsum("ij,jk,kl->il", a, a, a))
    assert [event.size_bytes for event in events if event.is_tensor] == [a.nbytes, a.nbytes, -a.nbytes, -a.nbytes]


def test_a_kernel_that_calls_its_own_operator_is_one() -> None:
    """``roll`` by two dimensions rolls by one, and then by the other."""
    a = torch.ones(64, 64)
    (events,) = profiled(lambda: a.roll((1, 1), (0, 1)))
    assert [event.size_bytes for event in events if event.is_tensor] == [a.nbytes, -a.nbytes]
    assert len(events) > 2


def test_what_autocast_makes_of_arguments_are_tensors() -> None:
    a = torch.ones(2, 64, 64)

    def product() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            torch.bmm(a, a)

    (events,) = profiled(product)
    casts = [event.size_bytes for event in events if event.is_tensor]
    assert casts == [a.nbytes // 2] * 3 + [-a.nbytes // 2] * 3


def test_phases_and_the_state_of_the_random_generator() -> None:
    layer = nn.Linear(64, 64)
    adam = torch.optim.Adam(layer.parameters())

    def step() -> None:
        adam.zero_grad()
        checkpoint(
            lambda x: layer(x).sin(), torch.ones(8, 64, requires_grad=True), use_reentrant=False
        ).sum().backward()
        adam.step()

    _, events = profiled(step, step)
    phases = {
        phase: [event.size_bytes for event in events if event.phase == phase and event.is_tensor]
        for phase in (REST, BACKWARD, OPTIMIZER)
    }
    assert 64 * 64 * 4 in phases[BACKWARD]  # the gradient of the weight
    assert 64 * 64 * 4 in phases[OPTIMIZER]
    assert -64 * 64 * 4 in phases[REST]  # that of the step before
    state_bytes = torch.get_rng_state().nbytes
    assert [e for e in events if e.size_bytes == state_bytes and not e.is_tensor]


def test_what_the_backward_pass_of_a_view_written_in_place_makes_are_tensors() -> None:
    """The node of such a view copies gradients by operators of torch's, and frees them itself."""
    weight = torch.ones(64, 64, requires_grad=True)

    def step() -> None:
        (weight * 2).view(4096).relu_().sum().backward()

    (events,) = profiled(step)
    assert all(event.is_tensor for event in events if abs(event.size_bytes) == weight.nbytes)
    assert sum(event.size_bytes == weight.nbytes and event.phase == BACKWARD for event in events) >= 4
