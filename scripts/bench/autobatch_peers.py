"""The other methods, each in a process of its own: the same network, optimizer, loss, data and enforced budget.

    python scripts/bench/autobatch_peers.py METHOD NETWORK BUDGET_MIB SEED IMAGES RESULT.json

Every optimizer step runs in the window of our meter, which renews the limit before it as our loop does; between steps
the limit is lifted, as it is for our loader. What a method does otherwise is its own, with one exception in the peers'
favour: where oneDNN gets no memory it says no more than "could not create a primitive", which Lightning and Accelerate
take for a fault that ends the run. They are told of it in the words of torch's allocator, and it is counted. Where that
lack has broken oneDNN for good (see ``trainauto/memory/monitor/onednn.py``), they continue without it, as our runs do:
otherwise every smaller batch would fail, down to one sample.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from trainauto.core.process import limit_private_memory, set_environment

set_environment()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from autobatch_cases import ENOUGH_STEPS, FIRST_BATCH, NETWORKS, RATE, SCALE, STEADY_STEPS, Case  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from trainauto.engine.optimizer_state import make_optimizer_state  # noqa: E402
from trainauto.memory.monitor import budget, onednn  # noqa: E402
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.memory.monitor.oom import is_out_of_memory  # noqa: E402
from trainauto.tasks.sr.archs import ARCHS  # noqa: E402
from trainauto.tasks.sr.data.image_io import read_image  # noqa: E402

SAMPLES = 8192
TRIAL_STEPS = 3
CPU = torch.device("cpu")
PRIMITIVE = "could not create a primitive"


class Crops(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Random crops of images in memory, shrunk by averaging; pairs in bytes as our loader gives them."""

    def __init__(self, folder: Path, seed: int, lq_size: int) -> None:
        self.images = [read_image(str(file), 3) for file in sorted(folder.glob("*.png"))]
        self.seed, self.lq_size = seed, lq_size

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return ``lq`` (3, h, w) and ``gt`` (3, h * scale, w * scale), uint8."""
        random = np.random.default_rng((self.seed, index))
        image = self.images[int(random.integers(len(self.images)))]
        small = self.lq_size
        side = small * SCALE
        top, left = (int(random.integers(image.shape[axis] - side + 1)) for axis in (0, 1))
        gt = np.ascontiguousarray(image[top : top + side, left : left + side].transpose(2, 0, 1))
        lq = gt.reshape(3, small, SCALE, small, SCALE).mean((2, 4)).round().astype(np.uint8)
        return {"lq": torch.from_numpy(lq), "gt": torch.from_numpy(gt)}


class Bench:
    """What all methods share: network, optimizer, data, meter, and the account of what happened."""

    def __init__(self, case: Case, images: Path) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(case.seed)
        self.case = case
        arguments = dict(NETWORKS[case.network])
        kind = arguments.pop("type")
        self.network: nn.Module = ARCHS.get(kind)(**arguments, scale=SCALE)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=RATE)
        self.data = Crops(images, case.seed, case.lq_size)
        self.meter = MemoryMeter(CPU)
        self.ooms = self.translated = self.steps = 0
        self.batch = 0
        self.peaks: list[int] = []
        self.began = float(os.environ["AUTOBATCH_BEGAN"])
        self.result: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        """Put the budget in force as a run does: optimizer state is there, the smallest step has warmed kernels up."""
        make_optimizer_state([self.optimizer])
        budget.calm_allocator()
        self.loss(self.load(1, 0)).backward()
        self.optimizer.zero_grad(set_to_none=True)
        self.initial = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
        gc.collect()
        if not self.meter.set_budget(self.case.limit_bytes):
            sys.exit("a memory budget cannot be enforced here: this needs Linux")
        limit_private_memory(None)

    def load(self, batch: int, number: int) -> dict[str, Tensor]:
        """Return batch ``number`` of so many samples."""
        limit_private_memory(None)
        items = [self.data[(number * batch + place) % SAMPLES] for place in range(batch)]
        return torch.utils.data.default_collate(items)

    def loss(self, tensors: dict[str, Tensor]) -> Tensor:
        """Return the mean absolute difference of output and reference."""
        output = self.network(tensors["lq"].float() / 255)
        return nn.functional.l1_loss(output, tensors["gt"].float() / 255)

    def train_step(self, batch: int, number: int) -> None:
        """Train one batch inside the budget."""
        tensors = self.load(batch, number)
        with self.inside(batch):
            self.optimizer.zero_grad(set_to_none=True)
            self.loss(tensors).backward()
            self.optimizer.step()

    @contextmanager
    def inside(self, batch: int) -> Iterator[None]:
        """Hold a step to the budget and note its peak; a failure is counted and passed on to the method."""
        if batch != self.batch:
            self.batch, self.peaks = batch, []
        try:
            with self.meter.window() as window:
                yield
        except Exception as error:
            self.ooms += is_out_of_memory(error)
            if str(error) != PRIMITIVE:
                raise
            self.translated += 1
            limit_private_memory(None)
            onednn.leave_if_broken()
            raise RuntimeError(f"DefaultCPUAllocator: can't allocate memory: {PRIMITIVE}") from None
        finally:
            limit_private_memory(None)
        self.steps += 1
        if self.result and self.steps == self.result["steps"] + ENOUGH_STEPS:
            self.result.setdefault("trained_seconds", time.time() - self.began)
        if window.reading is not None:
            self.peaks.append(window.reading.allocated)

    def reset(self) -> None:
        """Go back to the weights of the beginning."""
        self.optimizer.zero_grad(set_to_none=True)
        self.network.load_state_dict(self.initial)

    def note_result(self, trials: int, lost_steps: int, steps: int) -> None:
        """Note how the search ended: from here on everything is training."""
        self.result = {
            "changes": trials,
            "lost_steps": lost_steps,
            "steps": steps,
            "seconds": time.time() - self.began,
            "ooms": self.ooms,
        }


def bisection(bench: Bench) -> None:
    """Double the batch from the first one on until it fails, then halve the gap; weights go back after three steps."""
    trials = 0

    def fits(batch: int) -> bool:
        nonlocal trials
        trials += 1
        try:
            for number in range(TRIAL_STEPS):
                bench.train_step(batch, number)
        except (RuntimeError, MemoryError) as error:
            if not (is_out_of_memory(error) or PRIMITIVE in str(error)):
                raise
            return False
        finally:
            bench.reset()
        return True

    low, high = 0, FIRST_BATCH
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
        gc.collect()
    bench.note_result(trials, bench.steps, bench.steps)
    for number in range(STEADY_STEPS):
        bench.train_step(low, number)


def accelerate(bench: Bench) -> None:
    """Accelerate's decorator around the whole training, at its default of 128 samples; each failure starts it anew."""
    from accelerate.utils import find_executable_batch_size

    attempts: list[int] = []

    @find_executable_batch_size  # type: ignore[untyped-decorator]
    def train(batch_size: int) -> None:
        attempts.append(batch_size)
        bench.reset()
        lost = bench.steps
        for number in range(STEADY_STEPS + ENOUGH_STEPS):
            bench.train_step(batch_size, number)
            if number + 1 == ENOUGH_STEPS:
                bench.note_result(len(attempts), lost, bench.steps)
                bench.result["trained_seconds"] = bench.result["seconds"]

    train()


