"""``module:factory``, as a command line names code that is to be planned."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.forecast.plan_request import PlanRequest
from trainauto.memory.tracing.host_reads import place_of_error

_RETURN = "Return trainauto.PlanRequest(model, loss, shapes, bounds={...})."


def load_request(name: str, folder: Path) -> PlanRequest:
    """Import a module, call its factory, and return what that returns.

    Args:
        name: ``module:factory``; the factory takes no arguments. A request itself may be named as well.
        folder: where modules are looked for, before installed ones.

    Raises:
        InputError: there is no such module or factory, it fails, or it returns something else.
    """
    module_name, separator, attribute = name.partition(":")
    if not (separator and module_name and attribute):
        advice = "Write module:factory, e.g. my_training:plan_request for a function in my_training.py."
        raise InputError(Problem(f"'{name}' names no factory", advice=advice))
    module = _imported(module_name, folder)
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if callable(value) and value.__module__ == module_name]
        advice = nearest(attribute, known, f"It defines no function. {_RETURN}")
        raise InputError(Problem(f"{module.__file__} has no '{attribute}'", advice=advice))
    request = _called(name, getattr(module, attribute))
    if not isinstance(request, PlanRequest):
        raise InputError(Problem(f"{name} returned {type(request).__name__}, not PlanRequest", advice=_RETURN))
    return request


def _imported(name: str, folder: Path) -> ModuleType:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise _failure(f"module '{name}' failed to import", error, "Install what it needs.") from error
        beside = [path.stem for path in folder.glob("*.py")]
        advice = nearest(name, beside, "Run the command in the folder that has it.")
        raise InputError(Problem(f"there is no module '{name}' in {folder}, nor installed", advice=advice)) from error
    except Exception as error:
        raise _failure(f"module '{name}' failed to import", error, "Mend it, then ask again.") from error


def _called(name: str, factory: Any) -> Any:
    if isinstance(factory, PlanRequest):
        return factory
    if not callable(factory):
        raise InputError(Problem(f"{name} is a {type(factory).__name__}, not a function", advice=_RETURN))
    try:
        return factory()
    except InputError:
        raise
    except Exception as error:
        raise _failure(f"{name} failed", error, "It is called without arguments.") from error


def _failure(what: str, error: Exception, advice: str) -> InputError:
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else place_of_error(error)
    return InputError(Problem(f"{what}: {type(error).__name__}: {error}, at {where}", advice=advice))
