"""Steps of a small transformer, traced here, against what a real card recorded of them.

    python scripts/bench/recorded_steps.py [--histories FOLDER] [--write FOLDER]

Eight of the nine recorded histories of others (``scripts/data_of_others.py``) are three steps each of one transformer,
forward alone or with
backward and optimizer, in float32 and under autocast to bfloat16. It is written here as its recordings show it, run on
fake tensors without any data, and followed as every trace is. The events of the whole run, with the workspaces that
cuBLAS takes, go through the simulated allocator. Compared are the highest live bytes and the reserved bytes at the end.

Exit code 1 where live bytes differ by more than 0.1 % or reserved bytes by more than 1.5 %.
"""

import argparse
import csv
import gzip
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from data_of_others import CUDA_HISTORIES  # noqa: E402

from trainauto.memory.cuda_allocator.allocator import AllocationEvent, CachingAllocator, replay  # noqa: E402
from trainauto.memory.tracing.cuda_autocast import cast_as_cuda  # noqa: E402
from trainauto.memory.tracing.fake_tensors import fake_world  # noqa: E402
from trainauto.memory.tracing.host_reads import ModelReads  # noqa: E402
from trainauto.memory.tracing.libraries import CUBLAS_BYTES, Libraries  # noqa: E402
from trainauto.memory.tracing.storage_tracker import LiveStorages  # noqa: E402

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN, BATCH, STEPS = 10_000, 512, 4, 16, 1344, 10, 3
MOST_LIVE, MOST_RESERVED = 0.001, 0.015
EVERYTHING = 2**63 - 1  # a slice's end that leaves nothing out


@dataclass(frozen=True)
class Recording:
    """One history: tokens of a sample, whether it trains, whether autocast is on."""

    digest: str
    context: int
    trains: bool
    mixed: bool

    @property
    def name(self) -> str:
        """What was run."""
        what = "forward, backward, optimizer" if self.trains else "forward"
        return f"{what}; {self.context} tokens; {'bf16' if self.mixed else 'fp32'}"


RECORDINGS = (
    Recording("baf850cc", 100, trains=False, mixed=False),
    Recording("f1c4f97d", 150, trains=False, mixed=False),
    Recording("b4768efa", 200, trains=False, mixed=False),
    Recording("7b5db6e8", 200, trains=False, mixed=True),
    Recording("9ab7a6e9", 100, trains=True, mixed=False),
    Recording("16edf316", 150, trains=True, mixed=False),
    Recording("cee681b8", 200, trains=True, mixed=False),
    Recording("4ed70088", 200, trains=True, mixed=True),
)


def weight(*shape: int) -> nn.Parameter:
    """Return a weight."""
    return nn.Parameter(torch.empty(*shape))


class Linear(nn.Module):
    """A product without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = weight(outputs, inputs)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    """Root mean square norm, computed in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = weight(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-5)
        return (x / scale * self.weight).to(given)


class Attention(nn.Module):
    """Causal attention with rotary positions, its softmax by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = (
            tensor.view(*tensor.shape[:2], HEADS, -1).transpose(1, 2) for tensor in (query, key, value)
        )
        query = rotated(query)
        key = rotated(key)
        taken = attended(query, key, value)
        taken = taken.transpose(1, 2).reshape(x.shape)
        return self.out(taken)


def rotated(x: Tensor) -> Tensor:
    """Turn both halves by angles that are copied to the card at each use."""
    cosine, sine = (torch.empty(x.shape[-2], x.shape[-1] // 2) for _ in range(2))
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    left = first * cosine - second * sine
    right = first * sine + second * cosine
    return torch.cat((left, right), dim=-1)


def softmax(x: Tensor) -> Tensor:
    """Softmax of the last dimension; the exponential is computed twice."""
    highest = x.max(dim=-1, keepdim=True)[0]
    return torch.exp(x - highest) / torch.sum(torch.exp(x - highest), dim=-1, keepdim=True)


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return what every position takes from those before it; the mask is made anew."""
    mask = torch.empty(query.shape[-2], key.shape[-2])
    scores = torch.einsum("...qd,...kd->...qk", query, key)
    scaled = scores / torch.sqrt(torch.tensor(query.shape[-1]))
    scaled.masked_fill_(~(mask != 0), float("-inf"))
    return torch.einsum("...qk,...kd->...qd", softmax(scaled), value)


