"""What generating takes, traced without transformers: a decoder of our own, against the same loop on real tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainauto.memory.tracing.live_module import CudaAutocastError
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.memory.tracing.trace import TraceError
from trainauto.tasks.text.generation_trace import Generation, GenerationTracer
from trainauto.tasks.text.traced_cost import TracedCost

WIDTH, WORDS = 16, 300
NONE = np.zeros(1, np.int64)


class Cache:
    """Keys and values of one layer, joined anew for every token."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], 1)
        self.values = values if self.values is None else torch.cat([self.values, values], 1)
        return self.keys, self.values

    def reorder_cache(self, order: Tensor) -> None:
        self.keys, self.values = self.keys.index_select(0, order), self.values.index_select(0, order)


class Decoder(nn.Module):
    """One layer of attention with a cache, called as Transformers' decoders are."""

    def __init__(self, keeps_cache: bool = True) -> None:
        super().__init__()
        self.embedding, self.mixed = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)
        self.keeps_cache = keeps_cache

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_key_values: Any = None, logits_to_keep: int = 0, **_: Any
    ) -> dict[str, Any]:
        cache = past_key_values or Cache()
        queries, keys, values = self.mixed(self.embedding(input_ids)).chunk(3, -1)
        keys, values = cache.update(keys, values)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values)
        logits = self.head(mixed[:, -logits_to_keep:])
        return {"logits": logits, "past_key_values": cache if self.keeps_cache else None}


class RenamedCache(Decoder):
    """The cache by its name since Transformers 5.24."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, cache: Any = None, logits_to_keep: int = 0, **_: Any
    ) -> dict[str, Any]:
        out = super().forward(input_ids, attention_mask, cache, logits_to_keep)
        return {"logits": out["logits"], "cache": out["past_key_values"]}


@torch.no_grad()
def generate(model: Decoder, ids: Tensor, mask: Tensor, new: int) -> Tensor:
    cache = logits = None
    for _ in range(new):
        out = model(ids if cache is None else ids[:, -1:], mask, cache, 1)
        cache = out["past_key_values"]
        logits = out["logits"][:, -1].to(copy=True, dtype=torch.float32)
        del out
        ids = torch.cat([ids, logits.argmax(-1)[:, None]], -1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], -1)
    return ids


@pytest.mark.parametrize(("samples", "tokens", "new"), [(4, 60, 2), (4, 5, 70), (3, 8, 1)])
def test_the_peak_is_that_of_the_same_loop_on_real_tensors(samples: int, tokens: int, new: int) -> None:
    model = Decoder()
    ids = torch.zeros(samples, tokens, dtype=torch.int64)
    mask = torch.ones_like(ids)
    generate(model, ids, mask, new)
    (events,) = profiled(lambda: generate(model, ids, mask, new))
    real = int(np.cumsum([ids.nbytes + mask.nbytes, *(e.size_bytes for e in events if e.is_tensor)]).max())
    traced = GenerationTracer(model, Generation(new)).trace(samples, tokens)
    assert traced.batch_bytes == pytest.approx(real, rel=0.03)
    assert traced.held_bytes == sum(weight.nbytes for weight in model.parameters())
    assert (traced.last.peak_bytes > traced.first.peak_bytes) == (new == 70)


def test_a_cache_goes_by_the_name_that_the_model_gives_it() -> None:
    model, renamed = Decoder(), RenamedCache()
    renamed.load_state_dict(model.state_dict())
    traces = [GenerationTracer(m, Generation(9)).trace(3, 8) for m in (model, renamed)]
    assert traces[0].batch_bytes == traces[1].batch_bytes


def test_every_beam_is_a_row_and_the_cache_is_reordered() -> None:
    model = Decoder()
    greedy = GenerationTracer(model, Generation(50)).trace(4, 8).batch_bytes
    wide = GenerationTracer(model, Generation(50)).trace(12, 8).batch_bytes
    beams = GenerationTracer(model, Generation(50, beams=3)).trace(4, 8).batch_bytes
    assert beams > wide > 2 * greedy


def test_cost_of_generation_grows_with_everything_and_is_that_of_a_trace() -> None:
    model = Decoder()
    cost = TracedCost.of_generation(model, Generation(20), 64)
    samples, longest = np.meshgrid([1, 2, 7, 30], [0, 1, 8, 9, 16, 64, 500], indexing="ij")
    costs = cost.cost(samples, longest, NONE)
    assert costs.dtype == np.int64
    assert (np.diff(costs, axis=0) > 0).all()
    assert (np.diff(costs, axis=1) >= 0).all()
    assert costs[3, 6] == GenerationTracer(model, Generation(20)).trace(30, 500).batch_bytes
    assert 1 < cost.margin(0.025) < cost.margin(0.001) < 1.1
    assert cost.held_bytes == sum(weight.nbytes for weight in model.parameters())
    with pytest.raises(ValueError, match="probability"):
        cost.margin(0.0)


def test_what_cannot_be_traced_is_said() -> None:
    with pytest.raises(TraceError, match="without a cache"):
        GenerationTracer(Decoder(keeps_cache=False), Generation(3)).trace(1, 4)
    with pytest.raises(ValueError, match="at least one new token"):
        GenerationTracer(Decoder(), Generation(0))
    tracer = GenerationTracer(Decoder(), Generation(3))
    with pytest.raises(ValueError, match="at least 1"):
        tracer.trace(1, 0)
    torch.set_autocast_enabled("cuda", True)
    try:
        with pytest.raises(CudaAutocastError):
            tracer.trace(1, 4)
    finally:
        torch.set_autocast_enabled("cuda", False)
