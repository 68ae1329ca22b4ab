"""What automations of a fine-tuning file do: the controller of its batches, and those that watch the run."""

from collections.abc import Mapping
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.builders.trainer_watchers import watchers_of
from trainauto.core.errors import InputError, Problem
from trainauto.core.registry import in_one_word
from trainauto.integrations.loop_controller import settings_of
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import CONTROLLER

Loaded = LoadedOptions[FinetuneOptions]


def watching(loaded: Loaded) -> dict[str, Any]:
    """Return the automations of a run: those of the file, a stop file, and the end at a low loss.

    Raises:
        InputError: one cannot be used.
    """
    training = loaded.options.training
    advice = f"{CONTROLLER} says how far batches fill the memory."
    low = {"loss": training.early_stop_loss, "patience": training.early_stop_patience}
    own: dict[str, Any] = {"StopFile": {}}
    own |= {"StopAtLowLoss": low} if training.early_stop_loss is not None else {}
    watchers = watchers_of(loaded, CONTROLLER, advice)
    if "StopAtLowLoss" in watchers and "StopAtLowLoss" in own:
        with locate_errors(loaded, ("training", "early_stop_loss")):
            message = "the loss that ends the run is given twice, as early_stop_loss and to StopAtLowLoss"
            raise InputError(Problem(message, advice="Remove one."))
    return {**own, **watchers}


def controller_settings(loaded: Loaded) -> dict[str, Any] | None:
    """Return what the controller of batches goes by; ``None`` where it is switched off.

    Raises:
        InputError: a setting is unknown, or a value cannot be.
    """
    automations = loaded.options.training_automations
    if not automations.enabled:
        return None
    for name, switch in (automations.__pydantic_extra__ or {}).items():
        if in_one_word(name) == in_one_word(CONTROLLER):
            if not switch.enabled:
                return None
            with locate_errors(loaded, ("training_automations", name)):
                _check_bounds(switch.arguments)
                settings_of(switch.arguments)
            return switch.arguments
    return {}


def _check_bounds(settings: Mapping[str, Any]) -> None:
    for name in settings:
        if name.endswith("batch_size"):
            advice = (
                "Remove it: a pass holds at most the conversations of a step, per_device_train_batch_size times "
                "gradient_accumulation_steps under training; what lets steps grow beyond them is max_batch_size there."
            )
            raise InputError(Problem(f"{name} is no bound of a Trainer's run", advice=advice))
