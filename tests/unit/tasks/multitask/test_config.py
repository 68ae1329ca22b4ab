"""What a training on several tasks is told: defaults, what yields to what, and what is refused."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.config import HeterogeneousTrainingConfig

DEFAULTS = {
    "num_epochs": 3,
    "learning_rate": 5e-5,
    "base_batch_size": 16,
    "target_batch_size": 32,
    "gradient_accumulation_steps": 2,
    "use_gradient_accumulation": True,
    "max_memory_mb": 30000,
    "memory_margin_percent": 0.10,
    "enable_gradient_checkpointing": False,
    "task_distribution": {"T1": 0.4, "T2": 0.3, "T3": 0.3},
    "initial_task_loss_weights": {"T1": 1.0, "T2": 1.0, "T3": 1.0},
    "use_grad_norm_balancing": True,
    "grad_norm_alpha": 1.5,
    "warmup_steps": 500,
    "max_steps": 10000,
}


def written(**values: Any) -> HeterogeneousTrainingConfig:
    config = HeterogeneousTrainingConfig()
    for name, value in values.items():
        setattr(config, name, value)
    return config


def test_defaults_are_those_of_the_source() -> None:
    """A13 to A27."""
    config = HeterogeneousTrainingConfig()
    assert {name: getattr(config, name) for name in DEFAULTS} == DEFAULTS
    assert json.loads(json.dumps(config.as_dict())) == DEFAULTS
    assert not any(config.is_written(name) for name in DEFAULTS)
    assert all(type(value) is type(DEFAULTS[name]) for name, value in config.as_dict().items())
    config.check()


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no setting 'max_memory'\n.*Did you mean 'max_memory_mb'"):
        written(max_memory=1)


@pytest.mark.parametrize(
    ("values", "steps", "epochs", "words"),
    [
        ({}, 10000, None, "nothing else was written"),
        ({"num_epochs": 3}, None, 3, "the default of max_steps, 10000, yields"),
        ({"max_steps": 10000}, 10000, None, "was written and ends the training"),
        ({"max_steps": 50, "num_epochs": 9}, 50, None, "whatever num_epochs=9 says"),
        ({"max_steps": 0}, None, 3, "max_steps=0 counts no steps"),
        ({"max_steps": -1, "num_epochs": 2}, None, 2, "max_steps=-1 counts no steps"),
    ],
)
def test_of_steps_and_epochs_the_written_one_drives(
    values: dict[str, int], steps: int | None, epochs: int | None, words: str
) -> None:
    """A13, A27: a number that was written is another than the same number by default, however it was written."""
    for config in (written(**values), HeterogeneousTrainingConfig(**values)):
        for same in (config, copy.deepcopy(config), replace(config)):
            assert (same.length.max_steps, same.length.num_epochs) == (steps, epochs)
            assert words in same.length.reason


@pytest.mark.parametrize(
    ("values", "passes", "samples"),
    [
        ({}, 2, 32),
        ({"base_batch_size": 8}, 4, 32),
        ({"base_batch_size": 12}, 3, 32),
        ({"base_batch_size": 64}, 1, 64),
        ({"base_batch_size": 8, "target_batch_size": 32, "gradient_accumulation_steps": 4}, 4, 32),
        ({"use_gradient_accumulation": False}, 1, 32),
        ({"use_gradient_accumulation": False, "gradient_accumulation_steps": 2}, 1, 32),
    ],
)
def test_passes_follow_from_the_target(values: dict[str, Any], passes: int, samples: int) -> None:
    """A16 to A18, A53: the default of accumulation yields, too; A68's smaller batch needs no other change."""
    config = written(**values)
    config.check()
    assert config.steps_of_accumulation == passes
    assert config.effective_batch_size == samples


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gradient_accumulation_steps": 3}, "contradicts target_batch_size=32 in passes of base_batch_size=16.*2"),
        ({"target_batch_size": 8}, "target_batch_size=8 is below base_batch_size=16"),
        ({"memory_margin_percent": 10}, "a share, at least 0 and below 1, got 10\n  Write 0.1 for 10 per cent"),
        ({"memory_margin_percent": 1.0}, "Write 0.01 for 1 per cent"),
        ({"memory_margin_percent": -0.1}, "got -0.1"),
        ({"base_batch_size": 0}, "base_batch_size is a whole number, 1 or more, got 0"),
        ({"base_batch_size": 2.5}, "base_batch_size is a whole number, 1 or more, got 2.5"),
        ({"max_steps": "100"}, "max_steps is a whole number, got '100'"),
        ({"use_grad_norm_balancing": 1}, "use_grad_norm_balancing is True or False, got 1"),
        ({"learning_rate": float("nan")}, "learning_rate is a number above 0"),
        ({"max_memory_mb": 0}, "max_memory_mb is a number above 0"),
        ({"grad_norm_alpha": -1}, "grad_norm_alpha is a number, 0 or more"),
        ({"task_distribution": {"T1": 0.9, "T2": 0.4}}, "sum to 1.3, and must to 1"),
        ({"task_distribution": {"T1": 1.5, "T2": -0.5}}, "a share of 0 or more for each task"),
        ({"initial_task_loss_weights": {"T1": 0}}, "a weight above 0 for each task"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(values: dict[str, Any], words: str) -> None:
    """A48: a margin in per cent among them."""
    with pytest.raises(InputError, match=words):
        written(**values).check()


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        written(base_batch_size=0, learning_rate=0).check()
    assert len(caught.value.problems) == 2


def test_thirds_may_be_rounded() -> None:
    written(task_distribution={"T1": 0.33, "T2": 0.33, "T3": 0.33}).check()


def test_a_warm_up_that_nobody_wrote_leaves_most_of_a_run() -> None:
    """A26"""
    assert HeterogeneousTrainingConfig().warmup_of(10000) == 500
    assert HeterogeneousTrainingConfig().warmup_of(100) == 10
    assert written(warmup_steps=500).warmup_of(100) == 500


def test_shares_that_are_the_defaults_and_were_written_are_written() -> None:
    config = HeterogeneousTrainingConfig(task_distribution={"T1": 0.4, "T2": 0.3, "T3": 0.3})
    assert config.is_written("task_distribution")
    assert not config.is_written("initial_task_loss_weights")
    config.initial_task_loss_weights["T1"] = 2.0
    assert copy.deepcopy(config).is_written("initial_task_loss_weights")
