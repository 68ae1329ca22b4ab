"""``training_automations`` for a loop of one's own: what stands under that key of an option file, without the file."""

from collections.abc import Mapping
from typing import Any

from trainauto.automations.base import Automation
from trainauto.automations.documented import DocumentedInterface
from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.process import parse_size_bytes


class TrainingAutomations:
    """Automations by the name they are registered by (C12, C13, C29); empty, and false, where nothing is enabled.

    Args:
        options: the section as in an option file: ``enabled``, and for each automation its arguments.
        memory_budget: memory that training may use, such as ``"600MiB"``: of the card on CUDA, beyond what the process
            holds now on a CPU. ``None`` takes the card as a whole; on a CPU there is then nothing to steer by.

    Raises:
        InputError: an automation of that name is not registered.
        TypeError, ValueError: an argument is not known, or not admissible.
    """

    def __init__(self, options: Mapping[str, Any], *, memory_budget: str | None = None) -> None:
        self.automations: dict[str, Automation] = {}
        if not options.get("enabled", True):
            return
        for name, given in options.items():
            if name == "enabled" or not (given or {}).get("enabled", True):
                continue
            arguments = {key: value for key, value in (given or {}).items() if key != "enabled"}
            self.automations[AUTOMATIONS.shown(name)] = AUTOMATIONS.get(name)(**arguments)
        if memory_budget is not None:
            for automation in self.automations.values():
                if isinstance(automation, DocumentedInterface):
                    automation.set_memory_budget(parse_size_bytes(memory_budget))

    def __bool__(self) -> bool:
        return bool(self.automations)
