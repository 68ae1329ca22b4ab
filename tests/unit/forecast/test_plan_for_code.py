"""Plans for code: what its steps take on a card, asked of a live module or of what makes it (in this process)."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import trainauto
from tests.traced_networks import PLAN, loaded, write_traced_options
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.forecast.card_plan import chosen_cards
from trainauto.forecast.code_plans import plan_code
from trainauto.forecast.plan_memory import memory_of
from trainauto.forecast.plan_request import PlanRequest
from trainauto.forecast.traced_code import CodeTracer
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.cuda_allocator.allocator import AllocationEvent
from trainauto.memory.tracing.cuda_in_thread import as_on_cuda
from trainauto.memory.tracing.libraries import card_libraries, cublas_workspace_bytes
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.storage_tracker import LiveStorages
from trainauto.memory.tracing.trace import Trace, TraceError
from trainauto.tasks.sr.archs import ARCHS

IDS = {"ids": ("batch", "tokens", torch.int64)}
BOUNDS = {"tokens": (8, 256)}
PLACE = Plan.of(batch_size=4, tokens=32)
WIDTH, WORDS = 32, 50
GIB = 2**30


class Reader(nn.Module):
    """Counts its calls in a buffer, and keeps what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)
        self.register_buffer("calls", torch.zeros(1))
        self.kept: Tensor | None = None

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        self.kept = self.layer(self.embedding(ids))
        return self.head(self.kept)


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["ids"].flatten())


def peak(model: Any = Reader, loss: Any = loss_of, optimizer: Any = "SGD", plan: Plan = PLACE) -> int:
    return CodeTracer(PlanRequest(model, loss, IDS, optimizer, BOUNDS)).trace(plan).peak_bytes


def test_a_live_module_stays_as_it_is_and_is_planned_for_a_card() -> None:
    model = Reader()
    adam = torch.optim.AdamW(model.parameters(), lr=0.1)
    before, random_state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    answer = trainauto.plan(model, loss_of, IDS, optimizer=adam, bounds=BOUNDS, card="RTX 4090 24GB")
    assert model.kept is None
    assert not adam.state
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.values(), strict=True))
    assert answer.preset.name == "RTX 4090 24GB"
    assert answer.plan is not None
    assert answer.plan["tokens"] == 256
    assert 0 < answer.expected_bytes < answer.most_bytes <= answer.target_bytes
    assert answer.expected_bytes <= answer.reserved_bytes <= answer.limit_bytes
    assert "tokens is at its bound 256" in answer.reason
    assert [plan.size for plan in answer.frontier][:2] == [8, 9]
    small = trainauto.plan(Reader, loss_of, IDS, optimizer=None, bounds=BOUNDS, vram="1GiB", target_vram_usage=0.5)
    whole = trainauto.PlanRequest(Reader, loss_of, IDS, None, BOUNDS, 0.5)
    assert trainauto.plan(whole, vram="1GiB") == small
    assert small.target_bytes == 2**29
    assert small.most_bytes <= 2**29


