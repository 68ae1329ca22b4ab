"""No option is dead: runs read every key of the schema, outside of the options package itself."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from tests.integration.commands import gan_options, tiny_options, train_loaded, write_options
from tests.integration.finetune_runs import finetune_options as options_of_finetuning
from tests.integration.finetune_runs import write_chats, write_model
from tests.integration.multitask_runs import multitask_options as options_of_tasks
from tests.integration.text_runs import text_options as options_of_texts
from tests.integration.text_runs import write_texts
from trainauto.build import build_run
from trainauto.builders.data import _dataset_arguments, _warn_of_many_workers
from trainauto.builders.discriminator import _given
from trainauto.builders.distributed_setup import limit_and_sharding, parallel_of
from trainauto.builders.summary import _facts, run_summary
from trainauto.distributed.communicator import Communicator
from trainauto.engine.loop import train
from trainauto.options import (
    dataset_options,
    finetune_options,
    multitask_options,
    resource_options,
    run_options,
    schema,
    text_options,
    training_options,
)
from trainauto.options.degradation_options import KERNEL_SIZES_NOT_USED, MOA_NOT_USED, NOT_USED, KernelOptions
from trainauto.options.load import load_options
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.degradations.presets import REAL_ESRGAN

OPTIONS = Path(schema.__file__).parent
MODULES = (schema, dataset_options, training_options, resource_options)
PROPERTIES = {
    Path(module.__file__) for module in (*MODULES, run_options, text_options, multitask_options, finetune_options)
}  # read for their callers
# Whoever reads there does not use it.
TELLING = (run_summary.__code__, _facts.__code__, _warn_of_many_workers.__code__, _given.__code__)
HANDING_OVER = _dataset_arguments.__code__  # reads by name whatever the dataset takes, and nothing else may count
FOR_DATASETS = {name for kind in DATASETS for name in inspect.signature(DATASETS.get(kind)).parameters}


def sections_of(*modules: ModuleType) -> list[type[BaseModel]]:
    return [
        section
        for module in modules
        for section in vars(module).values()
        if isinstance(section, type) and issubclass(section, BaseModel) and section.__module__ == module.__name__
    ]


SECTIONS = sections_of(*MODULES)
# Some of what all tasks share are sections of texts as they are, others bases of their sections.
TEXT_SECTIONS = [
    *(section for section in sections_of(text_options) if section is not text_options.TextSource),
    run_options.RunLogger,
    run_options.RunPaths,
    resource_options.MemoryOptions,
]
MULTITASK_SECTIONS = [*sections_of(multitask_options), run_options.RunLogger, run_options.RunPaths]
FINETUNE_SECTIONS = [*sections_of(finetune_options), text_options.LoraOptions]

Read = set[tuple[str, str]]


class Pair(Communicator):
    """A rank beside one that says the same."""

    world_size = 2

    def all_gather_object(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [message, message]


def is_within(code: CodeType, function: CodeType) -> bool:
    """Whether code is that of a function, or of a comprehension inside it."""
    return code.co_filename == function.co_filename and code.co_qualname.startswith(function.co_qualname)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Collect (section, key) of every read by what uses it: not by the options package, pydantic, or to be printed."""
    seen: Read = set()
    plain = BaseModel.__getattribute__ if "__getattribute__" in vars(BaseModel) else object.__getattribute__

    def reading(self: BaseModel, name: str) -> Any:
        if name in type(self).model_fields:
            code = sys._getframe(1).f_code
            caller = Path(code.co_filename)
            outside = caller in PROPERTIES or (caller.parent != OPTIONS and "pydantic" not in caller.parts)
            used = code not in TELLING and (not is_within(code, HANDING_OVER) or name in FOR_DATASETS)
            if outside and used:
                seen.add((type(self).__name__, name))
        return plain(self, name)

    for section in {*SECTIONS, *TEXT_SECTIONS, *MULTITASK_SECTIONS, *FINETUNE_SECTIONS}:
        monkeypatch.setattr(section, "__getattribute__", reading, raising=False)
    return seen


