"""A ``Trainer.fit`` under a CPU budget with batches that grow, and then one that runs out of memory.

python lightning_worker.py RESULT.json
"""

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import trainauto

trainauto.set_environment()

import lightning.pytorch as pl  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from trainauto.integrations import lightning_callback  # noqa: E402
from trainauto.integrations.lightning_callback import GrowingBatches  # noqa: E402
from trainauto.memory.monitor.oom import is_out_of_memory  # noqa: E402

SAMPLES, EPOCHS, SIDE = 1500, 3, 16


class Module(pl.LightningModule):
    """A few convolutions; it writes down what it trains, and is asked to take too much once."""

    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(4) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())]
        self.network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers, nn.Conv2d(16, 3, 3, padding=1))
        self.batches: list[int] = []
        self.samples: list[int] = []
        self.takes_too_much = False

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, numbers = batch
        if self.takes_too_much:
            torch.ones(2**28)
        self.batches.append(len(images))
        self.samples += numbers.tolist()
        return (self.network(images) - images).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-3)


class Watched(GrowingBatches):
    """Notes peaks and loaders."""

    peaks: list[int]
    reloads = 0

    def _record(self, batch: Any, reading: Any) -> Any:
        self.peaks.append(reading.allocated)
        return super()._record(batch, reading)


def main(result: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("trainauto").setLevel(logging.INFO)
    torch.set_num_threads(1)
    loaders = []
    build = lightning_callback.build_loader
    lightning_callback.build_loader = lambda *given: loaders.append(build(*given)) or loaders[-1]
    data = TensorDataset(torch.rand(SAMPLES, 3, SIDE, SIDE), torch.arange(SAMPLES))
    growing = Watched(
        data,
        batch_size=trainauto.Range(8, 512),
        memory_budget="48MiB",
        settings={"adjustment_frequency": 8},
    )
    growing.peaks = []
    module = Module()

    def trainer(epochs: int, folder: str) -> pl.Trainer:
        return pl.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[growing],
        )

    with tempfile.TemporaryDirectory() as folder:
        first = trainer(EPOCHS, folder)
        first.fit(module, growing.loader)
        first.save_checkpoint(f"{folder}/trained.ckpt")
        seen = {
            "batches": list(module.batches),
            "samples": list(module.samples),
            "plan_before_failure": growing.plan.batch_size,
        }
        module.takes_too_much, failed = True, ""
        try:
            trainer(1, folder).fit(module, growing.loader)
        except (RuntimeError, MemoryError) as error:
            failed = "OutOfMemory" if is_out_of_memory(error) else repr(error)
        plan, again = growing.plan.batch_size, Module()
        trainer(1, folder).fit(again, growing.loader)  # the batch that was fetched ahead comes first
        trainer(EPOCHS, folder).fit(Module(), growing.loader, ckpt_path=f"{folder}/trained.ckpt")
    seen |= {
        "reloads": len(loaders),
        "epochs": EPOCHS,
        "dataset": SAMPLES,
        "target_bytes": int(0.85 * 48 * 2**20),
        "peaks": growing.peaks,
        "failed": failed,
        "plan_after_failure": plan,
        "batch_after_failure": again.batches[0],
    }
    Path(result).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
