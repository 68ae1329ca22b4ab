"""Optimizer steps of a Trainer's loop: run again where nothing was written, else the end of the run, in words."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainauto.engine.optimizer_step import stepping
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.checkpoints import written_checkpoints
from trainauto.integrations.loop_model import LoopModel
from trainauto.integrations.single_values import SingleValues


def guard_steps(optimizer: Any, run: Training) -> Callable[[], None]:
    """Have what the Trainer's loop steps survive running out of memory as the engine's own steps do.

    From here on the run trains, so that what its layers approximate is said.

    Args:
        optimizer: of the Trainer, as it steps it: with accelerate's wrapper around it, which scales losses.
        run: the engine's parts.

    Returns:
        what undoes it.
    """
    model = run.model
    (objective,) = model.objectives()
    stepped: Optimizer = objective.optimizer
    step = optimizer.step

    @wraps(step)
    def guarded(*arguments: Any, **options: Any) -> Any:
        return stepping(
            stepped,
            lambda: step(*arguments, **options),
            objective.name,
            model.device,
            may_change_form=run.ranks.world_size == 1,
        )

    had_own = "step" in vars(optimizer)
    optimizer.step = guarded
    single_values = model.single_values if isinstance(model, LoopModel) else SingleValues(nn.Module())
    single_values.speaks = True

    def undo() -> None:
        single_values.allow(allowed=False)
        if had_own:
            optimizer.step = step
        else:
            del optimizer.step

    return undo


def say_where_to_go_on(error: OptimizerOutOfMemoryError, output_dir: str, steps: int) -> None:
    """Name the last whole checkpoint of a Trainer in the error that ends its run after so many steps."""
    whole = written_checkpoints(output_dir, whole=True)
    last = next((folder for step, folder in whole.items() if step <= steps), None)
    error.say_last_checkpoint(last, "train(resume_from_checkpoint=True)")
