"""What a checkpoint of a Trainer holds of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainauto.core.records import Progress
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.checkpoints import STATE_FILE, check_same_steps, warn_of_other_rows
from trainauto.integrations.huggingface.train_data import TrainData
from trainauto.integrations.watchers import Watchers


def state_of(run: Training, data: TrainData, watchers: Watchers, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a resume needs.

    Args:
        run: the engine's parts.
        data: what is trained on.
        watchers: the automations.
        own: what the class of the Trainer keeps.
    """
    return {
        "progress": vars(run.progress).copy(),
        "step_samples": _asked_samples(data),
        "some_rows": data.some_rows,
        "trainer": dict(own),
        **watchers.state_dict(),
        **run.decided_parts(),
    }


def load_state(run: Training, folder: Path, data: TrainData, watchers: Watchers) -> Mapping[str, Any]:
    """Take up what a checkpoint holds; return what the class of the Trainer has kept.

    Raises:
        InputError: it is of other steps.
    """
    state: Mapping[str, Any] = torch.load(folder / STATE_FILE, weights_only=True)
    asked = _asked_samples(data)
    check_same_steps(state.get("step_samples", asked), asked)
    run.load_decided_parts(state)
    watchers.take_up(run, state)
    warn_of_other_rows(state.get("some_rows"), data.some_rows)
    run.progress = Progress.from_dict(state["progress"])
    own: Mapping[str, Any] = state.get("trainer", {})
    return own


def _asked_samples(data: TrainData) -> int | None:
    """Return the samples that accumulation gives a step: without it, a run may go on with other batches."""
    return data.step_samples if data.accumulates else None
