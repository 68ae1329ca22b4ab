"""Option files of `task: multitask`: what they take, and what is said of what they do not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import Plan
from trainauto.forecast.task import task_of
from trainauto.options.load import LoadedOptions, load_options, super_resolution_only
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.tasks import TASKS, kind_of

MULTITASK = """\
name: digits
task: multitask
model: {type: DigitsModel, hidden_size: 32}
tokenizer: {train: {vocab_size: 300}}
datasets:
  train: {type: DigitTasks, samples: 100}
  val: {type: DigitTasks, samples: 20, part: test}
train:
  total_epochs: 2
  learning_rate: 1e-3
"""

Problems = Callable[..., tuple[Problem, ...]]


def test_a_file_of_several_tasks(load: Callable[..., LoadedOptions]) -> None:
    options = load(text=MULTITASK).options
    assert isinstance(options, MultitaskOptions)
    assert options.model.arguments == {"hidden_size": 32}
    assert options.datasets.train.arguments == {"samples": 100}
    assert list(options.datasets.validation_sets) == ["val"]
    train = options.train
    assert (train.base_batch_size, train.target_batch_size, train.scheduler.type) == (16, 32, "constant")
    assert (train.use_grad_norm_balancing, train.grad_norm_alpha, options.memory.margin) == (True, 1.5, 0.10)
    assert kind_of(options) is TASKS["multitask"]


def test_the_shipped_file_loads() -> None:
    loaded = load_options(Path(__file__).parents[3] / "options" / "multitask" / "digits.yml")
    assert isinstance(loaded.options, MultitaskOptions)
    assert loaded.options.memory.budget_bytes("cpu") is not None
    assert loaded.options.memory.budget_bytes("cuda") is None


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("scale=2", "an option of super-resolution (task: super_resolution), and this file is of several tasks"),
        ("train:num_epochs=3", "Write total_epochs"),
        ("train:max_steps=3", "Write total_epochs, total_samples or total_iter"),
        ("train:gradient_accumulation_steps=2", "target_batch_size divided by base_batch_size"),
        ("train:max_memory_mb=300", "Write it as budget under memory"),
        ("memory:memory_margin_percent=0.1", "Write margin under memory"),
        ("memory:target_vram_usage=0.9", "Write margin under memory: 0.1 leaves a tenth free."),
        ("train:optim_g={type: AdamW}", "Write learning_rate and weight_decay"),
        ("train:learning_rat=1e-3", "Did you mean 'learning_rate'?"),
        ("train:margin=0.1", "Write it under memory."),
        ("datasets:test={type: DigitTasks}", "val"),
    ],
)
def test_keys_that_it_has_not(problems: Problems, override: str, advice: str) -> None:
    (problem,) = problems(override, text=MULTITASK)
    assert advice in problem.advice


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (["train:total_iter=3", "train:total_epochs=2"], "the run has 2 lengths, total_epochs and total_iter"),
        (["train:total_epochs=null"], "the run has no length"),
        (["train:warmup_steps=5", "train:warmup_ratio=0.1"], "warm-up is given twice"),
        (["train:target_batch_size=8"], "a step of 8 samples is less than a pass of 16"),
        (["train:base_batch_size=64"], "a step of 32 samples is less than a pass of 64"),
        (["train:task_distribution={T1: 0.0}"], "task_distribution gives no task a share"),
        (["train:sampling=replacement"], "sampling: replacement keeps to shares, and there are none"),
        (["train:task_diversity_weight=2"], "2"),
        (["distributed:batches=memory"], "target_batch_size is shared equally"),
        (["distributed:fully_shard=true"], "samples of a rank may lack a task"),
        (["tokenizer={}"], "nothing says what cuts texts into tokens"),
        (["tokenizer:pretrained=gpt2"], "the tokenizer is given twice"),
        (["train:scheduler=cosine"], "cosine"),
        (["memory:margin=1.0"], "1.0"),
        (["train:initial_task_loss_weights={T1: 0}"], "0"),
    ],
)
def test_what_cannot_be(problems: Problems, overrides: list[str], what: str) -> None:
    (problem,) = problems(*overrides, text=MULTITASK)
    assert what in problem.message
    assert problem.advice or "memory" in str(problem.place) or problem.place is not None


def test_a_step_may_be_one_pass(load: Callable[..., LoadedOptions]) -> None:
    options = load("train:use_gradient_accumulation=false", "train:base_batch_size=64", text=MULTITASK).options
    assert isinstance(options, MultitaskOptions)
    assert options.train.base_batch_size == 64


def test_commands_for_networks_of_images_say_what_there_is(load: Callable[..., LoadedOptions]) -> None:
    loaded = load(text=MULTITASK)
    assert task_of(loaded).first_plan(loaded) == Plan.of(batch_size=16)
    with pytest.raises(InputError, match="export is for networks of super-resolution") as caught:
        super_resolution_only(loaded, "export", "Take from_pretrained.")
    assert "accurate" in caught.value.problems[0].advice  # not what there is for language models


def test_what_the_advice_says_works(load: Callable[..., LoadedOptions]) -> None:
    options = load("name=trial", "train:total_epochs=null", "train:total_iter=1", text=MULTITASK).options
    assert options.train.total_iter == 1
