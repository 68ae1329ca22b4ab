"""Real modules in a world of fake tensors, and operators whose outcome is known from an earlier call."""

import copy
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer

from trainauto.memory.tracing import op_cache
from trainauto.memory.tracing.fake_tensors import as_fake, fake_world, warm_up
from trainauto.memory.tracing.host_reads import AnsweredReads, ConstantReads


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))


def test_a_world_leaves_the_names_of_torch_alone() -> None:
    """``torch.device`` looks them up once, in the first call within one: others would be left out for good."""
    warm_up()  # modules of torch are names in it, once they are loaded
    before = vars(torch).copy()
    with fake_world(), torch.device("meta"):
        assert vars(torch) == before
        assert torch.tensor([1]).device.type == "meta"


def test_conversion_keeps_parameters_the_same_objects() -> None:
    with fake_world():
        module = Tied()
        sgd = torch.optim.SGD(module.parameters(), lr=0.1)
        module.to(torch.device("cuda", 0), torch.float16)
        assert module.head.weight is module.embedding.weight
        assert any(one is module.embedding.weight for one in sgd.param_groups[0]["params"])
        assert {one.device.type for one in (*module.parameters(), *module.buffers())} == {"cuda"}
        assert module.head.weight.dtype == torch.float16
        assert module.seen.dtype == torch.int64
        convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        assert convolution.weight.stride() == (27, 1, 9, 3)


def test_copies_are_modules_of_their_own() -> None:
    with fake_world():
        module = Tied()
        other = copy.deepcopy(module)
        assert [name for name, _ in other.named_parameters()] == [name for name, _ in module.named_parameters()]
        assert other.head.weight is other.embedding.weight
        assert isinstance(other.head.weight, nn.Parameter)
        assert not other.frozen.requires_grad
        assert other.head.weight.untyped_storage()._cdata != module.head.weight.untyped_storage()._cdata


def test_the_world_leaves_nothing_behind() -> None:
    before = nn.Module._apply
    with fake_world():
        assert nn.Module._apply is not before
    assert nn.Module._apply is before
    assert "__deepcopy__" not in vars(FakeTensor)
    assert FakeTensor not in optimizer._foreach_supported_types
    assert nn.Linear(2, 2).double().weight.dtype == torch.float64


def test_a_real_module_becomes_fake() -> None:
    module = Tied()
    with fake_world() as mode:
        fake = as_fake(module, mode)
        assert fake.head.weight is fake.embedding.weight
        fake.head(fake.embedding(torch.zeros(5, dtype=torch.int64))).sum().backward()
    assert all(isinstance(one, FakeTensor) for one in (*fake.parameters(), *fake.buffers()))
    assert not any(isinstance(one, FakeTensor) for one in module.parameters())


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_optimizers_group_fake_tensors_as_they_do_real_ones(device: str) -> None:
    """On a GPU Adam takes all tensors at once by default, which needs a copy of the weights more."""
    with fake_world():
        parameters = [nn.Parameter(torch.empty(3, device=device))]
        assert optimizer._default_to_fused_or_foreach(parameters, differentiable=False) == (False, device != "cpu")


