"""A run of time_to_quality.py through AdaptiveLoop: a small classifier of scikit-learn's digits.

    python scripts/bench/digits_run.py OPTIONS.json

The options: ``batch``, ``objective`` (``null`` holds the batch), ``samples``, ``seed``, ``budget``, ``device``. It
writes logs as every run does; the last line printed is JSON with the mean loss over digits that were not trained on.
"""

import json
import sys
from pathlib import Path

import trainauto

trainauto.set_environment()

import torch  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

HELD_OUT, LARGEST, RATE = 360, 512, 1e-3


def classifier() -> nn.Module:
    """Return a small network without BatchNorm: its batches are sums of their parts."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean cross-entropy."""
    return functional.cross_entropy(model(batch[0]), batch[1])


def main() -> None:
    """Train, write logs, print the loss."""
    options = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    torch.manual_seed(options["seed"])
    device = "cuda" if options["device"] == "auto" and torch.cuda.is_available() else "cpu"
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 16
    labels = torch.from_numpy(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    held, kept = order[:HELD_OUT], order[HELD_OUT:]
    model = classifier().to(device)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    batch, objective = options["batch"], options["objective"]
    loop = trainauto.AdaptiveLoop(
        model,
        trainauto.ModelObjective("classifier", optimizer, loss),
        TensorDataset(images[kept], labels[kept]),
        batch_size=batch if objective is None else trainauto.Range(batch, LARGEST),
        memory_budget=options["budget"] if device == "cpu" else None,
        settings={} if objective is None else {"objective": objective},
        seed=options["seed"],
        run_directory="experiments",
    )
    with loop:
        for samples in loop.batches(-(-options["samples"] // len(kept))):
            optimizer.param_groups[0]["lr"] = RATE * max(0.0, 1 - loop.progress.samples / options["samples"])
            loop.step(samples)
            if loop.progress.samples >= options["samples"]:
                break
    model.eval()
    with torch.no_grad():
        print(json.dumps({"loss": loss(model, (images[held].to(device), labels[held].to(device))).item()}))


if __name__ == "__main__":
    main()