def test_every_key_is_read_by_a_run(
    tmp_path: Path, write_images: Callable[..., Path], read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gt = write_images("gt", 3, (60, 60))
    lq = write_images("lq", 3, (30, 30), shrink=2)
    in_steps = tiny_options(
        gt, **gan_options(train={"total_iter": 2}, use_amp=True, training_automations={"PlanSchedule": {"changes": []}})
    )
    in_samples = tiny_options(gt, **gan_options(train={"total_samples": 8}))
    del in_samples["train"]["total_iter"]
    in_steps["train"] |= {"use_moa": True, "moa_augs": ["mixup", "up"], "moa_probs": [1, 2]}
    in_steps["datasets"]["train"]["lq_resize_mode"] = "lanczos"
    in_samples["datasets"]["train"] |= {"augmentation": ["cutmix"], "aug_prob": [1.0]}
    for which, roots in (("train", (gt, lq)), ("val", (gt / "image_001.png", lq / "image_001.png"))):
        paired = {"type": "PairedImageDataset", "dataroot_gt": str(roots[0]), "dataroot_lq": str(roots[1])}
        in_samples["datasets"][which] |= paired
    written = {key: list(value) if isinstance(value, tuple) else value for key, value in REAL_ESRGAN.items()}
    written |= {"thicklines_prob": 0.5} | {f"resize_mode_prob{stage}": [1, 1, 1] for stage in ("", "2", "3")}
    of_kernels = {key: written.pop(key) for key in [*written] if key in KernelOptions.model_fields}
    late = {"weight_schedule": {"start_iter": 0, "ramp_iters": 2, "end_iter": 9}}
    learning = {"total_iter": 1, "losses": [{"type": "l1loss", "target": "gt", **late}]}
    codecs = {"codec_list": ["jpeg", "webp"], "codec_prob": [1, 1], "webp_range": [9, 90], "avif_range": [9, 90]}
    degraded = tiny_options(gt, name="degraded", train=learning, lq_usm=True, **written, **codecs)
    pairs = {"type": "RealESRGANPairedDataset", "dataroot_lq": str(lq), "dataroot_lq_prob": 0.5}
    degraded["datasets"]["train"] |= pairs | of_kernels
    for number, options in enumerate((in_steps, in_samples, degraded)):
        if number == 1:
            weights = next((tmp_path / "experiments").glob("tiny/current/checkpoints/step_*"))
            options["path"] = {f"pretrain_network_{which}": str(weights / f"net_{which}.safetensors") for which in "gd"}
        loaded = load_options(write_options(tmp_path / f"{number}.yml", options))
        with build_run(loaded) as run:
            train(run)
    # What several ranks read besides; they train in tests/integration/test_ranks.py.
    limit_and_sharding(loaded, Pair(), 1)
    parallel_of(loaded.options, Pair())
    every = {(section.__name__, key) for section in SECTIONS for key in section.model_fields}
    read_before = {("Options", key) for key in ("task", "high_order_degradation")}
    not_used = {("Options", key) for key in NOT_USED} | {("TrainOptions", key) for key in MOA_NOT_USED}
    not_used |= {("TrainDataset", key) for key in KERNEL_SIZES_NOT_USED}
    again = {("Options", "second_blur_prob"), ("Options", "output_pixel_format")}  # of blur_prob2, input_pixel_format
    compiled = {("Options", "compile_mode")}  # with use_compile: tests/integration/test_precision.py
    assert every - read == {*read_before, *not_used, *again, *compiled}
    assert len(every) > 50


def test_every_key_of_texts_is_read_by_a_run(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = write_texts(tmp_path, 20)
    from_scratch = options_of_texts(texts, train={"packed": True, "total_epochs": 1}, use_amp=True)
    adapted = options_of_texts(
        texts,
        model={"config": None, "pretrained": str(tmp_path / "experiments" / "tiny" / "current" / "model")},
        tokenizer=None,
        datasets={"val": {"share": None, "path": str(texts)}},
        train={"total_epochs": 1},
        training_automations={"PlanSchedule": {"changes": []}},
    )
    del adapted["tokenizer"]
    adapted["model"]["lora"] = {"target_modules": ["c_attn"]}
    for number, options in enumerate((from_scratch, adapted)):
        loaded = load_options(write_options(tmp_path / f"{number}.yml", options))
        with build_run(loaded) as run:
            train(run)
    every = {(section.__name__, key) for section in TEXT_SECTIONS for key in section.model_fields}
    assert every - read == {("TextOptions", "task")}


def test_every_key_of_several_tasks_is_read_by_a_run(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = options_of_tasks(train={"total_epochs": 1}, datasets={"train": {"samples": 40}}, use_amp=True)
    options["datasets"]["train"]["type"] = "DigitTasks"
    loaded = load_options(write_options(tmp_path / "tasks.yml", options))
    assert train_loaded(loaded) == 0
    every = {(section.__name__, key) for section in MULTITASK_SECTIONS for key in section.model_fields}
    assert every - read == {("MultitaskOptions", "task")}


def test_every_key_of_fine_tuning_is_read_by_a_run(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, chats = write_model(tmp_path / "model"), write_chats(tmp_path / "chats.jsonl", 6)
    training = {"num_train_epochs": 1, "early_stop_loss": 0.01, "lr_scheduler_type": "cosine_with_restarts"}
    options = options_of_finetuning(
        model,
        chats,
        training=training,
        lora={"target_modules": ["q_proj"]},
        dataset={"val_share": 0.3},
        use_amp=True,
    )
    loaded = load_options(write_options(tmp_path / "finetune.yml", options))
    assert train_loaded(loaded) == 0
    every = {(section.__name__, key) for section in FINETUNE_SECTIONS for key in section.model_fields}
    assert every - read == {("FinetuneOptions", "task"), ("FinetuneMemory", "allow_gradient_checkpointing")}
