"""spandrel, imported when the first of its networks is built."""

import importlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from trainauto.core.errors import InputError, Problem

logger = logging.getLogger(__name__)

INSTALL = "pip install --no-deps spandrel spandrel_extra_arches einops"
"""Without dependencies, for the one that is missed beside torch, torchvision, may replace the torch that is there."""

SPANDREL, EXTRA = "spandrel", "spandrel_extra_arches"
TORCHVISION = "torchvision"
_STAND_INS = {f"{TORCHVISION}.transforms.functional": ("InterpolationMode", "rotate", "normalize")}
"""Modules and names that spandrel imports; the two networks that call them (LaMa, RestoreFormer) are not offered."""

_LOCK = threading.Lock()


def library_module(name: str) -> ModuleType:
    """Import a module of spandrel or of spandrel_extra_arches.

    Raises:
        InputError: it is not installed, or cannot be imported; says what to do.
    """
    with _LOCK:
        if not sys.modules.get(SPANDREL):
            with _torchvision():
                _imported(SPANDREL)
        return _imported(name)


def all_architectures() -> Any:
    """Return a registry of spandrel's with the architectures of both packages, which recognises files.

    Raises:
        InputError: spandrel is not installed.
    """
    registry = library_module(SPANDREL).MAIN_REGISTRY.copy()
    registry.add(*library_module(EXTRA).EXTRA_REGISTRY, ignore_duplicates=True)
    return registry


def _imported(name: str) -> ModuleType:
    package = name.partition(".")[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.script, which some of its networks use
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        message = f"{package}, which the network is taken from, needs {missing}"
        if missing == package:
            message = f"the network is taken from {package}, which is not installed"
        if sys.modules.get(package):
            message = f"the network is taken from {package}, whose release here has no {name}"
        raise InputError(Problem(message, advice=f"Install it: {INSTALL}")) from error


@contextmanager
def _torchvision() -> Iterator[None]:
    """Have the names that spandrel imports from torchvision, of which it needs none for the networks offered here.

    A torchvision that works is left to be used. Otherwise modules stand in while spandrel is imported, and are gone
    afterwards: other packages look for torchvision to see whether they can use it.
    """
    try:
        for name in _STAND_INS:
            importlib.import_module(name)
    except Exception as error:  # one built for another torch raises whatever it comes upon
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"does not work here ({error})"
    else:
        yield
        return
    logger.info("torchvision %s; spandrel is imported without: the networks offered here do not need it", reason)
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == TORCHVISION}
    _drop(TORCHVISION)
    try:
        sys.modules.update(_stand_ins())
        yield
    finally:
        _drop(TORCHVISION)
        sys.modules.update(before)


def _drop(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def _stand_ins() -> dict[str, ModuleType]:
    modules: dict[str, ModuleType] = {}
    for path, names in _STAND_INS.items():
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            modules[name] = ModuleType(name)
        for wanted in names:
            setattr(modules[path], wanted, _Missing(wanted))
    return modules


class _Missing:
    """A name of torchvision's that only says, when used, that torchvision is missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_arguments: Any, **_named: Any) -> NoReturn:
        raise ImportError(f"this network calls torchvision's {self._name}: install torchvision")

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self()
