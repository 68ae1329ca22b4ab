"""Trainings on several tasks under a real memory budget, each in a process of its own: the result is printed as JSON.

    python multitask_worker.py grown FOLDER | whole FOLDER | resumed FOLDER

``grown``: steps of 192 samples, of which more and more fit into a pass; one runs out of memory for real. ``whole``:
three epochs, with a checkpoint after each. ``resumed``: the same again from the first of them.
"""

import hashlib
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from trainauto import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from trainauto.multitask import DynamicBatchingTrainingPipeline, HeterogeneousTrainingConfig  # noqa: E402

MIB = 2**20
BUDGET_MIB = 96
SIDE, CHANNELS = 24, 24
TASKS = ("T1", "T2", "T3")


class Brains:
    """Noise of which each task asks something: whether a picture is bright, two are alike, or one is brighter."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def get_sample_metadata(self, idx: int) -> dict[str, Any]:
        task = TASKS[idx % 3]
        return {"task_type": task, "num_images": 1 if task == "T1" else 2, "num_tokens": 4 + idx % 8}

    def __getitem__(self, index: int) -> dict[str, Any]:
        said = self.get_sample_metadata(index)
        generator = torch.Generator().manual_seed(index)
        images = torch.randn(said["num_images"], 1, SIDE, SIDE, generator=generator)
        images += torch.randn(said["num_images"], 1, 1, 1, generator=generator)
        means = images.mean((1, 2, 3))
        label = int(means[0] > (means[1] if said["task_type"] == "T3" else 0))
        ids = [1 + index % 3, *([4] * (said["num_tokens"] - 1))]
        return {"input_ids": ids, "images": images, "task_type": said["task_type"], "label": label}


class Looks(nn.Module):
    """Convolutions over each picture, then words and pictures together; once it takes more memory than there is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(8, CHANNELS)
        self.eyes = nn.ModuleList(nn.Conv2d(1 if not layer else CHANNELS, CHANNELS, 3, padding=1) for layer in range(3))
        self.mind, self.answer = nn.Linear(3 * CHANNELS, 32), nn.Linear(32, 2)
        self.is_greedy = False

    def forward(self, input_ids: Tensor, pixel_values: Tensor, image_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        del labels
        if self.is_greedy:
            self.is_greedy = False
            torch.ones(2 * BUDGET_MIB * MIB, dtype=torch.uint8)
        rows, most = pixel_values.shape[:2]
        seen = pixel_values.flatten(0, 1)
        for layer in self.eyes:
            seen = torch.relu(layer(seen))
        views = seen.mean((2, 3)).view(rows, most, -1) * image_mask.unsqueeze(2)
        first, last = views[:, 0], views[:, -1]
        return {
            "logits": self.answer(torch.tanh(self.mind(torch.cat([first, last, self.words(input_ids).mean(1)], 1))))
        }


class Greedy(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Has the model take too much in one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, _args: Any, state: Any, _control: Any, model: Any = None, **_others: Any) -> None:
        if state.global_step == self.step:
            model.is_greedy = True


def config(**values: Any) -> HeterogeneousTrainingConfig:
    made = HeterogeneousTrainingConfig()
    for name, value in {"max_memory_mb": BUDGET_MIB, "learning_rate": 3e-3, **values}.items():
        setattr(made, name, value)
    return made


def train(folder: str, told: HeterogeneousTrainingConfig, samples: int, **options: Any) -> Any:
    resume = options.pop("resume", None)
    pipeline = DynamicBatchingTrainingPipeline(
        told,
        Looks(),
        None,
        output_dir=folder,
        device="cpu",
        training_arguments={"disable_tqdm": True, "logging_steps": 1},
        **options,
    )
    return pipeline.train(Brains(samples), Brains(30), resume_from_checkpoint=resume)


def grown(folder: str) -> dict[str, Any]:
    result = train(folder, config(base_batch_size=4, target_batch_size=192, num_epochs=3), 960, callbacks=[Greedy(4)])
    history = result.trainer.state.log_history
    lines = [json.loads(line) for line in result.paths["batch_metrics.jsonl"].read_text().splitlines()]
    return {
        "passes": [entry["forward_batch_size"] for entry in history if "forward_batch_size" in entry],
        "peaks_mib": [entry["peak_memory_mib"] for entry in history if "peak_memory_mib" in entry],
        "ooms": [entry["out_of_memory"] for entry in history if "out_of_memory" in entry],
        "recoveries": [line["batch_idx"] for line in lines if line["is_oom_recovery"]],
        "samples": [line["batch_size"] for line in lines],
        "by_task": dict(sum((Counter(line["per_task_samples"]) for line in lines), Counter())),
        "paths": sorted(result.paths),
        "accuracy": result.trainer.memory_predictor.get_calibration_accuracy(),
        "weights": result.trainer.task_weights,
        "metrics": result.metrics,
    }


def continued(folder: str, resume: str | None) -> dict[str, Any]:
    told = config(base_batch_size=8, target_batch_size=8, num_epochs=3)
    result = train(folder, told, 48, resume=resume)
    state = b"".join(tensor.numpy().tobytes() for tensor in result.trainer.model.state_dict().values())
    lines = [json.loads(line) for line in result.paths["batch_metrics.jsonl"].read_text().splitlines()]
    return {
        "weights": hashlib.sha256(state).hexdigest(),
        "tasks": result.trainer.task_weights,
        "losses": [line["loss"] for line in lines],
    }


def main(what: str, folder: str) -> None:
    logging.basicConfig(level=logging.INFO)
    if what == "grown":
        result = grown(folder)
    else:
        result = continued(folder, str(Path(folder) / "checkpoint-6") if what == "resumed" else None)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
