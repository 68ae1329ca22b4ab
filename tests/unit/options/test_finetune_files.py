"""Option files of fine-tuning: what they take, what they are without a word, what is said of what they do not take."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.core.errors import InputError, Problem
from trainauto.options.finetune_options import DEFAULT_WARMUP_RATIO, FinetuneOptions, warmup_of
from trainauto.options.load import LoadedOptions, load_options, super_resolution_only
from trainauto.options.tasks import TASKS, kind_of

Load = Callable[..., LoadedOptions]
Problems = Callable[..., tuple[Problem, ...]]

FAST = """\
model:
  name: Qwen/Qwen3-VL-2B-Instruct
  load_in_4bit: true
  max_pixels: 262144  # 512x512 for speed

lora:
  r: 8
  lora_alpha: 16
  target_modules: [q_proj, v_proj]

training:
  num_train_epochs: 2
  per_device_train_batch_size: 2
  learning_rate: 1.0e-4
  warmup_ratio: 0.05
  lr_scheduler_type: linear
  logging_steps: 1
"""
"""Example 1 of the source document, as it is published; the next three likewise."""

PRODUCTION = """\
model:
  name: Qwen/Qwen3-VL-2B-Instruct
  load_in_4bit: true
  max_pixels: 262144

lora:
  r: 16
  lora_alpha: 32
  target_modules: [q_proj, k_proj, v_proj, o_proj]

training:
  num_train_epochs: 5
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2  # Effective batch = 8
  learning_rate: 5.0e-5
  warmup_ratio: 0.1
  weight_decay: 0.01
  lr_scheduler_type: cosine
  logging_steps: 10
  early_stop_loss: 0.01
  early_stop_patience: 20
"""

LOW_MEMORY = """\
training:
  num_train_epochs: 5
  per_device_train_batch_size: 1  # Low memory
  gradient_accumulation_steps: 8  # Simulate batch=8
  learning_rate: 5.0e-5
  warmup_ratio: 0.1
  lr_scheduler_type: linear
"""

DEBUGGING = """\
training:
  num_train_epochs: 1
  per_device_train_batch_size: 1
  learning_rate: 1.0e-4
  lr_scheduler_type: none  # Constant LR
  logging_steps: 1
"""

DATASET = "dataset: {path: chats.jsonl}\n"
MODEL = "model: {name: Qwen/Qwen3-VL-2B-Instruct}\n"
SHORT = f"{MODEL}{DATASET}training: {{num_train_epochs: 2}}\n"


def options_of(load: Load, *overrides: str, text: str = SHORT) -> FinetuneOptions:
    options = load(*overrides, text=text).options
    assert isinstance(options, FinetuneOptions)
    return options


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (FAST, ["dataset"]),
        (PRODUCTION, ["dataset"]),
        (LOW_MEMORY, ["model", "dataset"]),
        (DEBUGGING, ["model", "dataset"]),
    ],
)
def test_a_published_example_lacks_its_data_alone(problems: Problems, text: str, missing: list[str]) -> None:
    """D39 to D42, D48: the source names data on its command line; here a file holds all of a run."""
    found = problems(text=text)
    assert [problem.message for problem in found] == [f"'{block}' is missing" for block in missing]
    for problem in found:
        assert problem.place is not None
        assert (problem.place.line, problem.place.column) == (1, 1)
        assert Path(problem.place.file).name == "options.yml"
        assert problem.advice.startswith("Add ")
    (dataset,) = (problem for problem in found if "dataset" in problem.message)
    assert "{path: chats.jsonl}" in dataset.advice


def test_the_first_two_examples_load_with_their_data(load: Load) -> None:
    """D05, D06, D26 to D37, D39, D40: nothing else is added, and every value is taken as it is written."""
    fast = options_of(load, text=FAST + DATASET)
    assert kind_of(fast) is TASKS["finetune"]
    assert (fast.model.name, fast.model.load_in_4bit) == ("Qwen/Qwen3-VL-2B-Instruct", True)
    assert fast.model.max_pixels == 512 * 512
    assert fast.lora is not None
    assert (fast.lora.r, fast.lora.lora_alpha, fast.lora.target_modules) == (8, 16, ["q_proj", "v_proj"])
    training = fast.training
    assert (training.num_train_epochs, training.per_device_train_batch_size, training.logging_steps) == (2, 2, 1)
    assert (training.learning_rate, warmup_of(training), training.lr_scheduler_type) == (1e-4, 0.05, "linear")
    production = options_of(load, text=PRODUCTION + DATASET).training
    assert production.per_device_train_batch_size * production.gradient_accumulation_steps == 8
    assert (production.weight_decay, production.lr_scheduler_type, production.logging_steps) == (0.01, "cosine", 10)
    assert (production.early_stop_loss, production.early_stop_patience) == (0.01, 20)


def test_the_other_examples_load_with_model_and_data(load: Load) -> None:
    """D12, D41, D42."""
    low_memory = options_of(load, text=LOW_MEMORY + MODEL + DATASET)
    assert low_memory.lora is None
    assert low_memory.training.gradient_accumulation_steps == 8
    debugging = options_of(load, text=DEBUGGING + MODEL + DATASET).training
    assert (debugging.lr_scheduler_type, warmup_of(debugging)) == ("none", 0.0)


def test_what_a_file_does_not_say(load: Load) -> None:
    """D09, D14, D18, D32, D35, D37, D50: the source's defaults."""
    options = options_of(load, text=f"{MODEL}{DATASET}training: {{}}\n")
    training = options.training
    assert (training.lr_scheduler_type, training.max_grad_norm, training.weight_decay) == ("linear", 1.0, 0.0)
    assert warmup_of(training) == DEFAULT_WARMUP_RATIO == 0.03
    assert (training.output_dir, training.eval_every_epoch, training.early_stop_loss) == ("training_output", True, None)
    assert options.model.load_in_4bit is False


