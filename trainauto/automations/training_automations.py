"""``training_automations`` for a loop of one's own: what stands under that key of an option file, without the file."""

import inspect
from collections.abc import Mapping
from typing import Any

from trainauto.automations.dynamic_batch_size import DynamicBatchSizeOptimizer
from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.plain import python_number
from trainauto.core.process import parse_size_bytes


class TrainingAutomations:
    """Automations by the name they are registered by; empty, and false, where nothing is enabled.

    Args:
        options: the section as in an option file: ``enabled``, and for each automation its arguments.
        memory_budget: memory that training may use, such as ``"600MiB"``: of the card on CUDA, beyond what the process
            holds now on a CPU. ``None`` takes the card as a whole; on a CPU there is then nothing to steer by.

    Raises:
        InputError: an automation of that name is not registered, or an argument is not known or not admissible.
    """

    def __init__(self, options: Mapping[str, Any], *, memory_budget: str | None = None) -> None:
        self.automations: dict[str, Automation] = {}
        if not options.get("enabled", True):
            return
        for name, settings in options.items():
            if name == "enabled":
                continue
            if not isinstance(settings, Mapping):
                message = f"{name} takes a mapping of arguments, but {settings!r} is given"
                raise InputError(Problem(message, advice=f'Write {{"{name}": {{}}}} for its defaults.'))
            if settings.get("enabled", True):
                arguments = {key: python_number(value) for key, value in settings.items() if key != "enabled"}
                self.automations[AUTOMATIONS.shown(name)] = _built(name, arguments)
        if memory_budget is not None:
            try:
                budget_bytes = parse_size_bytes(memory_budget)
            except (TypeError, ValueError):
                message = f"memory_budget {memory_budget!r} is no size"
                raise InputError(
                    Problem(message, advice='Write it with its unit, e.g. "600MiB" or "1.5GiB".')
                ) from None
            for automation in self.automations.values():
                if isinstance(automation, DynamicBatchSizeOptimizer):
                    automation.set_memory_budget(budget_bytes)

    def __bool__(self) -> bool:
        return bool(self.automations)


def _built(name: str, arguments: Mapping[str, Any]) -> Automation:
    """Return an automation.

    Raises:
        InputError: it does not take these arguments.
    """
    constructor = AUTOMATIONS.get(name)
    parameters = inspect.signature(constructor).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [] if takes_any else [key for key in arguments if key not in parameters]
    if unknown:
        problems = [Problem(f"{name} has no argument '{key}'", advice=nearest(key, parameters)) for key in unknown]
        raise InputError(problems)
    try:
        return constructor(**arguments)
    except (TypeError, ValueError) as error:
        arguments_text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise InputError(Problem(f"{name}: {error}", advice=f"It was given {arguments_text or 'nothing'}.")) from error