OPERATORS: dict[str, Callable[[Tensor], Any]] = {
    "view": lambda x: x.view(6, -1),
    "transposed": lambda x: x.transpose(1, 2),
    "unbind": lambda x: x.unbind(1),
    "split": lambda x: x.split([1, 2], 1),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1, -1),
    "slice": lambda x: x[..., 2:, ::2],
    "unsafe view": lambda x: x.transpose(0, 1) @ torch.ones(8, 3),
    "type promotion": lambda x: (x > 0) * 2.5,
    "whole numbers": lambda x: x.argmax(-1) + 1,
    "clone keeps strides": lambda x: x.transpose(1, 3).clone(),
    "a view in place": lambda x: x.clone().transpose_(1, 2).unsqueeze_(0),
    "written in place": lambda x: x.clone().mul_(2).clamp_(0, 1),
    "contiguous": lambda x: x.transpose(1, 3).contiguous(),
    "concatenation": lambda x: torch.cat([x, x.to(memory_format=torch.channels_last)], 1),
    "convolution": lambda x: F.conv2d(x, torch.ones(5, 3, 3, 3)),
    "channels last": lambda x: F.conv2d(x.to(memory_format=torch.channels_last), torch.ones(5, 3, 3, 3)),
    "several results": lambda x: x.topk(2),
    "normalisation": lambda x: F.layer_norm(x, (8,)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "complex": lambda x: torch.fft.rfft2(x).abs(),
    "pooling": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "an empty result": lambda x: x[:0],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_known_outcomes_are_those_of_fake_tensors(name: str) -> None:
    def described() -> list[Any]:
        x = torch.empty(2, 3, 6, 8)
        out = OPERATORS[name](x)
        results = list(out) if isinstance(out, list | tuple) else [out]
        shared = [r.untyped_storage()._cdata == x.untyped_storage()._cdata for r in results]
        return shared + [
            (type(out), r.shape, r.stride(), r.storage_offset(), r.dtype, r.device, r.untyped_storage().nbytes())
            for r in results
        ]

    with FakeTensorMode():
        expected = described()
    with fake_world(), AnsweredReads():
        first, again = described(), described()
    assert first == expected
    assert again == expected


def test_constructors_read_what_follows_from_constants() -> None:
    """Rates of stochastic depth, and a sum that is written into; what follows from drawn weights is 0, as ever."""
    with fake_world(), ConstantReads():
        rates = [rate.item() for rate in torch.linspace(0, 0.3, 4)]
        table = torch.zeros(3, dtype=torch.long)
        table[1] += 5
        heads = table.tolist()
        assert torch.tensor([0.1, 0.2]).cumsum(0).tolist() == pytest.approx([0.1, 0.3])
        assert torch.zeros_like(torch.empty(10**7, 10**6)).shape == (10**7, 10**6)  # makes no real one
        assert not torch.empty(4).normal_().max().item()
        table.copy_(torch.empty(3))
        assert not table[1].item()
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3])
    assert heads == [0, 5, 0]


def test_views_of_known_outcomes_share_the_storage_of_this_call() -> None:
    with fake_world(), AnsweredReads():
        storages = []
        for _ in range(2):
            x = torch.empty(4, 4)
            assert x.t().untyped_storage()._cdata == x.untyped_storage()._cdata
            storages.append(x)
        assert storages[0].untyped_storage()._cdata != storages[1].untyped_storage()._cdata


def test_an_equal_call_is_not_run_again() -> None:
    with fake_world(), AnsweredReads():
        op_cache._known.clear()
        for _ in range(3):
            torch.empty(3, 5) @ torch.empty(5, 2)
        assert len(op_cache._known) == 1
        torch.empty(3, 6) @ torch.empty(6, 2)
        torch.empty(3, 5, dtype=torch.float64) @ torch.empty(5, 2, dtype=torch.float64)
        assert len(op_cache._known) == 3
        assert (torch.empty(3, 5) * 2).dtype != (torch.empty(3, 5) * 2j).dtype
        assert (torch.empty(3, 5) > 1).dtype == torch.bool


def test_a_second_thread_waits_for_its_turn() -> None:
    """Each takes back what it changed in torch; interleaved, the later one would leave the other's behind."""
    before, order = (nn.Module._apply, hasattr(FakeTensor, "__deepcopy__")), []
    opened, waited = threading.Event(), threading.Event()

    def first() -> None:
        with fake_world():
            opened.set()
            waited.wait(0.1)
            order.append("first")

    def second() -> None:
        with fake_world():
            waited.set()
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert opened.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]
    assert (nn.Module._apply, hasattr(FakeTensor, "__deepcopy__")) == before


def test_an_operator_that_refuses_its_shapes_is_not_logged_besides(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "handlers", [caplog.handler])
    for world, lines in ((FakeTensorMode(), 1), (fake_world(), 0)):
        caplog.clear()
        with world, pytest.raises(RuntimeError, match="too small"):
            F.avg_pool2d(torch.empty(1, 1, 2, 2), 5)
        assert len(caplog.records) == lines
