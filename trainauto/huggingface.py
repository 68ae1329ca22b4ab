"""The Trainer of transformers with batches that fit: where its users import from.

What it is lies in :mod:`trainauto.integrations.huggingface`; docs/huggingface.md shows it at work.
"""

from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.lazy_names import lazy_names

_WHERE = {
    "MemoryAwareTrainer": "trainauto.integrations.huggingface.trainer",
    "MemoryAwareTraining": "trainauto.integrations.huggingface.trainer",
    "MemoryAwareTrainingArguments": "trainauto.integrations.huggingface.arguments",
}

__all__ = [*_WHERE]

_load = lazy_names(globals(), _WHERE)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("transformers", "accelerate"):
            raise
        raise InputError(f"{name} needs {error.name}: pip install 'trainauto[huggingface]'") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
