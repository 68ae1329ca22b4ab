"""Option files of `task: text`: what they take, and what is said of what they do not."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions, load_options, super_resolution_only
from trainauto.options.schema import Options
from trainauto.options.text_options import TextOptions, row_width

TEXT = """\
name: gpt
task: text
model:
  config: {model_type: gpt2, n_embd: 64}
tokenizer: {train: {vocab_size: 500}}
datasets:
  train: {path: texts, max_length: 128}
  val: {share: 0.1}
train:
  total_epochs: 2
  optim: {type: AdamW, lr: 1e-3}
"""

Problems = Callable[..., tuple[Problem, ...]]


def test_a_file_of_texts(load: Callable[..., LoadedOptions]) -> None:
    options = load(text=TEXT).options
    assert isinstance(options, TextOptions)
    assert options.model.config == {"model_type": "gpt2", "n_embd": 64}
    assert (options.train.tokens_per_batch, options.train.packed, row_width(options)) == (2048, False, 128)


def test_the_shipped_file_loads() -> None:
    loaded = load_options(Path(__file__).parents[3] / "options" / "text" / "tiny_gpt.yml")
    assert isinstance(loaded.options, TextOptions)


def test_without_a_task_a_file_is_of_super_resolution(load: Callable[..., LoadedOptions]) -> None:
    plain, said = load(), load("task=super_resolution")
    assert isinstance(plain.options, Options)
    assert plain.options == said.options
    assert "task" not in plain.options.model_dump()  # config.json stays what it was


def test_a_task_that_there_is_not(problems: Problems) -> None:
    (problem,) = problems("task=texts", text=TEXT)
    assert problem.message == "there is no task 'texts'"
    assert "'text'" in problem.advice


def test_a_file_of_texts_that_does_not_say_so(problems: Problems) -> None:
    """B34: one problem, not those of a file of images."""
    (problem,) = problems(text=TEXT.replace("task: text\n", ""))
    assert problem.message == "the file has model and tokenizer of a language model, and does not say so"
    assert problem.advice == "Add task: text."


@pytest.mark.parametrize(
    ("text", "override", "advice"),
    [
        (
            True,
            "scale=2",
            "an option of super-resolution (task: super_resolution), and this file is of langu",
        ),
        (True, "datasets:train:dataroot_gt=x", "Write path."),
        (True, "datasets:train:batch_size_per_gpu=4", "Write tokens_per_batch under train"),
        (True, "train:optim_g={type: Adam}", "Write optim."),
        (True, "train:tokens_per_batc=4", "Did you mean 'tokens_per_batch'?"),
        (False, "tokenizer={train: {}}", "an option of language models (task: text), and this file is of super-res"),
        (False, "train:tokens_per_batch=4", "an option of language models (task: text), and this file is of super-res"),
        (False, "train:optim={type: Adam}", "Did you mean 'optim_g'?"),
    ],
)
def test_keys_of_another_task(problems: Problems, text: bool, override: str, advice: str) -> None:
    (problem,) = problems(override, **({"text": TEXT} if text else {}))
    assert advice in problem.advice


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (["model:pretrained=gpt2"], "the model is given twice"),
        (["model:config=null"], "the model has neither config nor pretrained"),
        (["model:config={n_embd: 64}"], "config does not say which kind of model it is"),
        (["tokenizer:pretrained=gpt2"], "the tokenizer is given twice"),
        (["tokenizer={}"], "nothing says what cuts texts into tokens"),
        (["device=cpu", "model:attention=flex_attention"], "flex_attention has no backward pass on a CPU"),
        (["train:total_samples=9", "train:total_epochs=2"], "the run has 2 lengths, total_epochs and total_samples"),
        (["train:total_epochs=null"], "the run has no length"),
        (["train:warmup_steps=5"], "warmup_steps counts steps in a run that counts samples"),
        (["train:row_length=256"], "row_length is that of packed rows, and packed is false"),
        (["train:packed=true", "train:row_length=64"], "rows of 64 tokens cannot hold samples of 128"),
        (["train:packed=true", "model:kind=encoder_decoder"], "packed rows are for causal models"),
        (["train:tokens_per_batch=100"], "100 tokens hold no row of 128"),
        (["datasets:train:num_worker_per_gpu=5"], "5 workers cannot all be busy"),
        (["datasets:val:path=x"], "datasets.val is given twice, as path and as share"),
        (["datasets:val:too_long=drop"], "too_long is that of files, and datasets.val is a share"),
        (["datasets:train:halves=true"], "a causal model learns whole texts"),
        (["datasets:val={}"], "datasets.val has no texts"),
        (["datasets:train:path=[]"], "path names nothing"),
        (["datasets:val_2={share: 0.1, name: b}"], "datasets.val takes a share of the training texts already"),
        (["datasets:val:name=TRAIN"], "are both named 'TRAIN'"),
        (["datasets:train:max_target_length=9"], "a causal model has no targets"),
        (["datasets:val=null", "val:val_freq=5"], "there are validation options, and no validation set"),
        (["model:config:n_layer=100000000"], "n_layer is above 4096"),
        (["model:config:n_layer=-1"], "n_layer is -1"),
        (["model:config:n_embd=9000000000"], "n_embd is above"),
    ],
)
def test_what_cannot_work_together(problems: Problems, overrides: list[str], what: str) -> None:
    (problem,) = problems(*overrides, text=TEXT)
    assert what in problem.message
    assert problem.advice
    assert problem.place is not None


def test_commands_for_images_refuse_texts(load: Callable[..., LoadedOptions]) -> None:
    assert super_resolution_only(load(), "export", "-").options.network_g.type
    with pytest.raises(InputError, match="export is for networks of super-resolution, and this file is of lang"):
        super_resolution_only(load(text=TEXT), "export", "Take from_pretrained.")


def test_the_page_shows_a_file_that_loads(load: Callable[..., LoadedOptions]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "text.md").read_text(encoding="utf-8")
    whole, adapters = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    options = load(text=whole).options
    assert isinstance(options, TextOptions)
    assert options.train.tokens_per_batch == 4096
    model = yaml.safe_load(adapters)["model"]
    adapted = load(f"model={yaml.safe_dump(model, default_flow_style=True, width=1000).strip()}", text=whole).options
    assert isinstance(adapted, TextOptions)
    assert adapted.model.lora is not None
    assert adapted.model.lora.target_modules == ["c_attn"]
