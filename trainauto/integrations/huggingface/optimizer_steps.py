"""Optimizer steps of a Trainer's loop: run again where nothing was written, else the end of the run, in words."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from trainauto.core.objectives import parameters_of
from trainauto.engine.optimizer_step import repeated_in_step, stepping
from trainauto.engine.run_errors import MachineFailedError, OptimizerOutOfMemoryError, failure_in_words
from trainauto.engine.training import Training
from trainauto.integrations.huggingface.checkpoints import written_checkpoints
from trainauto.integrations.loop_model import LoopModel
from trainauto.integrations.single_values import SingleValues
from trainauto.memory.monitor.oom import shortage_in

T = TypeVar("T")


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


def clipped(clip: Callable[[], T], run: Training) -> T:
    """Call what clips the gradients of a step, once more where memory runs out before it changed any.

    Raises:
        OptimizerOutOfMemoryError: memory ran out, in a call that may not be repeated or twice; no weight has changed.
    """
    (objective,) = run.model.objectives()
    gradients = (parameter.grad for parameter in parameters_of(objective))
    kinds = {(gradient.device, gradient.dtype) for gradient in gradients if gradient is not None}
    # One operator writes all gradients of a kind, after all others. Scaled ones are unscaled before, and only once.
    if objective.scaler is None and run.ranks.world_size == 1 and len(kinds) <= 1:
        return repeated_in_step(clip, objective.name, run.model.device)
    try:
        return clip()
    except (RuntimeError, MemoryError) as error:
        message = shortage_in(error)
    raise OptimizerOutOfMemoryError(objective.name, message, is_whole=True)


def told_with_checkpoint(error: BaseException, output_dir: str, steps: int) -> BaseException:
    """Return what ends a Trainer's run after so many steps; a shortage and a failed device with the last checkpoint."""
    said = failure_in_words(error)
    if said is None and not isinstance(error, OptimizerOutOfMemoryError):
        return error
    whole = written_checkpoints(output_dir, whole=True)
    last = next((folder for step, folder in whole.items() if step <= steps), None)
    how = "train(resume_from_checkpoint=True)"
    if isinstance(error, OptimizerOutOfMemoryError):
        error.say_last_checkpoint(last, how)
    return error if said is None else MachineFailedError(*said, last, how)