class Gated(nn.Module):
    """The feed-forward part: SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.gate = Linear(WIDTH, HIDDEN), Linear(HIDDEN, WIDTH), Linear(WIDTH, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        inner = self.first(x)
        return self.second(inner * torch.sigmoid(inner) * self.gate(x))


class Block(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([Norm(), Norm()])
        self.attention, self.gated = Attention(), Gated()

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        taken = self.attention(self.norms[0](x))
        between = x + taken
        added = self.gated(self.norms[1](between))
        return between + added


class Transformer(nn.Module):
    """The whole of it, from tokens to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = weight(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = Norm(), Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute."""
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(last: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of the last position."""
    highest = last.max(dim=-1, keepdim=True)[0]
    shares = (last - highest) - torch.log(torch.sum(torch.exp(last - highest), dim=-1, keepdim=True))
    chosen = torch.zeros_like(last).scatter_(1, targets[:, None], 1.0)
    return -torch.sum(chosen * shares) / last.shape[0]


class Adam:
    """An Adam that makes new tensors for moments and weights."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self.weights = weights
        self.moments = [[torch.zeros_like(weight), torch.zeros_like(weight)] for weight in weights]

    def step(self) -> None:
        """Step."""
        for weight, moments in zip(self.weights, self.moments, strict=True):
            gradient = weight.grad.data if weight.grad is not None else torch.zeros_like(weight)
            moments[0] = 0.9 * moments[0] + 0.1 * gradient
            moments[1] = 0.99 * moments[1] + 0.01 * gradient**2
            weight.data = weight.data - 0.1 * (moments[0] / (torch.sqrt(moments[1]) + 1e-8))
            weight.data = weight.data - 0.1 * weight.data


def run(recording: Recording) -> None:
    """Do what was recorded; results live on into the next step."""
    network = Transformer()
    adam = Adam(list(network.parameters())) if recording.trains else None
    tokens = torch.empty(BATCH, recording.context, dtype=torch.long)
    targets = torch.empty(BATCH, dtype=torch.long)
    for _ in range(STEPS):
        for weight in network.parameters():
            weight.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=recording.mixed):
            if adam is None:
                network(tokens)
                continue
            logits = network(tokens)
            # Written out: torch 2.13 leaves out slices that leave nothing out, the recorded one did not.
            last = torch.ops.aten.slice.Tensor(logits, 0, 0, EVERYTHING).select(1, -1)
            last = torch.ops.aten.slice.Tensor(last, 1, 0, EVERYTHING)
            loss = loss_of(last, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()


def traced(recording: Recording) -> list[AllocationEvent]:
    """Return what a run allocates and frees, from its first weight on, with the workspaces of cuBLAS."""
    live = LiveStorages("cpu", ModelReads(large=False), Libraries(CUBLAS_BYTES))
    live.begin_step()
    with fake_world(), live.watch.watching(), live:
        run(recording)
    events = list(live.log.events)
    for place, workspace in reversed(live.log.workspaces):
        events.insert(place, workspace)
    return events


def recorded(folder: Path, recording: Recording) -> tuple[int, int]:
    """Return the highest live bytes and the highest reserved bytes of a history."""
    (file,) = folder.glob(f"*_{recording.digest}.csv.gz")
    with gzip.open(file, "rt", newline="") as lines:
        rows = [(int(row["recorded_allocated"]), int(row["recorded_reserved"])) for row in csv.DictReader(lines)]
    return max(live for live, _ in rows), max(reserved for _, reserved in rows)


def compared(folder: Path, recording: Recording) -> dict[str, Any]:
    """Return recorded and predicted bytes of one history."""
    allocator = CachingAllocator(expandable=False, descending=False)  # as that card's driver places segments
    replay(traced(recording), allocator)
    live, reserved = recorded(folder, recording)
    return {
        "recording": recording.name,
        "live": live,
        "live_foretold": allocator.peak_requested_bytes,
        "live_error": allocator.peak_requested_bytes / live - 1,
        "reserved": reserved,
        "reserved_foretold": allocator.peak_reserved_bytes,
        "reserved_error": allocator.peak_reserved_bytes / reserved - 1,
    }


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    mib = 2**20
    lines = [
        "# Recorded steps of a real GPU compared with traces",
        "",
        f"`python scripts/bench/recorded_steps.py`, torch {torch.__version__}: eight runs of three steps, which",
        "others recorded on a GPU (`tests/assets/cuda_histories/README.md`). They were traced here without one,",
        "from the first weight on. Live bytes are the highest requested bytes; reserved bytes are those of",
        "torch's allocator, simulated.",
        "",
        "| recorded run | live, recorded | predicted | | reserved, recorded | predicted | |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row["recording"]]
        for name in ("live", "reserved"):
            cells += [f"{row[name] / mib:.2f} MiB", f"{row[f'{name}_foretold'] / mib:.2f} MiB"]
            cells += [f"{row[f'{name}_error']:+.2%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=Path, default=CUDA_HISTORIES, help="folder of the recorded histories")
    parser.add_argument("--write", type=Path, help="folder for recorded_gpu.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cast_as_cuda()
    rows = [compared(arguments.histories, recording) for recording in RECORDINGS]
    print(page(rows))
    if arguments.write:
        (arguments.write / "recorded_gpu.md").write_text(page(rows))
    met = all(abs(row["live_error"]) <= MOST_LIVE and abs(row["reserved_error"]) <= MOST_RESERVED for row in rows)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
