"""Loops of one's own under a real memory budget, each in a process of its own: the result is printed as JSON.

    python adaptive_worker.py failures TRIALS | grown | tokens | closure

``failures``: a GAN's step runs out of memory for real, in the forward and the backward pass of either objective, again
and again from the same weights. ``grown``: an epoch that begins with a small batch, with workers. ``tokens``:
an epoch of texts under a budget of tokens. ``closure``: a loss that uses the live network, not the one it is given.
"""

import json
import logging
import random
import sys
from itertools import pairwise
from typing import Any

from trainauto import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from trainauto import AdaptiveLoop, ModelObjective, Range  # noqa: E402

MIB = 2**20
FEATURES = 64


class Numbered(TensorDataset):
    """Rows of positive features, with their number."""

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(0)
        super().__init__(torch.rand(samples, FEATURES, generator=generator), torch.arange(samples))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        row, number = super().__getitem__(index)
        return {"real": row, "number": number}


def layers(*widths: int) -> nn.Sequential:
    return nn.Sequential(
        *(layer for before, after in pairwise(widths) for layer in (nn.Linear(before, after), nn.Softplus()))
    )


class Gan:
    """A generator and a discriminator; learning rates of 0 leave the weights as they are."""

    def __init__(self, rate: float = 0.0) -> None:
        torch.manual_seed(0)
        widths = FEATURES, 256, 256
        self.nets = nn.ModuleDict({"maker": layers(*widths, FEATURES), "judge": layers(*widths, 1)})
        self.passed: list[str] = []
        self.objectives = [
            ModelObjective(name, torch.optim.SGD(self.nets[name].parameters(), rate), loss)
            for name, loss in (("maker", self.make), ("judge", self.judge))
        ]

    def make(self, nets: Any, batch: dict[str, Tensor]) -> Tensor:
        made = nets["maker"](batch["real"])
        batch["made"] = made.detach()
        loss = nets["judge"](made).square().mean()
        self.passed.append("maker")
        return loss

    def judge(self, nets: Any, batch: dict[str, Tensor]) -> Tensor:
        # Squares of different weight: gradients that cancel each other would show the rounding of sums alone.
        loss = nets["judge"](batch["real"]).square().mean() + 3 * nets["judge"](batch["made"]).square().mean()
        self.passed.append("judge")
        return loss

    def gradients(self) -> Tensor:
        return torch.cat([weight.grad.flatten() for weight in self.nets.parameters() if weight.grad is not None])


def failures(trials: int) -> dict[str, Any]:
    """Leave a step less room than it needs, by a tensor held beside it."""
    gan, generator = Gan(), random.Random(0)
    loop = AdaptiveLoop(gan.nets, gan.objectives, Numbered(8192), batch_size=4096, memory_budget="96MiB")
    found: dict[str, Any] = {"errors": [], "where": [], "losses": []}
    with loop:
        batch = next(loop.batches())
        undisturbed = loop.step(batch)
        torch.ones(2 * 96 * MIB, dtype=torch.uint8)  # a validation in the loop: the budget is for steps alone
        expected, needed = gan.gradients(), undisturbed.peak_bytes or 0
        before = loop.progress
        for _ in range(trials):
            room = generator.uniform(0.4, 0.95) * needed
            ballast = torch.ones(int(96 * MIB - room), dtype=torch.uint8)
            gan.passed.clear()
            step = loop.step(batch)
            del ballast
            found["errors"].append(float((gan.gradients() - expected).norm() / expected.norm()))
            found["losses"].append(abs(step.losses["judge"] / undisturbed.losses["judge"] - 1))
            found["where"] += where_it_failed(gan.passed, step)
        found["counted"] = [loop.progress.steps - before.steps, loop.progress.samples - before.samples]
    return found


def where_it_failed(passed: list[str], step: Any) -> list[str]:
    """Say in which pass, and in which half of it, a step ran out of memory first."""
    places = []
    for name, pieces in step.pieces.items():
        forwards = passed.count(name)
        places.append(f"{name} {'backward' if forwards > pieces else 'forward'}")
    return places


def grown() -> dict[str, Any]:
    """Train two epochs with workers."""
    gan = Gan(1e-3)
    numbers: list[int] = []
    loop = AdaptiveLoop(
        gan.nets,
        gan.objectives,
        Numbered(36000),
        batch_size=Range(64, 65536),
        memory_budget="192MiB",
        num_workers=2,
        seed=3,
    )
    with loop:
        steps = []
        for batch in loop.batches(2):
            steps.append(loop.step(batch))
            numbers += batch.tensors["number"].tolist()
        state = loop.state_dict()
    return {
        "numbers": numbers,
        "batches": [step.samples for step in steps],
        "ooms": sum(step.out_of_memory for step in steps),
        "peaks": [step.peak_bytes for step in steps],
        "reasons": [getattr(decision, "reason", "") for step in steps for decision in step.decisions],
        "state": sorted(state),
    }


class Texts:
    """Rows of tokens of many lengths."""

    lengths = [8 + 7 * number % 120 for number in range(2000)]  # noqa: RUF012 - read only

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((self.lengths[index],), 1 + index % 63)


def padded(rows: list[Tensor]) -> dict[str, Tensor]:
    return {"ids": nn.utils.rnn.pad_sequence(rows, batch_first=True)}


def tokens() -> dict[str, Any]:
    """Train an epoch under a budget of tokens."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(64, 128, padding_idx=0), nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64))

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["ids"].flatten(), ignore_index=0)

    seen = []
    loop = AdaptiveLoop(
        net,
        ModelObjective("words", torch.optim.AdamW(net.parameters()), loss),
        Texts(),
        tokens=Range(128, 10**6),
        lengths=Texts.lengths,
        collate_fn=padded,
        weigh=lambda batch: int((batch["ids"] != 0).sum()),
        memory_budget="128MiB",
    )
    with loop:
        for batch in loop.batches(1):
            step = loop.step(batch)
            rows, width = batch.tensors["ids"].shape
            seen.append([rows, width, step.plan["tokens"], step.peak_bytes, step.out_of_memory])
    return {"seen": seen, "tokens": loop.progress.tokens}


def closure() -> dict[str, Any]:
    """Train some batches with a loss that uses the live network, whatever it is given."""
    torch.manual_seed(0)
    net = layers(FEATURES, 256, 256, 1)
    before = torch.cat([weight.detach().flatten() for weight in net.parameters()])

    def loss(_model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return net(batch["real"]).square().mean()

    objective = ModelObjective("fit", torch.optim.AdamW(net.parameters()), loss)
    # What 14,000 small samples leave in the heap varies by 14 MiB: there is room for it.
    settings = {"target_vram_usage": 0.7}
    size = Range(64, 65536)
    loop = AdaptiveLoop(net, objective, Numbered(60000), batch_size=size, memory_budget="96MiB", settings=settings)
    with loop:
        batches = loop.batches()
        first = next(batches)
        after = torch.cat([weight.detach().flatten() for weight in net.parameters()])
        steps = [loop.step(first), *(loop.step(next(batches)) for _ in range(14))]
    return {
        "untouched": torch.equal(before, after),
        "first": first.plan.batch_size,
        "peaks": [step.peak_bytes for step in steps],
        "ooms": sum(step.out_of_memory for step in steps),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    print(
        json.dumps(
            {"failures": failures, "grown": grown, "tokens": tokens, "closure": closure}[sys.argv[1]](
                *map(int, sys.argv[2:])
            )
        )
    )
