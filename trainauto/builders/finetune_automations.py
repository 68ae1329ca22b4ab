"""What automations of a fine-tuning file do: the controller of its passes, and those that watch the run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.builders.own_controller import controller_settings, switches_with_controller
from trainauto.core.errors import InputError, Problem
from trainauto.options.finetune_options import FinetuneOptions, step_conversations
from trainauto.options.load import LoadedOptions
from trainauto.options.nested import SECTION
from trainauto.options.run_options import Automations, AutomationSwitch

Loaded = LoadedOptions[FinetuneOptions]

STOP_FILE, LOW_LOSS = "StopFile", "StopAtLowLoss"


def largest_step(options: FinetuneOptions) -> int:
    """Return the most conversations of a step: those of the file, or what memory may let it grow to."""
    return max(step_conversations(options.training), options.training.max_batch_size or 0)


def settings_of_controller(loaded: Loaded) -> Mapping[str, Any] | None:
    """Return what the file gives the controller of its passes; ``None`` where it is switched off.

    Raises:
        InputError: it bounds passes, which sections of the file do.
    """
    return controller_settings(
        loaded,
        "fine-tuning",
        "a pass holds at most the conversations of a step, per_device_train_batch_size times "
        "gradient_accumulation_steps under training; max_batch_size there lets steps grow beyond them.",
    )


def with_own_automations(loaded: Loaded, device_type: str, ranks: int = 1) -> Loaded:
    """Return the file with the automations that every run of fine-tuning has: a controller, a stop file, a low loss.

    There is a controller as :func:`~trainauto.builders.own_controller.switches_with_controller` says.

    Args:
        loaded: the option file.
        device_type: of the device that the run trains on.
        ranks: how many train together: the file's conversations of a step are those of one.

    Raises:
        InputError: what ends the run at a low loss is given twice, or the controller is given bounds.
    """
    options = loaded.options
    section, training = options.training_automations, options.training
    step, largest = step_conversations(training), largest_step(options)
    own: dict[str, Any] = {"target_batch_size": step * ranks, "min_batch_size": 1, "max_batch_size": largest}
    own |= {"target_may_grow": True} if largest > step else {}
    switches = switches_with_controller(loaded, device_type, settings_of_controller(loaded), own)
    if section.written(STOP_FILE)[1] is None:
        switches[STOP_FILE] = AutomationSwitch()
    if training.early_stop_loss is not None:
        name, switch = section.written(LOW_LOSS)
        if switch is not None and switch.enabled and section.enabled:
            with locate_errors(loaded, ("training", "early_stop_loss")):
                message = "the loss that ends the run is given twice, as early_stop_loss and to StopAtLowLoss"
                raise InputError(Problem(message, advice="Remove one."))
        low: dict[str, Any] = {"loss": training.early_stop_loss, "patience": training.early_stop_patience}
        switches[name] = AutomationSwitch(**low)
    return replace(loaded, options=options.model_copy(update={SECTION: Automations(**switches)}))
