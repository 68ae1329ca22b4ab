"""Methods of other classes that a memory-aware Trainer takes the place of: said, where it matters refused."""

import logging
from typing import Any

from trainauto.core.errors import InputError, Problem

logger = logging.getLogger(__name__)

NEVER_CALLED = ("_prepare_inputs",)
"""Parts of batches go to the device one by one."""

SAMPLER = "_get_train_sampler"

OWN_ORDER = (
    "Leave it out: train_sampling_strategy may be 'random', 'sequential' or 'group_by_length'. Samples are drawn by "
    "weights where the dataset draws: its __getitem__(_) returns dataset[int(torch.multinomial(weights, 1))]."
)

OWN_PACKAGES = ("trainauto.", "transformers.")


def check_overrides(trainer: Any, mixin: type) -> None:
    """Refuse a class whose batches would be left out, and name methods that are not called in training.

    Args:
        trainer: of a class that derives from ``mixin``, and from other Trainers.
        mixin: what makes a Trainer memory-aware.

    Raises:
        InputError: a class behind the mixin makes batches of its own, or a class draws samples by a sampler of its own.
    """
    sampler = getattr(type(trainer), SAMPLER, None)
    if sampler is not None and not sampler.__module__.startswith(OWN_PACKAGES):
        message = f"{sampler.__qualname__} draws samples by a sampler of its own, which would not be trained"
        raise InputError(Problem(f"{message}: every sample comes exactly once an epoch", advice=OWN_ORDER))
    kinds = type(trainer).__mro__
    behind = kinds[kinds.index(mixin) + 1 :]
    for kind in kinds:
        if kind.__module__.startswith(OWN_PACKAGES):
            continue
        if kind in behind and "get_train_dataloader" in vars(kind):
            raise InputError(
                Problem(
                    f"{kind.__name__} makes batches of its own (get_train_dataloader), which would not be trained",
                    advice="Train it without MemoryAwareTraining.",
                )
            )
        names = (*NEVER_CALLED, "training_step") if kind in behind else NEVER_CALLED
        lost = [f"{kind.__name__}.{name}" for name in names if name in vars(kind)]
        if lost:
            logger.warning("%s: not called in training, where MemoryAwareTraining does it", ", ".join(lost))


def no_planned_batches(trainer: Any) -> InputError:
    """Return what is wrong where the batches that come are not those of the loader of a run."""
    return InputError(
        Problem(
            f"the batches of {type(trainer).__name__} are not those that follow memory: get_train_dataloader or "
            "training_step puts others in their place",
            advice="Leave get_train_dataloader out, and hand inputs on to super().training_step as they come.",
        )
    )
