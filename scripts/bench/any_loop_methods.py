"""One epoch of a loop of one's own by one method, in a process of its own, under a budget that the system enforces.

    python scripts/bench/any_loop_methods.py METHOD SCENE SAMPLES BUDGET_MIB RESULT.json

All methods have the same network, optimizer, loss, samples and budget. Every optimizer step runs in the window of our
meter, which renews the limit before it as our loop does; between steps the limit is lifted. SCENE is ``alone``, or
``neighbour``: somebody else holds a quarter of the budget while the third tenth of the epoch is trained. Nothing else
is done for anybody: where oneDNN gets no memory it says "could not create a primitive", which neither Lightning nor
Accelerate takes for running out of memory, and that ends their training.
"""

import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainauto.core.process import set_environment

set_environment()

import torch  # noqa: E402
from epoch_account import EpochAccount  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from trainauto import AdaptiveLoop, ModelObjective, Range  # noqa: E402

MIB = 2**20
SIDE, CHANNELS, LAYERS, CLASSES = 24, 16, 6, 10
FIRST_BATCH, LARGEST_BATCH = 16, 512
RATE = 1e-3
TRIAL_STEPS = 3


class Images(Dataset[dict[str, Tensor]]):
    """Made images, each with its number."""

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randint(256, (samples, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
        self.labels = torch.randint(CLASSES, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return a sample."""
        return {"image": self.images[index], "label": self.labels[index], "number": torch.tensor(index)}


def network() -> nn.Module:
    """Return a small classifier."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU()]
    for _ in range(LAYERS - 1):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean cross-entropy."""
    return functional.cross_entropy(model(batch["image"].float() / 255), batch["label"])


class Bench(EpochAccount):
    """What all methods share, and the account of what happened."""

    def __init__(self, scene: str, samples: int, budget_mib: int) -> None:
        torch.set_num_threads(1)
        super().__init__(samples, budget_mib * MIB, has_neighbour=scene == "neighbour")
        self.data = Images(samples)
        self.fresh()
        self.begin()

    def fresh(self) -> None:
        """Begin with new weights."""
        self.model = network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), RATE)

    def enforce(self) -> None:
        """Put the budget in force."""
        smallest = next(iter(DataLoader(self.data)))
        self.enforce_budget(self.optimizer, lambda: loss(self.model, smallest).backward())

    def batches(self, batch_size: int) -> Iterator[dict[str, Tensor]]:
        """Yield an epoch of batches."""
        order = torch.Generator().manual_seed(1)
        yield from DataLoader(self.data, batch_size, shuffle=True, generator=order)

    def step(self, batch: dict[str, Tensor]) -> None:
        """Train a batch by hand."""
        with self.inside(batch["number"].tolist()):
            self.optimizer.zero_grad(set_to_none=True)
            loss(self.model, batch).backward()
            self.optimizer.step()


def fixed(bench: Bench, batch_size: int) -> None:
    """Train an epoch with batches of one size, as a person writes it."""
    bench.enforce()
    for batch in bench.batches(batch_size):
        bench.step(batch)


def search(bench: Bench) -> None:
    """Find the largest batch that trains a few steps, as a person finds it: by trying."""
    bench.enforce()

    def fits(batch_size: int) -> bool:
        try:
            for _, batch in zip(range(TRIAL_STEPS), bench.batches(batch_size), strict=False):
                bench.step(batch)
        except (RuntimeError, MemoryError):
            bench.optimizer.zero_grad(set_to_none=True)
            return False
        return True

    low, high = 0, FIRST_BATCH
    while fits(high) and high < LARGEST_BATCH:
        low, high = high, 2 * high
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    bench.batch = low


def accelerate(bench: Bench) -> None:
    """Accelerate's decorator around the whole training, at its default of 128 samples; each failure starts it anew."""
    from accelerate.utils import find_executable_batch_size

    bench.enforce()
    attempts: list[int] = []

    @find_executable_batch_size  # type: ignore[untyped-decorator]
    def train(batch_size: int) -> None:
        if attempts:
            bench.restart()
            bench.batch = 0
            bench.fresh()  # its documentation: everything that is trained is made inside
        attempts.append(batch_size)
        for batch in bench.batches(batch_size):
            bench.step(batch)

    train()


def lightning(bench: Bench) -> None:
    """Lightning's BatchSizeFinder with its defaults, then an epoch of its training at what it has found."""
    from lightning.pytorch.callbacks import BatchSizeFinder, Callback

    class Restarted(Callback):
        def on_train_start(self, _trainer: Any, _module: Any) -> None:
            bench.batch = 0
            if bench.trained:
                bench.restart()

    bench.enforce()
    module = lightning_module(bench)
    module.train_dataloader = lambda: DataLoader(bench.data, module.batch_size, shuffle=True)
    lightning_fit([BatchSizeFinder(), Restarted()], module)


def lightning_growing(bench: Bench) -> None:
    """Our batches within Lightning's training."""
    from trainauto.integrations.lightning_callback import GrowingBatches

    class Watched(GrowingBatches):
        def _record(self, batch: Any, reading: Any) -> Any:
            bench.note(batch.tensors["number"].tolist(), reading.allocated)
            return super()._record(batch, reading)

    size = Range(FIRST_BATCH, LARGEST_BATCH)
    budget_text = f"{bench.budget_bytes // MIB}MiB"
    growing = Watched(bench.data, batch_size=size, memory_budget=budget_text, settings={"adjustment_frequency": 10})
    module = lightning_module(bench)
    module.is_held = False  # the callback holds the budget
    lightning_fit([growing], module, growing.loader)


def lightning_module(bench: Bench) -> Any:
    """Return the network as Lightning trains networks."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.batch_size, self.is_held = bench.model, FIRST_BATCH, True
            self.numbers: list[int] = []

        def training_step(self, batch: dict[str, Tensor]) -> Tensor:
            self.numbers[:] = batch["number"].tolist()
            return loss(self.network, batch)

        def on_train_batch_start(self, batch: dict[str, Tensor], _number: int) -> None:
            self.numbers = batch["number"].tolist()

        def optimizer_step(self, epoch: int, number: int, optimizer: Any, closure: Callable[[], Any]) -> None:
            if self.is_held:
                with bench.inside(self.numbers):
                    super().optimizer_step(epoch, number, optimizer, closure)
            else:
                with bench.beside():
                    super().optimizer_step(epoch, number, optimizer, closure)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return bench.optimizer

    return Module()


def lightning_fit(callbacks: list[Any], module: Any, *loaders: Any) -> None:
    """Train an epoch."""
    import logging

    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=callbacks,
        ).fit(module, *loaders)


def ours(bench: Bench) -> None:
    """Train in an AdaptiveLoop; it holds the budget itself."""
    loop = AdaptiveLoop(
        bench.model,
        ModelObjective("classifier", bench.optimizer, loss),
        bench.data,
        batch_size=Range(FIRST_BATCH, LARGEST_BATCH),
        memory_budget=f"{bench.budget_bytes // MIB}MiB",
        settings={"adjustment_frequency": 10},
    )
    with loop:
        for batch in loop.batches(epochs=1):
            with bench.beside():
                step = loop.step(batch)
            bench.ooms += step.out_of_memory
            if step.trained:
                bench.note(batch.tensors["number"].tolist(), step.peak_bytes or 0)


METHODS: dict[str, Callable[[Bench], None]] = {
    "search": search,
    "accelerate": accelerate,
    "lightning": lightning,
    "ours in Lightning": lightning_growing,
    "ours": ours,
}

LIBRARIES = {
    "lightning": "lightning.pytorch",
    "ours in Lightning": "lightning.pytorch",
    "accelerate": "accelerate.utils",
}


def main() -> None:
    method, scene, samples, budget_mib, result = sys.argv[1:]
    if method in LIBRARIES:
        importlib.import_module(LIBRARIES[method])
    bench = Bench(scene, int(samples), int(budget_mib))
    failure = None
    try:
        if method.startswith("fixed "):
            fixed(bench, int(method.split()[1]))
        else:
            METHODS[method](bench)
    except Exception as error:  # the method died of it: that is a result
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    record = bench.record(failure)
    Path(result).write_text(json.dumps(record))


if __name__ == "__main__":
    main()
