"""The whole training of a configuration, in small; a real budget and a resume are in tests/integration."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from tests.several_tasks import TASKS, WIDTH
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.config import HeterogeneousTrainingConfig
from trainauto.tasks.multitask.pipeline import DynamicBatchingTrainingPipeline
from trainauto.tasks.multitask.pipeline_arguments import training_arguments


class Pictures:
    """Rows of tokens with one or two pictures, and a label that follows from them."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.values = torch.randn(count, 2, 1, WIDTH, WIDTH, generator=generator)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> dict[str, Any]:
        count = 1 + (index % 3 == 2)
        images = list(self.values[index, :count])
        ids = [1 + index % 3, *([2] * (index % 4))]
        return {"input_ids": ids, "images": images, "task_type": TASKS[index % 3], "label": int(images[0].mean() > 0)}


class Looks(nn.Module):
    """Sees pictures and words together."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.eyes = nn.Embedding(8, 8), nn.Linear(WIDTH * WIDTH, 8)
        self.mind, self.answer = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, pixel_values: Tensor, image_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        del labels
        seen = (self.eyes(pixel_values.flatten(2)) * image_mask.unsqueeze(2)).sum(1)
        return {"logits": self.answer(torch.tanh(self.mind(self.words(input_ids).mean(1) + seen)))}


def config(**values: Any) -> HeterogeneousTrainingConfig:
    settings = {"base_batch_size": 4, "target_batch_size": 8, "num_epochs": 2, "learning_rate": 1e-2}
    return HeterogeneousTrainingConfig(**{**settings, **values})


def pipeline(folder: Path, told: HeterogeneousTrainingConfig, **options: Any) -> DynamicBatchingTrainingPipeline:
    more = {"disable_tqdm": True, **options.pop("training_arguments", {})}
    return DynamicBatchingTrainingPipeline(
        told, Looks(), None, output_dir=folder, device="cpu", training_arguments=more, **options
    )


def test_a_training_leaves_metrics_a_report_and_files(tmp_path: Path) -> None:
    """A28, A60 to A64; tasks of other names than the example's, and a limit above what there is."""
    folder = tmp_path / "outputs" / "first"  # neither is there yet
    result = pipeline(folder, config(max_memory_mb=10**9)).train(Pictures(24), Pictures(6))
    assert result.trainer is not None
    assert result.trainer.memory is not None
    assert result.trainer.memory.progress.samples == 48
    assert result.trainer.state.global_step == 6
    assert {"train_loss", "eval_loss", "eval_loss_a", "eval_loss_c"} <= result.metrics.keys()
    wanted = {
        "batch_metrics.jsonl",
        "batch_metrics.json",
        "epoch_metrics.json",
        "training_report.json",
        "training_curves.png",
        "task_comparison.png",
    }
    assert wanted <= result.paths.keys()
    batches = json.loads(result.paths["batch_metrics.json"].read_text())
    assert len(batches) == 6
    assert set(batches[0]["per_task_loss"]) <= set(TASKS)
    assert json.loads(result.paths["training_report.json"].read_text()) == json.loads(json.dumps(result.report))
    assert (folder / "model.safetensors").is_file()
    assert json.loads((folder / "training_config.json").read_text())["target_batch_size"] == 8


def test_a_task_that_is_named_must_be_there(tmp_path: Path) -> None:
    """Written by a person; the defaults name those of the example, which need not be there."""
    told = config(initial_task_loss_weights={"a": 2.0, "bb": 1.0})
    with pytest.raises(InputError, match=r"initial_task_loss_weights names the task 'bb'.*\n.*Did you mean 'b'"):
        pipeline(tmp_path, told).train(Pictures(6))


def test_arguments_follow_from_the_configuration(tmp_path: Path) -> None:
    """A13 to A18, A26, A27."""

    def told(more: dict[str, Any] | None = None, **values: Any) -> Any:
        written = config(**values)
        return training_arguments(written, tmp_path, 100, more or {}, on_cpu=True, evaluates=False)

    args = told()
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps, args.max_batch_size) == (4, 2, None)
    assert (args.max_steps, args.num_train_epochs, args.warmup_steps) == (-1, 2, 2)
    args = told(use_gradient_accumulation=False, max_steps=70, warmup_steps=9)
    assert (args.gradient_accumulation_steps, args.max_batch_size) == (1, 8)
    assert (args.max_steps, args.warmup_steps) == (70, 9)
    assert told(use_gradient_accumulation=False).warmup_steps == 5  # of 50 steps of 4 samples
    assert told({"seed": 7}).seed == 7
    assert (told().save_strategy, told({"save_steps": 10}).save_strategy) == ("epoch", "steps")
    with pytest.raises(InputError, match=r"has learning_rate, which the configuration says\n.*config.learning_rate"):
        told({"learning_rate": 1.0})


