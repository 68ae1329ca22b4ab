"""What networks keep between their passes: as they are, by the joint graph of both passes, and compiled by inductor.

    python scripts/bench/compiled_steps.py

On the CPU, in float32 and under autocast of bfloat16; a network takes up to two minutes to compile. Prints a table.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from trainauto.archs import ARCHS
from trainauto.memory.tracing.fake_tensors import as_fake, fake_world
from trainauto.memory.tracing.kept_bytes import kept_bytes
from trainauto.models.compiled_network import CompiledNetwork

SHAPE = (4, 3, 24, 24)
WINDOWS = {"window_size": 4, "img_size": 8, "drop_path_rate": 0.0}
NETWORKS = {
    "compact": {"num_feat": 16, "num_conv": 4},
    "rrdbnet": {"num_feat": 8, "num_block": 1, "num_grow_ch": 4},
    "span": {"feature_channels": 6},
    "swinir": {"embed_dim": 12, "depths": [2, 1], "num_heads": [2, 3], **WINDOWS},
    "swinir_light": {"embed_dim": 12, "depths": [2], "num_heads": [2], **WINDOWS},
    "realplksr": {"dim": 16, "n_blocks": 2, "kernel_size": 5},
}
"""Small ones, with their arguments."""


@dataclass(frozen=True)
class Kept:
    """Bytes beside weights, input and output; seconds of the joint graph, and of compiling."""

    eager_bytes: int
    joint_bytes: int
    inductor_bytes: int
    joint_s: float
    compile_s: float


def compared(name: str, *, bf16: bool = False) -> Kept:
    """Return what a network keeps, in all three ways."""
    torch.manual_seed(0)
    network = ARCHS.get(name)(**NETWORKS[name], scale=2).train()
    begin = time.perf_counter()
    with fake_world() as mode, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        kept = kept_bytes(as_fake(network, mode), torch.empty(SHAPE))
    joint_s = time.perf_counter() - begin
    torch.compiler.reset()
    compiled, image = CompiledNetwork(network, None), torch.rand(SHAPE)
    begin = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        output = compiled(image)
    compile_s = time.perf_counter() - begin
    node = output.grad_fn
    while node is not None and "Compiled" not in type(node).__name__:
        node = node.next_functions[0][0]
    left_out = {
        tensor.untyped_storage()._cdata for tensor in (*network.parameters(), *network.buffers(), image, output)
    }
    held = _bytes_of(getattr(node, "saved_tensors", ()), left_out)
    return Kept(kept.eager_bytes, kept.compiled_bytes, held, joint_s, compile_s)


def _bytes_of(tensors: Iterable[Tensor | None], left_out: set[int]) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sum({one._cdata: one.nbytes() for one in storages if one._cdata not in left_out}.values())


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| network | format | eager, bytes | joint graph | inductor | joint / inductor | joint s | compile s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in NETWORKS:
        for bf16 in (False, True):
            row = compared(name, bf16=bf16)
            sizes = f"{row.eager_bytes} | {row.joint_bytes} | {row.inductor_bytes}"
            ratio = row.joint_bytes / row.inductor_bytes
            words = f"| {name} | {'bf16' if bf16 else 'fp32'} | {sizes} | {ratio:.3f} |"
            print(f"{words} {row.joint_s:.1f} | {row.compile_s:.1f} |", flush=True)


if __name__ == "__main__":
    main()
