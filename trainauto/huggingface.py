"""The Trainer of transformers with batches that fit: where its users import from.

What it is lies in :mod:`trainauto.integrations.huggingface`; docs/huggingface.md shows it at work.
"""

from importlib.util import find_spec
from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.lazy_names import lazy_names

_WHERE = {
    "MemoryAwareTrainer": "trainauto.integrations.huggingface.trainer",
    "MemoryAwareTraining": "trainauto.integrations.huggingface.trainer",
    "MemoryAwareTrainingArguments": "trainauto.integrations.huggingface.arguments",
}

_NEEDED = ("transformers", "accelerate")

__all__ = [*_WHERE]

_load = lazy_names(globals(), _WHERE)


def __getattr__(name: str) -> Any:
    lacking = [package for package in _NEEDED if find_spec(package) is None] if name in _WHERE else []
    if lacking:
        raise InputError(f"{name} needs {' and '.join(lacking)}: pip install 'trainauto[huggingface]'")
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
