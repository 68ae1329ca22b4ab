"""What is checked of option files of several tasks before a run of them is built."""

from trainauto.builders.components import checked_arguments
from trainauto.builders.file_checks import (
    FOLDER_OF_RUNS,
    OPTIMIZER_BESIDE_RATE,
    SCHEDULE,
    SETS,
    File,
    FileChecks,
    of_component,
    registered,
)
from trainauto.builders.network_bounds import defaults_of, refuse_sizes
from trainauto.builders.text_checks import TOKENIZER
from trainauto.options.component_schemas import FILLED_IN
from trainauto.options.fields import Component
from trainauto.options.source_locations import KeyPath
from trainauto.tasks.multitask import digits, digits_model
from trainauto.tasks.multitask.registry import MULTITASK_MODELS, SAMPLE_SETS

REGISTERING = (digits, digits_model)
"""Modules that bring what they register by being imported."""


def _check_model(loaded: File, path: KeyPath, chosen: Component) -> None:
    checked_arguments(loaded, MULTITASK_MODELS, path, chosen.type, chosen.arguments, FILLED_IN["multitask-model"])
    refuse_sizes(loaded, path, chosen.arguments, defaults_of(MULTITASK_MODELS.get(chosen.type)))


MULTITASK_CHECKS = FileChecks(
    components={
        ("model",): of_component(_check_model),
        **{("datasets", key): registered(SAMPLE_SETS) for key in SETS},
        ("train", "optim"): OPTIMIZER_BESIDE_RATE,
        ("train", "scheduler"): SCHEDULE,
    },
    data=FOLDER_OF_RUNS,
    weights=TOKENIZER,
)
