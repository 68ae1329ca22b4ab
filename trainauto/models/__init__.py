"""What is minimised: models by name."""

from importlib import import_module
from typing import Any

from trainauto.models.registry import MODELS

__all__ = ["MODELS"]

_OF_TASKS = dict.fromkeys(("SRGANModel", "SRModel"), "trainauto.tasks.sr.models")


def __getattr__(name: str) -> Any:
    # Names of a task that lie above this package: plugins import them from here.
    if name in _OF_TASKS:
        return getattr(import_module(_OF_TASKS[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