@pytest.mark.parametrize(
    ("overrides", "warmup"),
    [
        (["training:lr_scheduler_type=cosine"], 0.03),
        (["training:lr_scheduler_type=constant"], 0.0),
        (["training:lr_scheduler_type=none"], 0.0),
        (["training:lr_scheduler_type=constant", "training:warmup_ratio=0.1"], 0.1),
        (["training:warmup_ratio=0.0"], 0.0),
        (["training:warmup_steps=7"], 7.0),
        (["training:warmup_steps=7", "training:warmup_ratio=0.0"], 7.0),
    ],
)
def test_the_warm_up(load: Load, overrides: list[str], warmup: float) -> None:
    """D11, D12, D14: 0.03 of the run, and none where the rate is to stay."""
    assert warmup_of(options_of(load, *overrides).training) == warmup


def test_a_schedule_that_is_not_there_is_refused_with_all_there_are(problems: Problems) -> None:
    """D13."""
    (problem,) = problems(text=SHORT.replace("{num_train_epochs: 2}", "\n  lr_scheduler_type: cosin"))
    for name in ("linear", "cosine", "constant", "none", "multistep", "cosine_with_restarts"):
        assert f"'{name}'" in problem.message
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (4, 22)
    assert problem.advice == "Did you mean 'cosine'?"


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (["training:warmup_steps=5", "training:warmup_ratio=0.1"], "warm-up is given twice"),
        (["training:warmup_steps=5", "training:max_steps=5"], "the warm-up of 5 steps does not end within the 5"),
        (["training:warmup_ratio=1.0"], "1.0"),
        (["training:lr_scheduler_kwargs={num_cycles: 2}"], "num_cycles is nothing to the schedule linear"),
        (["training:lr_scheduler_kwargs={gamma: 0.5}"], "gamma is nothing to the schedule linear"),
        (["training:lr_scheduler_type=multistep"], "multistep has no milestones"),
        (
            ["training:lr_scheduler_type=multistep", "training:lr_scheduler_kwargs={milestones: [1, 2]}"],
            "the milestone 2 lies behind the run's end at 2",
        ),
        (
            [
                "training:lr_scheduler_type=multistep",
                "training:lr_scheduler_kwargs={milestones: [50]}",
                "training:max_steps=50",
            ],
            "the milestone 50 lies behind the run's end at 50",
        ),
        (["training:lr_scaling=sqrt"], "lr_scaling: sqrt follows steps, and those of this file never change"),
        (
            ["training:per_device_train_batch_size=4", "training:max_batch_size=3"],
            "max_batch_size is 3, and a step has 4 conversations in any case",
        ),
        (
            ["training:max_batch_size=64", "training_automations={DynamicBatchSizeOptimizer: {enabled: false}}"],
            "DynamicBatchSizeOptimizer, which would do it, is switched off",
        ),
        (["training:early_stop_patience=5"], "early_stop_patience waits for a loss that is not given"),
        (["dataset:val=more.jsonl", "dataset:val_share=0.1"], "given twice, as val and as val_share"),
        (["memory:calibration=true"], "true"),
        (["memory:allow_gradient_checkpointing=true"], "true"),
        (["memory:budget=many"], "many"),
        (
            ["model:max_pixels=65536", "memory:shrink_pictures_to=65536"],
            "shrink_pictures_to is 65536, and pictures have no more than max_pixels, 65536, in any case",
        ),
        (["dataset:val_share=1.0"], "1.0"),
        (["dataset:max_length=1"], "1"),
        (["training:learning_rate=0"], "0"),
        (["model:dtype=float16"], "float16"),
        (["model:load_in_4bit=true"], "weights in 4 bits do not learn, and the file has no lora"),
        (
            ["model:load_in_4bit=true", "lora={r: 2, lora_alpha: 4}", "distributed:fully_shard=true"],
            "fully_shard does not go with model.load_in_4bit",
        ),
        (["distributed={fully_shard: true, ddp_overlap: true}"], "are two ways of one thing"),
        (["distributed={fully_shard: true, batches: memory}"], "fully_shard does not go with distributed.batches"),
    ],
)
def test_what_cannot_be(problems: Problems, overrides: list[str], what: str) -> None:
    (problem,) = problems(*overrides, text=SHORT)
    assert what in problem.message
    assert problem.place is not None
    assert problem.advice or "memory" in overrides[0] or problem.place.text


