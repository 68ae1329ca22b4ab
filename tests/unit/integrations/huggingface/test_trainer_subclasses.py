"""What subclasses of a Trainer do beside training, and methods of theirs."""

from pathlib import Path
from typing import Any

from tests.trainers import Watched, rows, tiny_model, watched

SHORT: dict[str, Any] = {"per_device_train_batch_size": 4, "max_steps": 2}


class AddsAKey(Watched):
    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        inputs["use_cache"] = False  # as TRL's does
        return loss


def test_a_loss_may_add_to_its_inputs(tmp_path: Path) -> None:
    """B18"""
    trainer = watched(tmp_path, tiny_model(), rows(), kind=AddsAKey, **SHORT)
    trainer.train()
    assert trainer.state.global_step == 2
    assert {name for _, part in trainer.parts for name in part} == {"input_ids", "labels"}
