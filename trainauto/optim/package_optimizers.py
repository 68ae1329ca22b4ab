"""Optimizers of the package pytorch_optimizer by their names there, imported when one is asked for."""

import importlib
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from trainauto.core.errors import InputError, Problem
from trainauto.core.registry import Registry, in_one_word

PACKAGE = "pytorch_optimizer"
INSTALL = "pip install 'trainauto[optimizers]'"

TESTED = ("ADOPT", "Adan", "Lion", "Prodigy", "SOAP", "StableAdamW")
"""Those that are tested here; others of the package are taken by name as they are."""

NOT_YET = {
    "schedulefree": "is validated by other weights than it trains, which is not built here yet",
    "muon": "steps matrices and other weights in two ways, and who gets which is not built here yet",
}
"""Parts of names of optimizers that would train something else than they say."""


class Optimizers(Registry[Callable[..., Optimizer]]):
    """Optimizers that are registered, and behind them those of the package."""

    def get(self, name: str) -> Callable[..., Optimizer]:
        """Return the optimizer called ``name``.

        Raises:
            InputError: there is none, or it is one of the package, which is not installed, or which does not fit here.
        """
        found = None if name in self else _of_package(in_one_word(name))
        return found if found is not None else super().get(name)


def _of_package(word: str) -> Callable[..., Optimizer] | None:
    """Return an optimizer of the package by its name in one word; ``None`` where there is none.

    Raises:
        InputError: it is a tested one, and the package is not installed; or it does not fit here.
    """
    for part, why in NOT_YET.items():
        if part in word:
            raise InputError(
                Problem(f"an optimizer whose name has '{part}' {why}", advice=f"Take {', '.join(TESTED)}.")
            )
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError as error:
        tested = next((name for name in TESTED if in_one_word(name) == word), None)
        if tested is None:
            return None
        message = f"{tested} is an optimizer of the package {PACKAGE}, which is not installed"
        raise InputError(Problem(message, advice=f"Install it: {INSTALL}.")) from error
    of_words: dict[str, Any] = {
        in_one_word(known): found
        for known, found in vars(package).items()
        if isinstance(found, type) and issubclass(found, Optimizer)
    }
    found: Callable[..., Optimizer] | None = of_words.get(word)
    return found
