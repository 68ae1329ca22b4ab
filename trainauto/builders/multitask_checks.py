"""What is checked of option files of several tasks before a run of them is built."""

from trainauto.builders.file_checks import (
    FOLDER_OF_RUNS,
    OPTIMIZER_BESIDE_RATE,
    SCHEDULE,
    SETS,
    FileChecks,
    registered,
)
from trainauto.builders.text_checks import TOKENIZER
from trainauto.options.component_schemas import FILLED_IN
from trainauto.tasks.multitask import digits, digits_model
from trainauto.tasks.multitask.registry import MULTITASK_MODELS, SAMPLE_SETS

REGISTERING = (digits, digits_model)
"""Modules that bring what they register by being imported."""

MULTITASK_CHECKS = FileChecks(
    components={
        ("model",): registered(MULTITASK_MODELS, filled_in=FILLED_IN["multitask-model"]),
        **{("datasets", key): registered(SAMPLE_SETS) for key in SETS},
        ("train", "optim"): OPTIMIZER_BESIDE_RATE,
        ("train", "scheduler"): SCHEDULE,
    },
    data=FOLDER_OF_RUNS,
    weights=TOKENIZER,
)
