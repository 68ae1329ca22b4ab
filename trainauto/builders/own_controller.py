"""The controller that runs of a task have by themselves: its bounds are the task's, the rest the option file's."""

from collections.abc import Mapping
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions
from trainauto.options.nested import SECTION
from trainauto.options.run_options import CONTROLLER, AutomationSwitch, FileOptions


def controller_settings(loaded: LoadedOptions[FileOptions], words: str, advice: str) -> Mapping[str, Any] | None:
    """Return what the file gives the controller of its batches; ``None`` where it is switched off.

    Args:
        loaded: the option file.
        words: what the task is called.
        advice: which options bound its batches.

    Raises:
        InputError: it bounds batches, which other options of the file do.
    """
    automations = loaded.options.training_automations
    if not automations.enabled:
        return None
    name, switch = automations.written(CONTROLLER)
    if switch is None:
        return {}
    if not switch.enabled:
        return None
    for argument in switch.arguments:
        if argument.endswith(("batch_size", "_tokens")) or argument == "target_may_grow":
            with locate_errors(loaded, (SECTION, name)):
                message = f"{words} has no {argument}"
                raise InputError(Problem(message, advice=f"Remove it: {advice}", argument=argument))
    return switch.arguments


def switches_with_controller(
    loaded: LoadedOptions[FileOptions], device_type: str, settings: Mapping[str, Any] | None, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the automations of a file, the controller of its task among them.

    Where the file does not name a controller, there is one only where something limits memory.

    Args:
        loaded: the option file.
        device_type: of the device that the run trains on.
        settings: see :func:`controller_settings`.
        own: the task's arguments of the controller.
    """
    section = loaded.options.training_automations
    switches: dict[str, Any] = {
        name: switch if section.enabled else AutomationSwitch(enabled=False, **switch.arguments)
        for name, switch in (section.model_extra or {}).items()
    }
    is_bounded = device_type != "cpu" or loaded.options.memory.budget_bytes(device_type) is not None
    if settings is not None and (settings or is_bounded):
        switches[section.written(CONTROLLER)[0]] = AutomationSwitch(**{**own, **settings})
    return switches