def test_what_cannot_be_used_is_refused_before_anything_happens(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a share"):
        pipeline(tmp_path, config(memory_margin_percent=10)).train(Pictures(6))
    assert not list(tmp_path.iterdir())


def lines(result: Any, name: str) -> list[dict[str, Any]]:
    """The lines of a file of a run."""
    file = next(result.output_dir.rglob(name))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_batches_that_may_grow_are_packed_by_what_they_cost(tmp_path: Path) -> None:
    """A37, A38: samples of one and of two pictures; as many as there are an epoch, none beyond its plan."""
    told = config(use_gradient_accumulation=False, target_batch_size=6, max_memory_mb=10**9)
    result = pipeline(tmp_path, told).train(Pictures(24))
    steps = lines(result, "training_log.jsonl")
    assert sum(step["samples"] for step in steps) == 48
    for step in steps:
        assert step["samples"] <= 6
        assert step["samples"] * step["extent"] <= step["plan"]["tokens"]
    assert len({step["extent"] for step in steps}) > 1, "neighbours in size are packed together"
    assert result.trainer is not None
    assert result.trainer.memory is not None
    data = result.trainer.memory.data
    assert data.growth.longest == data.samples.workload.shape(data.samples.workload.dummy(1, 0)).tokens


def test_shares_of_tasks_are_kept_to_where_they_were_written(tmp_path: Path) -> None:
    """A22, A40: with replacement, exactly; steps of a fixed number of samples."""
    told = config(task_distribution={"a": 0.5, "b": 0.25, "c": 0.25}, num_epochs=4)
    result = pipeline(tmp_path, told, sampling="replacement").train(Pictures(24))
    epochs = lines(result, "epoch_metrics.jsonl")
    assert [epoch["per_task_samples"] for epoch in epochs] == [{"a": 12, "b": 6, "c": 6}] * 4


def test_tasks_that_are_only_evaluated_are_refused_before_the_training(tmp_path: Path) -> None:
    class Strange(Pictures):
        def get_sample_metadata(self, idx: int) -> dict[str, Any]:
            return {"task_type": "strange", "num_images": 1 + (idx % 3 == 2)}

    for evaluated in (Strange(6), {"usual": Pictures(6), "other": Strange(6)}):
        with pytest.raises(InputError, match="eval_dataset has samples of strange"):
            pipeline(tmp_path, config()).train(Pictures(12), evaluated)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_rate_is_never_scaled_for_more_samples_than_a_step_may_hold(tmp_path: Path) -> None:
    """A50: batches of one and two pictures, packed; by what pictures cost alone a step of 6 was taken for one of 9."""
    rates: list[float] = []

    class Rates(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, _args: Any, _state: Any, _control: Any, **others: Any) -> None:
            inner = others["optimizer"].optimizer
            inner.register_step_pre_hook(lambda chosen, *_: rates.append(chosen.param_groups[0]["lr"]))

    told = config(use_gradient_accumulation=False, target_batch_size=6, max_memory_mb=10**9, warmup_steps=0)
    more = {"lr_scheduler_type": "constant"}
    pipeline(tmp_path, told, callbacks=[Rates()], training_arguments=more).train(Pictures(24))
    assert rates
    assert max(rates) <= 1e-2 * (6 / 4) ** 0.5 + 1e-9


def test_quotas_that_nobody_wrote_are_the_defaults_where_these_name_all_tasks(tmp_path: Path) -> None:
    """A22: they were taken for no quotas at all, also where they had been written as the advice says."""
    run = pipeline(tmp_path, config(), sampling="replacement")
    assert run._mixing(["T1", "T3"]).task_distribution == {"T1": 0.4, "T3": 0.3}
    assert run._mixing(["a", "T3"]).task_distribution is None
    assert pipeline(tmp_path, config())._mixing(["T1", "T3"]).task_distribution is None
    shares = {"T1": 0.4, "T2": 0.3, "T3": 0.3}
    assert pipeline(tmp_path, config(task_distribution=shares))._mixing(list(shares)).task_distribution == shares
