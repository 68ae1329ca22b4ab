"""Option files of several tasks that train in seconds."""

from pathlib import Path
from typing import Any

import torch

from tests.integration.commands import merged
from trainauto.builders.multitask import MultitaskParts
from trainauto.builders.task_parts import PartsRequest
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.optim.precision import Precision
from trainauto.options.load import load_options
from trainauto.options.multitask_options import MultitaskOptions


def multitask_options(**changes: Any) -> dict[str, Any]:
    """Return options of a run that takes seconds; ``changes`` are merged in, section by section."""
    base: dict[str, Any] = {
        "name": "tiny",
        "task": "multitask",
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "model": {"type": "DigitsModel", "hidden_size": 16, "layers": 1, "heads": 2},
        "tokenizer": {"train": {"vocab_size": 300}},
        "datasets": {
            "train": {"type": "DigitTasks", "samples": 120},
            "val": {"type": "DigitTasks", "samples": 40, "part": "test"},
        },
        "train": {"total_epochs": 2, "learning_rate": 1e-3, "base_batch_size": 8, "target_batch_size": 16},
        "logger": {"print_freq": 4, "save_checkpoint_freq": 5, "use_tb_logger": False},
    }
    return merged(base, changes)


def built(file: Path) -> MultitaskParts:
    """Return what a run of an option file consists of."""
    loaded = load_options(file)
    assert isinstance(loaded.options, MultitaskOptions)
    request = PartsRequest(
        Precision(torch.device("cpu")), SINGLE_PROCESS, pretrained=False, check_samples=lambda _dataset: None
    )
    return MultitaskParts(loaded.with_options(loaded.options), request)
