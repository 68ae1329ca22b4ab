"""Llama 3.1 8B on eight ranks (FSDP2), traced: beside what torchtitan published for H100s. No card is needed.

    python scripts/bench/sharded_llama.py

The step is torchtitan's of December 2024 (benchmarks/llama3_h100_202412_torchtitan.md, table 1): 2 x 8192 tokens a
rank, weights gathered in bfloat16 and gradients reduced in float32, AdamW, and selective checkpointing by operator:
every second product is kept, attention and communication always. It is neither compiled nor in float8. Prints JSON:
live bytes, what the allocator reserves, also by stream, and the processor's seconds of building and tracing.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

sys.path.insert(0, str(Path(__file__).parents[2]))

from trainauto.core.units import GIB
from trainauto.memory.cuda_allocator.allocator import CachingAllocator, replay
from trainauto.memory.cuda_allocator.steps import repeated
from trainauto.memory.tracing.cuda_operators import compute_as_cuda
from trainauto.memory.tracing.fake_tensors import fake_world, group_as_cuda
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.trace import Trace, trace

RANKS, BATCH, LENGTH = 8, 2, 8192
VOCABULARY, WIDTH, LAYERS, HEADS, GROUPS, HIDDEN = 128256, 4096, 32, 32, 8, 14336
PUBLISHED_GIB = 82.4
_aten = torch.ops.aten
KEPT = {
    _aten.mm.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


class Attention(nn.Module):
    """Grouped attention with rotary positions, in complex numbers of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.side = WIDTH // HEADS
        self.wq, self.wo = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk, self.wv = (nn.Linear(WIDTH, GROUPS * self.side, bias=False) for _ in range(2))

    def forward(self, hidden: Tensor, turns: Tensor) -> Tensor:
        """Map (N, tokens, width) to the same."""
        batch, length, _ = hidden.shape
        query, key, value = (layer(hidden).view(batch, length, -1, self.side) for layer in (self.wq, self.wk, self.wv))
        query, key = _turned(query, turns), _turned(key, turns)
        key, value = (
            one[:, :, :, None, :].expand(-1, -1, -1, HEADS // GROUPS, -1).reshape(batch, length, HEADS, self.side)
            for one in (key, value)
        )
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.wo(seen.transpose(1, 2).contiguous().view(batch, length, -1))


def _turned(tensor: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(tensor.float().reshape(*tensor.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None, :]).flatten(3).type_as(tensor)


class Block(nn.Module):
    """Attention and a gated feed-forward layer, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.w1, self.w3 = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.before_attention, self.before_layer = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)

    def forward(self, hidden: Tensor, turns: Tensor) -> Tensor:
        """Map (N, tokens, width) to the same."""
        hidden = hidden + self.attention(self.before_attention(hidden), turns)
        normal = self.before_layer(hidden)
        return hidden + self.w2(functional.silu(self.w1(normal)) * self.w3(normal))


class Llama(nn.Module):
    """The network, whose blocks run again in the backward pass but for what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.register_buffer("turns", torch.empty(LENGTH, WIDTH // HEADS // 2, dtype=torch.complex64))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ids (N, tokens) to scores (N, tokens, vocabulary)."""
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, self.turns, use_reentrant=False, context_fn=_selective)
        return self.output(self.norm(hidden))


def _selective() -> Any:
    products: Counter[bool] = Counter()

    def policy(context: Any, operator: Any, *_arguments: Any, **_named: Any) -> CheckpointPolicy:
        if operator is _aten.mm.default:
            products[context.is_recompute] += 1
            if not products[context.is_recompute] % 2:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operator in KEPT else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def spread(model: Llama, mesh: Any) -> None:
    """Spread the weights over the ranks; those of the last block stay gathered, since backward begins with them."""
    how: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    for number, block in enumerate(model.blocks, 1):
        fully_shard(block, **how, reshard_after_forward=number < LAYERS)
    fully_shard(model, **how, reshard_after_forward=True)


def stepper(model: Llama, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Return a step: the scores are let go of before the backward pass."""

    def step() -> None:
        tokens, labels = (torch.randint(0, VOCABULARY, (BATCH, LENGTH)) for _ in range(2))
        scores = model(tokens)
        loss = functional.cross_entropy(scores.flatten(0, 1).float(), labels.flatten(0, 1))
        del scores
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_stream(traced: Trace, *, expandable: bool) -> dict[int, float]:
    """Return what the allocator has reserved by stream after some steps, in GiB."""
    allocator = CachingAllocator(expandable)
    replay(repeated(traced.events, 3, traced.before, traced.late), allocator)
    return {stream: round(size / GIB, 2) for stream, size in allocator.reserved_by_stream().items()}


def main() -> None:
    """Trace the step and print what was found."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    compute_as_cuda()
    group_as_cuda()
    begin = time.process_time()
    with fake_world():
        model = Llama()
        spread(model, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
        traced = trace(stepper(model, optimizer), held=(model, optimizer), libraries=card_libraries())
    seconds = time.process_time() - begin
    print(
        json.dumps(
            {
                "cpu_s": round(seconds, 1),
                "held_gib": round(traced.persistent_bytes / GIB, 2),
                "live_gib": round(traced.peak_bytes / GIB, 2),
                "phases_gib": {name: round(size / GIB, 2) for name, size in traced.phase_peaks_bytes.items()},
                "reserved_gib": {
                    name: round(traced.reserved_bytes(expandable=name == "expandable") / GIB, 2)
                    for name in ("native", "expandable")
                },
                "by_stream_gib": {
                    name: by_stream(traced, expandable=name == "expandable") for name in ("native", "expandable")
                },
                "published_reserved_gib": PUBLISHED_GIB,
            }
        )
    )


if __name__ == "__main__":
    main()
