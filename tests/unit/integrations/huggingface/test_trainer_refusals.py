"""What a memory-aware Trainer refuses in words, and former names of arguments."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset
from transformers import TrainingArguments

from tests.trainers import arguments, rows, tiny_model, watched
from trainauto.core.errors import InputError
from trainauto.huggingface import MemoryAwareTrainer, MemoryAwareTrainingArguments
from trainauto.integrations.huggingface.refusals import check_trainer


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(rows())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auto_find_batch_size": True}, "auto_find_batch_size restarts training"),
        ({"torch_compile": True}, "torch_compile compiles anew for each batch size"),
        ({"dataloader_drop_last": True}, "every sample comes exactly once an epoch"),
        ({"train_sampling_strategy": "batch_rebalance"}, "makes batches of a fixed size"),
        ({"optim": "galore_adamw_layerwise"}, "optim='galore_adamw_layerwise' changes weights in the backward pass"),
        (
            {"per_device_train_batch_size": 8, "max_batch_size": 4},
            "per_device_train_batch_size=8 is above max_batch_size=4",
        ),
        (
            {"per_device_train_batch_size": 2, "min_batch_size": 4},
            "min_batch_size=4 must lie between 1 and per_device.*=2",
        ),
        ({"per_device_train_batch_size": 0}, "^per_device_train_batch_size must be 1 or more, got 0$"),
        ({"max_batch_size": "64"}, "^max_batch_size is a whole number, got '64': write 64$"),
        ({"tokens_per_batch": 64, "max_batch_size": 32}, "write max_tokens_per_batch"),
        ({"eval_samples": 10}, "eval_samples asks for evaluations, of nothing"),
        ({"max_tokens_per_batch": 64}, "max_tokens_per_batch bounds tokens_per_batch"),
        ({"tokens_per_batch": 64, "max_tokens_per_batch": 32}, "tokens_per_batch begins with 64, above"),
    ],
)
def test_what_batches_by_memory_do_not_go_with(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        watched(tmp_path, tiny_model(), rows(), **options)


def test_datasets_that_can_only_be_iterated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train_dataset can only be iterated"):
        watched(tmp_path, tiny_model(), Endless(), max_steps=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "name", "value", "words"),
    [
        ("trainer", "is_fsdp_enabled", True, "FSDP gathers weights"),
        ("trainer", "is_deepspeed_enabled", True, "DeepSpeed steps and accumulates"),
        ("trainer", "is_model_parallel", True, "device_map has spread the model"),
        ("model", "hf_device_map", {"layers.0": 0, "layers.1": 1}, "device_map has spread the model"),
        ("args", "_n_gpu", 2, "2 cards in one process"),
        ("trainer", "is_distributed_loading_by_transformers", True, "divided among processes"),
        ("args", "parallelism_config", SimpleNamespace(tp_size=2), "divided among processes"),
    ],
)
def test_other_owners_of_memory(tmp_path: Path, where: str, name: str, value: Any, words: str) -> None:
    """Said before training, whoever has set it: none of them can be set up on one CPU."""
    trainer = watched(tmp_path, tiny_model(), rows())
    setattr(trainer if where == "trainer" else getattr(trainer, where), name, value)
    with pytest.raises(InputError, match=words):
        check_trainer(trainer)


def test_former_names_are_mapped(tmp_path: Path) -> None:
    args = arguments(tmp_path, warmup_ratio=0.1, group_by_length=True, overwrite_output_dir=True)
    for same in (args, dataclasses.replace(args)):
        assert (same.warmup_steps, same.train_sampling_strategy) == (0.1, "group_by_length")


@pytest.mark.parametrize(
    "options",
    [
        {"warmup_ratio": 0.1, "warmup_steps": 10},
        {"warmup_ratio": 1.5},
        {"group_by_length": True, "train_sampling_strategy": "sequential"},
    ],
)
def test_former_names_that_contradict_others(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"leave one of them out|a share of the run below 1"):
        arguments(tmp_path, **options)


def test_arguments_come_from_a_command_line(tmp_path: Path) -> None:
    from transformers import HfArgumentParser

    line = f"--output_dir {tmp_path} --max_batch_size 64 --memory_budget 1GiB --memory_settings".split()
    (args,) = HfArgumentParser(MemoryAwareTrainingArguments).parse_args_into_dataclasses(
        [*line, '{"target_vram_usage": 0.9}']
    )
    assert (args.max_batch_size, args.memory_budget) == (64, "1GiB")
    trainer = MemoryAwareTrainer(model=tiny_model(), args=args, train_dataset=rows())
    assert trainer.memory_target == 0.9


def test_unknown_settings_name_the_nearest(tmp_path: Path) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), memory_settings={"target_vram": 0.9})
    with pytest.raises(InputError, match="Did you mean 'target_vram_usage'"):
        trainer.train()


def test_plain_arguments_will_do(tmp_path: Path) -> None:
    """One class is swapped, and nothing else."""
    args = TrainingArguments(
        str(tmp_path), report_to=[], use_cpu=True, save_strategy="no", per_device_train_batch_size=7, num_train_epochs=1
    )
    trainer = MemoryAwareTrainer(model=tiny_model(), args=args, train_dataset=rows())
    trainer.train()
    assert trainer.state.epoch == 1
    assert (tmp_path / "memory" / "current" / "training_log.jsonl").exists()
    assert torch.isfinite(next(trainer.model.parameters())).all()


@pytest.mark.parametrize(("dataset", "words"), [(None, "there is nothing to train on"), ([], "train_dataset is empty")])
def test_nothing_to_train_on(tmp_path: Path, dataset: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        watched(tmp_path, tiny_model(), dataset).train()


def one_long_row(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([sample[name] for sample in samples])[None] for name in samples[0]}


def many_patches(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    whole = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    return {**whole, "pixel_values": torch.zeros(4 * len(samples), 3)}


@pytest.mark.parametrize("collate", [one_long_row, many_patches])
def test_collators_whose_batches_cannot_be_divided(tmp_path: Path, collate: Any) -> None:
    trainer = watched(tmp_path, tiny_model(), rows(), more={"data_collator": collate}, remove_unused_columns=False)
    with pytest.raises(InputError, match="the batches that data_collator makes cannot be divided") as caught:
        trainer.train()
    assert "workload" not in str(caught.value)
    assert str(caught.value).count("cannot be divided") == 1