def test_several_problems_come_together(problems: Problems) -> None:
    """One start says all of it, in the order of the file."""
    text = (
        f"{MODEL}training: {{warmup_steps: 5, warmup_ratio: 0.1, early_stop_patience: 3}}\ndataset: {{file: a.jsonl}}\n"
    )
    found = problems(text=text)
    assert [problem.message.split(" ")[0] for problem in found] == [
        "warm-up",
        "early_stop_patience",
        "'path'",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("training:lr=1e-4", "Write learning_rate under training."),
        ("training:epochs=3", "Write num_train_epochs or max_steps under training."),
        ("training:batch_size=3", "Write per_device_train_batch_size under training."),
        ("training:scheduler=cosine", "Write lr_scheduler_type under training, e.g. cosine."),
        ("training:learning_rat=1e-4", "Did you mean 'learning_rate'?"),
        ("training:lora_alpha=8", "Write it under lora."),
        ("training:bf16=true", "Write use_amp: true at the top level"),
        ("training:manual_seed=3", "Write it at the top level."),
        ("training:gradient_checkpointing=true", "Write it under memory."),
        ("training:eval_steps=10", "Write eval_every_epoch under training."),
        ("model:model_name_or_path=x", "Write it as name under model."),
        ("model:min_pixels=3", "Remove it: pictures are only reduced, to max_pixels."),
        ("lora={rank: 8}", "Write r under lora."),
        ("lora={alpha: 8}", "Write lora_alpha under lora."),
        ("train={total_iter: 8}", "Write training: files of fine-tuning call it so."),
        ("datasets={train: {}}", "Write dataset: {path: ...}."),
        ("capture=/path", "Write its conversations as JSON lines"),
        ("scale=2", "an option of super-resolution (task: super_resolution), and this file is of fine-tuning"),
    ],
)
def test_keys_that_it_has_not(problems: Problems, override: str, advice: str) -> None:
    """D49: what other tools call a key."""
    (problem,) = problems(override, text=SHORT)
    assert advice in problem.advice


def test_a_length_in_steps_stands_beside_the_epochs(load: Load) -> None:
    """D32: both are kept; which of them counts is said at the start of a run."""
    training = options_of(load, "training:max_steps=7").training
    assert (training.max_steps, training.num_train_epochs) == (7, 2.0)
    multistep = ["training:lr_scheduler_type=multistep", "training:lr_scheduler_kwargs={milestones: [5]}"]
    assert options_of(load, "training:max_steps=7", *multistep).training.lr_scheduler_kwargs.milestones == [5]


def test_the_task_may_be_said(load: Load, problems: Problems) -> None:
    assert kind_of(options_of(load, text="task: finetune\n" + SHORT)) is TASKS["finetune"]
    other = problems(text="task: text\n" + SHORT)
    assert any("training" in problem.message for problem in other)


def test_commands_for_images_refuse_conversations(load: Load) -> None:
    with pytest.raises(InputError, match="export is for networks of super-resolution") as caught:
        super_resolution_only(load(text=SHORT), "export", "Take from_pretrained.")
    assert "A fine-tuned model answers by test RUN" in caught.value.problems[0].advice


def test_the_budget_is_that_of_the_device(load: Load) -> None:
    memory = options_of(load, "memory={budget: 8GiB, cpu_budget: 600MiB}").memory
    assert memory.budget_bytes("cpu") == 600 * 2**20
    assert memory.budget_bytes("cuda") == 8 * 2**30


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.yml"):
        load_options(tmp_path / "gone.yml")


def test_a_section_training_that_is_misspelt_is_told(load: Load, problems: Problems) -> None:
    """It is no file of language models that forgot to say so."""
    text = FAST.replace("training:", "trainig:") + "dataset: {path: chats.jsonl}\n"
    found = problems(text=text)
    assert any("unknown key 'trainig'" in problem.message and "training" in problem.advice for problem in found)
