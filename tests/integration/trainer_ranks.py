"""A rank of a Trainer; the first prints its weights and what it logged as JSON.

python trainer_ranks.py FOLDER BATCH_SIZE MOST_OF_THE_LAST_RANK
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.trainers import (
    Masked,
    Regression,
    Watched,
    masked_points,
    points,
    rows,
    tiny_model,
    watched,
    weights,
)
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.errors import TrainautoError
from trainauto.core.records import StepRecord


class Uneven(Watched):
    """The last rank has room for so many samples."""

    most = 0

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        is_last = self.args.process_index == self.args.world_size - 1
        if torch.is_grad_enabled() and is_last and self.most and len(next(iter(inputs.values()))) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return super().compute_loss(model, inputs, *arguments, **options)


KINDS: dict[str, Any] = {
    "words": lambda: (tiny_model().double(), rows(ragged=True)),
    "numbers": lambda: (Regression(), points()),
    "masked": lambda: (Masked(), masked_points()),
}


def trained(kind: str, folder: Path, batch_size: int, most: int) -> dict[str, Any]:
    model, dataset = KINDS[kind]()
    trainer = watched(
        folder,
        model,
        dataset,
        kind=Uneven,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        optim="sgd",
        warmup_steps=1,
    )
    trainer.most = most
    trainer.train()
    lines = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "weights": weights(model).tolist(),
        "losses": [line["loss"] for line in lines],
        "rates": [line["learning_rate"] for line in lines],
        "samples": [line["samples"] for line in lines],
        "ooms": sum(entry.get("out_of_memory", 0) for entry in trainer.state.log_history),
        "numbers": trainer.trained() if kind == "words" else [],
    }


def stopped(folder: Path, batch_size: int) -> dict[str, Any]:
    """A rate of nothing, measured after every step: the first rank ends it, and the other follows."""
    watchers = {"IntelligentEarlyStopping": {"patience": 2}, "AdaptiveGradientClipping": {"warmup_steps": 1}}
    trainer = watched(
        folder,
        tiny_model().double(),
        rows(),
        per_device_train_batch_size=batch_size,
        num_train_epochs=2,
        learning_rate=1e-30,
        eval_strategy="steps",
        eval_steps=1,
        training_automations=watchers,
        more={"eval_dataset": rows(4)},
    )
    trainer.train()
    return {"steps": trainer.state.global_step, "reason": trainer.memory.stop_reason, "norm": trainer.memory.max_norm()}


def failed(folder: Path, batch_size: int) -> str:
    """What each rank says where an automation of the first one fails after the second step."""

    class Fails(Automation):
        watches = True

        def on_step_end(self, record: StepRecord) -> None:
            if record.step == 2:
                raise ValueError(f"a plugin that fails\nafter step {record.step}")

    AUTOMATIONS.register("Fails")(Fails)
    trainer = watched(
        folder,
        tiny_model(),
        rows(),
        per_device_train_batch_size=batch_size,
        num_train_epochs=2,
        training_automations={"Fails": {}},
    )
    try:
        trainer.train()
    except (ValueError, TrainautoError) as error:
        return f"step {trainer.memory.running.progress.steps}: {type(error).__name__}: {error}"
    return "it has not failed"


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, batch_size, most = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    found = {kind: trained(kind, folder, batch_size, most) for kind in KINDS}
    found["stopped"] = stopped(folder, batch_size)
    rank = os.environ.get("RANK", "0")
    (folder / f"failed_{rank}.txt").write_text(failed(folder, batch_size))
    if rank == "0":
        (folder / "result.json").write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # Threads of gloo may outlive their group: torch then aborts while the interpreter is taken down (2 of 8).
        sys.stderr.flush()
        os._exit(0)