def test_the_peak_is_that_of_a_real_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, where the CPU keeps what a card keeps; workspaces and buffers of a card's kernels come on top.

    Attention writes its weights out: fused kernels of CPU and card differ.
    """

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return loss_of(model, batch)

    with_buffers = peak(loss=loss, optimizer=torch.optim.SGD)
    monkeypatch.setattr(LiveStorages, "_run_kernel", lambda live, _, out: live._see_all((out,), is_output=True))
    model = Reader()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)

    def step() -> None:
        sgd.zero_grad()
        loss(model, {"ids": torch.zeros(4, 32, dtype=torch.int64)}).backward()
        sgd.step()

    step()
    model.kept = None
    before, events = profiled(step, step)
    live = top = sum(event.size_bytes for event in before if event.is_tensor)  # what is kept from step to step
    for event in events:
        live += event.size_bytes if event.is_tensor else 0
        top = max(top, live)
    real = top + sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    workspaces = 2 * card_libraries().cublas_bytes
    without = peak(loss=loss, optimizer=torch.optim.SGD)
    assert without - workspaces == pytest.approx(real, rel=2e-3)
    assert with_buffers > without  # of attention, above all


def test_one_that_is_made_takes_what_a_live_one_does_and_no_memory() -> None:
    assert peak(Reader()) == peak(Reader)
    held = CodeTracer(PlanRequest(lambda: nn.Linear(2**18, 2**18), _mean, ("batch", 2**18), "SGD"))
    assert held.trace(Plan.of(batch_size=1)).persistent_bytes > 4 * 2**36  # a quarter of a TiB, nowhere to be had

    class Computed(Reader):
        def __init__(self) -> None:
            super().__init__()
            self.scale = float(self.head.weight.detach().numpy().std())
            assert 0 < self.scale < 1

    assert peak(Computed) == peak(Reader)


def test_what_steps_is_what_is_traced() -> None:
    weights_bytes = 4 * sum(weight.numel() for weight in Reader().parameters())
    requests = {
        kind: PlanRequest(Reader, loss_of, IDS, kind, BOUNDS) for kind in (None, "SGD", "AdamW", torch.optim.Adam)
    }
    held = {kind: CodeTracer(request).trace(PLACE).persistent_bytes for kind, request in requests.items()}
    assert held["AdamW"] - held["SGD"] == pytest.approx(2 * weights_bytes, rel=1e-2)
    assert held["AdamW"] == held[torch.optim.Adam]
    assert peak(optimizer=None) < peak()
    live = Reader()
    amsgrad = torch.optim.AdamW(live.parameters(), amsgrad=True)
    request = PlanRequest(live, loss_of, IDS, amsgrad, BOUNDS)
    assert CodeTracer(request).trace(PLACE).persistent_bytes - held["AdamW"] == pytest.approx(weights_bytes, rel=1e-2)


def test_frozen_weights_have_neither_gradients_nor_state() -> None:
    """As of an adapter: whatever the optimizer was given."""

    def frozen() -> Reader:
        model = Reader()
        model.requires_grad_(False)
        model.head.requires_grad_(True)
        return model

    live = frozen()
    both = [
        PlanRequest(live, loss_of, IDS, torch.optim.AdamW(live.parameters()), BOUNDS),
        PlanRequest(frozen, loss_of, IDS, "AdamW", BOUNDS),
    ]
    held = [CodeTracer(request).trace(PLACE).persistent_bytes for request in both]
    trained_bytes = 4 * sum(weight.numel() for weight in Reader().head.parameters())
    model_bytes = sum(tensor.nbytes for tensor in (*live.parameters(), *live.buffers()))
    assert held[0] == held[1]
    assert held[0] - model_bytes - 2 * card_libraries().cublas_bytes == pytest.approx(2 * trained_bytes, rel=1e-2)


def test_mixed_precision_of_a_card_is_followed_without_one() -> None:
    def half(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return loss_of(model.to("cuda"), {name: tensor.cuda() for name, tensor in batch.items()})

    large = Plan.of(batch_size=16, tokens=128)
    workspaces = 2 * card_libraries().cublas_bytes
    assert peak(loss=half, plan=large) - workspaces < 0.8 * (peak(plan=large) - workspaces)


def test_what_a_card_keeps_is_what_counts() -> None:
    """A mask of dropout is a byte an element there, and four on a CPU."""

    def held(dropout: float) -> int:
        layers = nn.Sequential(nn.Linear(8, 8), *(nn.Dropout(dropout) for _ in range(4)))
        request = PlanRequest(layers, _mean, ("batch", 8), "SGD")
        return CodeTracer(request).trace(Plan.of(batch_size=2**14)).peak_bytes

    numbers = 8 * 2**14
    assert held(0.5) - held(0.0) < 10 * numbers  # 8 as on CUDA, 20 otherwise


def test_named_scalars_are_summed() -> None:
    def terms(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        loss = loss_of(model, batch)
        return {"words": loss, "length": 0.1 * loss}

    assert peak(loss=terms) == pytest.approx(peak(), rel=1e-3)


def test_a_network_of_an_option_file_takes_the_same_as_code(tmp_path: Path) -> None:
    changes = {"train": {"ema_decay": 0.0}, "network_g": {"type": "compact", "num_feat": 16, "num_conv": 3}}
    run = FakeRun.of(loaded(write_traced_options(tmp_path, **changes)), like_cuda=True)
    request = PlanRequest(
        lambda: ARCHS.get("compact")(num_feat=16, num_conv=3, scale=2),
        lambda model, batch: functional.l1_loss(model(batch["lq"].float().div_(255)), batch["gt"].float().div_(255)),
        {"lq": ("batch", 3, "lq_size", "lq_size", torch.uint8), "gt": ("batch", 3, *2 * ["2*lq_size"], torch.uint8)},
        torch.optim.Adam,
        {"lq_size": (8, 64)},
    )
    code = CodeTracer(request)
    for plan in (PLAN, Plan.of(batch_size=8, lq_size=64)):
        with as_on_cuda():
            traced = run.trace(plan)
        assert code.trace(plan).peak_bytes == pytest.approx(traced.peak_bytes, rel=0.01)
        assert code.trace(plan).reserved_bytes == pytest.approx(
            traced.needed_bytes(expandable=True).least_bytes, rel=0.01
        )


def _mean(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).mean()


def _vector(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch["ids"])


def _nothing(*_: Any) -> None:
    return None


def _constant(*_: Any) -> Tensor:
    return torch.zeros(())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": _vector}, r"has to return a scalar: a tensor of \(4, 32, 50\)\n  Return loss.mean\(\)"),
        ({"loss": lambda *given: {"words": _vector(*given)}}, r"'words' is a tensor of \(4, 32, 50\)"),
        ({"loss": _nothing}, "has to return a scalar: a NoneType"),
        ({"loss": lambda *_: {}}, "returned no loss"),
        ({"loss": _constant}, "does not follow from weights of the model"),
        ({"optimizer": "AdamWW"}, "torch.optim has no 'AdamWW'. Did you mean 'AdamW'?"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, "the optimizer at hand steps no model that is yet to be"),
        (
            {"optimizer": lambda weights: torch.optim.SGD(weights, lr=-1)},
            "making the optimizer failed: ValueError: Inv",
        ),
        ({"model": lambda: Reader().requires_grad_(False)}, "making the optimizer failed: ValueError: .*empty"),
        ({"model": lambda: 3}, r"the model is a int, not a torch.nn.Module"),
        ({"model": lambda: 1 // 0}, "making the model failed: ZeroDivisionError: .*test_plan_for_code.py:"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_to_do(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        peak(**changes)


def test_a_loss_that_calls_the_live_model_is_refused_and_leaves_it_alone() -> None:
    model = Reader()
    with pytest.raises(TraceError, match="a loss calls a model that it was not given"):
        peak(model, lambda _, batch: loss_of(model, batch))
    assert all(weight.grad is None for weight in model.parameters())
    assert model.kept is None
    assert loss_of(model, {"ids": torch.zeros(1, 2, dtype=torch.int64)}).item() > 0


def test_a_step_that_fails_names_its_place() -> None:
    with pytest.raises(TraceError, match=r"KeyError: 'labels', at test_plan_for_code.py:\d+"):
        peak(loss=lambda model, batch: loss_of(model, batch) + batch["labels"])


def test_a_model_that_is_nowhere_near_fits_nowhere() -> None:
    answer = trainauto.plan(
        lambda: nn.Linear(2**17, 2**17), _mean, ("batch", 2**17), bounds={"batch": (1, 4)}, card="T4"
    )
    assert answer.plan is None
    assert "batch_size 1 may need" in answer.reason


def test_what_is_chosen_was_traced_itself() -> None:
    """Where the fit of six plans is off by a per cent: backward has a kink of its own."""
    request = PlanRequest(Reader, loss_of, IDS, "AdamW", {"tokens": (8, 256), "batch": (1, 3000)})
    answer = plan_code(request, chosen_cards([], [2 * GIB]))
    (card,) = answer.cards
    assert card.plan is not None
    assert len(answer.forecast.traced) > 6
    traced = CodeTracer(request).trace(card.plan)
    small, none = plan_code(request, chosen_cards([], [GIB, int(0.69 * GIB)])).cards  # CUDA's own leaves 324 and 6 MiB
    assert small.plan is not None
    assert CodeTracer(request).trace(small.plan).reserved_bytes <= small.reserved_bytes < 324 * 2**20
    assert none.plan is None
    assert "may have to reserve" in none.reason
    expected = answer.forecast.live.bytes(card.plan.batch_size, card.plan.size)
    assert expected == pytest.approx(traced.peak_bytes, rel=1e-2)  # attention's workspaces are tiles of 64 rows
    assert expected > 0.999 * traced.peak_bytes


def test_the_call_says_what_it_takes() -> None:
    with pytest.raises(TypeError, match=r"plan\(model, loss, shapes, card=...\)"):
        trainauto.plan(Reader(), card="T4")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="name a card"):
        trainauto.plan(Reader(), loss_of, IDS, bounds=BOUNDS)
    with pytest.raises(InputError, match=r"target_vram_usage is 1\.5"):
        PlanRequest(Reader, loss_of, IDS, bounds=BOUNDS, target_vram_usage=1.5)


def test_a_card_counts_the_workspaces_that_cublas_takes_there() -> None:
    """Steps are traced for the newest of the cards; what others take less is taken off (issue 42)."""

    def expected(*cards: str) -> list[int]:
        request = trainauto.PlanRequest(Reader, loss_of, IDS, None, {"batch": (4, 4), "tokens": (32, 32)})
        answer = plan_code(request, chosen_cards(cards, []))
        return [card.expected_bytes for card in answer.cards]

    (ada,), (hopper,) = expected("RTX 4090"), expected("H100")
    of_forward = cublas_workspace_bytes((9, 0)) - cublas_workspace_bytes((8, 9))  # inference has no backward's
    assert hopper - ada == pytest.approx(of_forward, rel=0.05)
    assert expected("RTX 4090", "H100") == pytest.approx([ada, hopper], rel=0.01)


def test_cards_on_which_attention_takes_other_kernels_are_planned_for_apart() -> None:
    """A T4 has no attention in bfloat16 that does without the matrix of weights; what another card has is not its."""

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        rows = model(batch["rows"]).view(len(batch["rows"]), -1, 4, 64).transpose(1, 2)
        return functional.scaled_dot_product_attention(rows, rows, rows).float().mean()

    def plans(*cards: str) -> list[tuple[Plan | None, int]]:
        shapes = {"rows": ("batch", 2048, 256, torch.bfloat16)}
        request = trainauto.PlanRequest(
            lambda: nn.Linear(256, 256, dtype=torch.bfloat16), loss, shapes, "SGD", {"batch": (1, 64)}
        )
        return [(card.plan, card.expected_bytes) for card in plan_code(request, chosen_cards(cards, [])).cards]

    (older,), (newer,) = plans("T4"), plans("H100")
    assert plans("T4", "H100") == [older, newer]
    assert older[1] > 5 * newer[1]


@pytest.mark.parametrize(
    "reads", [lambda: int(torch.rand(4).argmax()), lambda: [float(torch.rand(1)) for _ in range(301)]]
)
def test_constructors_may_read_what_they_draw(reads: Callable[[], object]) -> None:
    class Drawn(nn.Linear):
        def __init__(self) -> None:
            super().__init__(64, 64, device="cuda")  # real, it would fail here
            reads()

    assert CodeTracer(PlanRequest(Drawn, _mean, ("batch", 64), "SGD")).trace(Plan.of(batch_size=8)).peak_bytes > 0


def test_a_construction_on_the_card_is_where_its_runs_begin() -> None:
    """Weights that are tied after they were made leave a block in the cache; made on the CPU they leave none."""

    class Tied(nn.Module):
        def __init__(self, device: str) -> None:
            super().__init__()
            self.words, self.head = (nn.Linear(1024, 4096, bias=False, device=device) for _ in range(2))
            self.head.weight = self.words.weight

        def forward(self, rows: Tensor) -> Tensor:
            return self.head(rows)

    def before(device: str) -> list[int]:
        tracer = CodeTracer(PlanRequest(lambda: Tied(device), _mean, ("batch", 1024), "SGD"))
        found = tracer.step_trace(Plan.of(batch_size=8))
        needed = found.needed_bytes(expandable=False)
        assert needed.reserved_bytes >= needed.allocated_bytes >= found.peak_bytes
        return [event.size_bytes for event in found.before]

    weight = 1024 * 4096 * 4
    there, elsewhere = before("cuda"), before("cpu")
    assert there.count(weight) == elsewhere.count(weight) + 1
    assert (there.count(0), elsewhere.count(0)) == (1, 0)


def test_a_plan_says_what_either_kind_of_segments_takes_and_keeps_its_trace(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    bounds = {"batch": (1, 4096)}
    answer = trainauto.plan(model, _mean, ("batch", 512), bounds=bounds, vram="1GiB")
    memory = answer.memory
    assert memory is not None
    assert (memory.plan, memory.available_bytes) == (answer.plan, answer.available_bytes)
    assert memory.allocated.expected_bytes == pytest.approx(answer.expected_bytes, rel=0.002)
    assert max(memory.trace.phase_peaks_bytes.values()) == memory.trace.peak_bytes <= memory.allocated.expected_bytes
    for reserved in memory.reserved.values():
        assert memory.allocated.expected_bytes <= reserved.least.expected_bytes <= reserved.unlimited.expected_bytes
        assert reserved.unlimited.expected_bytes < reserved.unlimited.most_bytes
        assert reserved.on_card_bytes == pytest.approx(reserved.unlimited.expected_bytes, rel=0.01)  # there is room
        assert not reserved.flushes
    memory.trace.write(tmp_path / "step.json")
    assert Trace.read(tmp_path / "step.json") == memory.trace
    assert {holder.module for holder in memory.trace.held_at_peak.holders if holder.kind == "weights"} == {
        "Sequential.*"
    }


@pytest.mark.parametrize(
    ("available", "expected"), [(64 * MIB, (None, False)), (72 * MIB, (72 * MIB, True)), (76 * MIB, (76 * MIB, False))]
)
def test_with_little_memory_steps_flush_the_cache_or_fail(available: int, expected: tuple[int | None, bool]) -> None:
    sizes = [(1, 11), (2, 11), (3, 15), (4, 15), (2, 0), (5, 20), (3, 0), (4, 0), (5, 0), (1, 0)]
    step = Trace(0, 52 * MIB, {"forward": 52 * MIB}, (), tuple(AllocationEvent(ident, n * MIB) for ident, n in sizes))
    found = memory_of(PLAN, step, "plain", available, "native").reserved["native"]
    assert (found.on_card_bytes, found.flushes) == expected
