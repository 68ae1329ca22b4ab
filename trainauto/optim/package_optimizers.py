"""Optimizers of the package pytorch_optimizer by their names there, imported when one is asked for."""

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.registry import Registry, in_one_word

PACKAGE = "pytorch_optimizer"
INSTALL = "pip install 'trainauto[optimizers]'"

TESTED = ("ADOPT", "Adan", "Lion", "Prodigy", "SOAP", "StableAdamW")
"""Those that are tested here; others of the package are taken by name as they are."""

NOT_YET = {
    "schedulefree": "Schedule-free optimizers validate other weights than they train, which is not supported yet",
    "muon": "Muon is for hidden matrices and needs a second optimizer for other weights, which is not supported yet",
}
"""Parts of names of optimizers that would train something else than they say, and why."""


class Optimizers(Registry[Callable[..., Optimizer]]):
    """Optimizers that are registered, and behind them those of the package."""

    def get(self, name: str) -> Callable[..., Optimizer]:
        """Return the optimizer called ``name``.

        Raises:
            InputError: there is none, or it is one of the package, which is not installed, or which does not fit here.
        """
        if name in self:
            return super().get(name)
        found = _of_package(in_one_word(name))
        if found is None:
            known = [*self, *TESTED, *_names_of_package()]
            raise InputError(Problem(f"there is no optimizer named '{name}'", advice=nearest(name, known)))
        return found


def _of_package(word: str) -> Callable[..., Optimizer] | None:
    """Return an optimizer of the package by its name in one word; ``None`` where there is none.

    Raises:
        InputError: it is a tested one, and the package is not installed; or it does not fit here.
    """
    for part, why in NOT_YET.items():
        if part in word:
            raise InputError(Problem(why, advice=f"Choose another one, such as {', '.join(TESTED)}."))
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError as error:
        tested = next((name for name in TESTED if in_one_word(name) == word), None)
        if tested is None:
            return None
        message = f"{tested} is an optimizer of the package {PACKAGE}, which is not installed"
        raise InputError(Problem(message, advice=f"Install it: {INSTALL}.")) from error
    found = next((one for known, one in _optimizers_in(package).items() if in_one_word(known) == word), None)
    return None if found is None else _with_checked_arguments(found)


def _names_of_package() -> list[str]:
    try:
        return list(_optimizers_in(importlib.import_module(PACKAGE)))
    except ImportError:
        return []


def _optimizers_in(package: Any) -> dict[str, type[Optimizer]]:
    kinds = vars(package).items()
    return {name: kind for name, kind in kinds if isinstance(kind, type) and issubclass(kind, Optimizer)}


def _with_checked_arguments(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """Return what makes an optimizer, and takes the arguments that its class names: classes take any others in silence.

    The function raises ``ValueError`` where ``betas`` are not as many as the class has.
    """
    signature = inspect.signature(kind)
    named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]

    @wraps(kind)
    def make(*positional: Any, **arguments: Any) -> Optimizer:
        default = signature.parameters["betas"].default if "betas" in signature.parameters else None
        betas = arguments.get("betas")
        if isinstance(default, tuple) and betas is not None and len(betas) != len(default):
            raise ValueError(f"betas of {kind.__name__} must be {len(default)} numbers, got {len(betas)}")
        return kind(*positional, **arguments)

    make.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return make
