"""Optimizers of pytorch_optimizer and schedulefree by their names there, imported when one is asked for."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.registry import Registry, in_one_word

PACKAGE, SCHEDULE_FREE_PACKAGE = "pytorch_optimizer", "schedulefree"
INSTALL = "pip install 'trainauto[optimizers]'"

TESTED = ("ADOPT", "Adan", "AdamWScheduleFree", "Lion", "Muon", "Prodigy", "SOAP", "StableAdamW")
"""Those that are tested here; others of the packages are taken by name as they are."""

OF_SCHEDULE_FREE = ("AdamWScheduleFree", "RAdamScheduleFree", "SGDScheduleFree")
"""What is taken of schedulefree; its other classes are references and wrappers."""

ALIASES: Mapping[str, str] = {"adamwsf": "adamwschedulefree"}
"""Further names, in one word: neosr's."""


class Optimizers(Registry[Callable[..., Optimizer]]):
    """Optimizers that are registered, and behind them those of the packages."""

    def get(self, name: str) -> Callable[..., Optimizer]:
        """Return the optimizer called ``name``.

        Raises:
            InputError: there is none, or it is one of a package, which is not installed, or which does not fit here.
        """
        if name in self:
            return super().get(name)
        word = in_one_word(name)
        found = _of_packages(ALIASES.get(word, word))
        if found is None:
            known = [*self, *TESTED, *_names_of(PACKAGE), *_names_of(SCHEDULE_FREE_PACKAGE)]
            raise InputError(Problem(f"there is no optimizer named '{name}'", advice=nearest(name, known)))
        return found

    def shown(self, name: str) -> str:
        """Return the name to show of the optimizer called ``name``; errors are those of :meth:`get`."""
        return super().shown(name) if name in self else self.get(name).__name__

    def offered(self) -> list[str]:
        """Return the names of all optimizers that are promised: those that are registered, and tested ones."""
        return sorted({*self, *TESTED})


def _of_packages(word: str) -> Callable[..., Optimizer] | None:
    """Return an optimizer of a package by its name in one word; ``None`` where there is none.

    Raises:
        InputError: it is a tested one, and the package is not installed; or it does not fit here.
    """
    package = SCHEDULE_FREE_PACKAGE if word.endswith("schedulefree") else PACKAGE
    try:
        kinds = _optimizers_in(importlib.import_module(package))
    except ImportError as error:
        tested = next((name for name in TESTED if in_one_word(name) == word), None)
        if tested is None:
            return None
        message = f"{tested} is an optimizer of the package {package}, which is not installed"
        raise InputError(Problem(message, advice=f"Install it: {INSTALL}.")) from error
    found = next((one for known, one in kinds.items() if in_one_word(known) == word), None)
    if found is not None and package == PACKAGE and hasattr(found, "eval"):
        message = f"{found.__name__} of {PACKAGE} switches weights for validation, which is not supported"
        raise InputError(Problem(message, advice=f"Write {OF_SCHEDULE_FREE[0]} or AdanScheduleFree."))
    return None if found is None else _with_checked_arguments(found)


def _names_of(package: str) -> list[str]:
    try:
        return list(_optimizers_in(importlib.import_module(package)))
    except ImportError:
        return []


def _optimizers_in(package: Any) -> dict[str, type[Optimizer]]:
    known = OF_SCHEDULE_FREE if package.__name__ == SCHEDULE_FREE_PACKAGE else None
    return {
        name: kind
        for name, kind in vars(package).items()
        if isinstance(kind, type) and issubclass(kind, Optimizer) and (known is None or name in known)
    }


def _with_checked_arguments(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """Return what makes an optimizer, and takes the arguments that its class names: classes take any others in silence.

    The function raises ``ValueError`` where ``betas`` are not as many as the class has, or the first of a schedule-free
    optimizer is 0, with which its average cannot be computed.
    """
    signature = inspect.signature(kind)
    named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]

    @wraps(kind)
    def make(*positional: Any, **arguments: Any) -> Optimizer:
        default = signature.parameters["betas"].default if "betas" in signature.parameters else None
        betas = arguments.get("betas")
        if isinstance(default, tuple) and betas is not None and len(betas) != len(default):
            raise ValueError(f"betas of {kind.__name__} must be {len(default)} numbers, got {len(betas)}")
        optimizer = kind(*positional, **arguments)
        if kind.__name__ in OF_SCHEDULE_FREE:
            if betas is not None and betas[0] <= 0:
                raise ValueError(f"betas[0] of {kind.__name__} must be above 0, got {betas[0]}")
            optimizer.train()  # type: ignore[attr-defined]  # and never anything else: see ScheduleFreeAverage
        return optimizer

    make.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return make