def lightning(bench: Bench, mode: str) -> None:
    """Lightning's BatchSizeFinder with its defaults, then its training at what it found."""
    import logging

    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import BatchSizeFinder, Callback

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    trials: list[int] = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = bench.network
            self.batch_size = FIRST_BATCH

        def training_step(self, tensors: dict[str, Tensor]) -> Tensor:
            return bench.loss(tensors)

        def optimizer_step(self, epoch: int, number: int, optimizer: Any, closure: Callable[[], Any]) -> None:
            if number == 0 and not bench.result:
                trials.append(self.batch_size)
            with bench.inside(self.batch_size):
                super().optimizer_step(epoch, number, optimizer, closure)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return bench.optimizer

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(bench.data, batch_size=self.batch_size)

    class Found(Callback):
        def on_train_start(self, trainer: Any, _module: Any) -> None:
            if not bench.result and trainer.max_steps == STEADY_STEPS and trainer.callbacks:
                bench.note_result(len(trials), bench.steps, bench.steps)

    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            max_steps=STEADY_STEPS,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[BatchSizeFinder(mode=mode), Found()],
        )
        trainer.fit(Module())


METHODS: dict[str, Callable[[Bench], None]] = {
    "bisection": bisection,
    "accelerate": accelerate,
    "lightning power": lambda bench: lightning(bench, "power"),
    "lightning binsearch": lambda bench: lightning(bench, "binsearch"),
}


LIBRARIES = {"lightning": ("lightning.pytorch", "lightning.pytorch.callbacks"), "accelerate": ("accelerate.utils",)}


def main() -> None:
    method, network, budget_mib, seed, images, result = sys.argv[1:]
    # What a peer's own code takes is not the step's: it is there before the baseline, as ours is.
    for name in LIBRARIES.get(method.split(" ")[0], ()):
        importlib.import_module(name)
    bench = Bench(Case(network, int(budget_mib), int(seed)), Path(images))
    failure = None
    try:
        METHODS[method](bench)
    except Exception as error:  # the method died of it: that is a result
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    limit_private_memory(None)
    steady = bench.steps - bench.result.get("steps", bench.steps)
    peaks = bench.peaks[-steady:] if steady else bench.peaks
    record = {
        "failure": failure,
        "batch": bench.batch,
        "lq_size": bench.case.lq_size,
        **bench.result,
        "ooms": bench.result.get("ooms", bench.ooms),
        "ooms_after": bench.ooms - bench.result.get("ooms", bench.ooms),
        "typical_bytes": int(median(peaks)) if peaks else 0,
        "largest_bytes": max(peaks, default=0),
        "steady_steps": steady,
        "told": bench.translated,
    }
    Path(result).write_text(json.dumps(record))


if __name__ == "__main__":
    main()
