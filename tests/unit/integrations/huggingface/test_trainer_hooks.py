"""What classes of memory-aware Trainers add: figures of a loss that survive failures and resumes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tests.trainers import Watched, rows, tiny_model, watched
from trainauto.integrations.huggingface.loss import Weighing
from trainauto.integrations.huggingface.train_data import STEP_SAMPLES


class Counting(Watched):
    """Counts samples that were trained; the third part of a step runs out of memory once it was counted."""

    weighing = Weighing.SAMPLES
    fails = True

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.counted = self.noted = self.failures = 0
        self.prepared: list[int] = []

    def prepare_loss(self) -> None:
        self.prepared.append(self.counted)

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *given, **options)
        if self.memory is not None and not self.memory.loss.is_rehearsal:
            self.noted += len(inputs["input_ids"])
            if self.fails and self.noted >= 6 and not self.failures:
                self.failures += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return loss

    def forget_attempt(self) -> None:
        self.noted = 0

    def step_recorded(self, record: Any, *, skipped: bool) -> None:
        assert record.shape.samples == self.noted
        assert not skipped
        self.counted, self.noted = self.counted + self.noted, 0

    def own_state(self) -> dict[str, Any]:
        return {"counted": self.counted}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        self.counted = state["counted"]

    def largest_sample(self) -> int | None:
        return 3


OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "num_train_epochs": 2,
    "save_strategy": "steps",
    "save_steps": 1,
    "kind": Counting,
}


def test_figures_of_a_loss_count_each_step_once_and_go_on(tmp_path: Path) -> None:
    """A42: what a failed attempt noted is dropped; a checkpoint holds what was taken over."""
    run = watched(tmp_path, tiny_model(), rows(24), **OPTIONS)
    run.train()
    assert run.failures == 1
    assert run.counted == 48
    assert run.prepared == [0]
    assert run.memory.loss.weighing is Weighing.SAMPLES
    again = watched(tmp_path / "again", tiny_model(), rows(24), **OPTIONS)
    again.fails = False
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert again.counted == 48
    assert sum(len(part["input_ids"]) for _, part in again.parts) == 16


def test_steps_may_have_samples_that_are_no_product_of_passes(tmp_path: Path) -> None:
    """A53: 8 samples in three passes."""
    options = {**OPTIONS, "per_device_train_batch_size": 3, "gradient_accumulation_steps": 3, "kind": Watched}
    run = watched(tmp_path, tiny_model(), rows(24), **options)
    setattr(run.args, STEP_SAMPLES, 8)
    run.train()
    assert run.state.global_step == 6
    assert [sum(len(part["input_ids"]) for part in step) for step in run.steps()] == [8] * 6
    assert max(len(part["input_ids"]) for _, part in run.parts) == 3
