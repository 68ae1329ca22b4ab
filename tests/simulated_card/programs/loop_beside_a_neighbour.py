"""The ten lines of docs/own_loop.md on a card that another program takes memory of and gives back.

    python loop_beside_a_neighbour.py NEIGHBOUR_PROGRAM

Prints one JSON line: samples of the steps before the neighbour came, while it was there, and after it had gone; errors
that the loop recovered from; the peak's share of the limit.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import trainauto

trainauto.set_environment()

import torch  # noqa: E402  its allocator is set before
from torch import nn  # noqa: E402

CAME, WENT, STEPS = 60, 160, 420
TAKEN = 500 * 2**20


@contextmanager
def neighbour(program: str) -> Iterator[subprocess.Popen[str]]:
    """Start the other program, which needs no torch."""
    with subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        yield held
        assert held.stdin is not None
        held.stdin.close()


def take(held: subprocess.Popen[str], size: int) -> None:
    """Let it hold so many bytes."""
    assert held.stdin is not None
    assert held.stdout is not None
    held.stdin.write(f"{size}\n")
    held.stdin.flush()
    assert held.stdout.readline() == "held\n"


def main(program: str) -> None:
    """Train, and count."""
    features = torch.rand(4000, 3, 32, 32)
    dataset = torch.utils.data.TensorDataset(features, (10 * features.mean((1, 2, 3))).long())
    body = [nn.Conv2d(3, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 512, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).cuda()
    adam = torch.optim.AdamW(model.parameters(), 1e-3)

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        pictures, labels = batch
        return nn.functional.cross_entropy(model(pictures), labels)

    objective = trainauto.ModelObjective("classes", adam, loss)
    loop = trainauto.AdaptiveLoop(model, objective, dataset, batch_size=trainauto.Range(4, 8192))
    batches, errors, peaks = [], 0, []
    with neighbour(program) as held, loop:
        for number, batch in enumerate(loop.batches(epochs=10**6)):
            if number in (CAME, WENT):
                take(held, TAKEN if number == CAME else 0)
            step = loop.step(batch)
            batches.append(step.plan.batch_size)
            errors += step.out_of_memory
            peaks.append(torch.cuda.max_memory_reserved())
            if number == STEPS:
                break
    free, total = torch.cuda.mem_get_info()
    shares = {"before": batches[CAME - 1], "beside": batches[WENT - 1], "after": batches[-1]}
    print(json.dumps({**shares, "errors": errors, "reserved": peaks[-1], "free": free, "total": total}))


if __name__ == "__main__":
    main(sys.argv[1])
