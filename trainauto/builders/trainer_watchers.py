"""Automations of option files whose runs go through a Trainer."""

from collections.abc import Mapping
from typing import Any

from trainauto.automations import AUTOMATIONS
from trainauto.builders.components import build_component, checked_arguments, locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions
from trainauto.options.nested import SECTION
from trainauto.options.run_options import FileOptions


def watchers_of(loaded: LoadedOptions[FileOptions], memory_advice: str) -> dict[str, Any]:
    """Return the automations of a file that watch its run, by name, with their arguments.

    Args:
        loaded: the option file.
        memory_advice: what says how batches fill the memory in such a file.

    Raises:
        InputError: one is not known, refuses its arguments, or chooses batches.
    """
    section = loaded.options.training_automations
    for name in section.model_extra or {}:
        with locate_errors(loaded, (SECTION, name)):
            AUTOMATIONS.get(name)  # a misspelt name would switch nothing off
    watching: dict[str, Mapping[str, Any]] = {}
    for name, switch in section.active.items():
        path = (SECTION, name)
        with locate_errors(loaded, path):
            if not AUTOMATIONS.get(name).watches:
                raise InputError(Problem(f"{name} steers no Trainer's run", advice=f"Remove it; {memory_advice}"))
        build_component(loaded, AUTOMATIONS, path, name, switch.arguments)()
        watching[AUTOMATIONS.shown(name)] = checked_arguments(loaded, AUTOMATIONS, path, name, switch.arguments)
    return watching
