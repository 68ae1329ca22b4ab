"""The model of the digits: what it reads, and what its losses are."""

from typing import Any

import pytest
import torch

from trainauto.tasks.multitask.digits import CLASSES, DIGIT_TASKS, DigitTasks
from trainauto.tasks.multitask.digits_model import DigitsModel


def batch_of(samples: list[dict[str, Any]], length: int = 12, most: int = 2) -> dict[str, Any]:
    """Return a batch whose texts are letters, cut to ``length``."""
    codes = [[ord(letter) % 50 + 1 for letter in sample["text"][:length]] for sample in samples]
    padded = [row + [0] * (length - len(row)) for row in codes]
    pixels = torch.zeros(len(samples), most, 1, 8, 8)
    mask = torch.zeros(len(samples), most, dtype=torch.bool)
    for row, sample in enumerate(samples):
        for place, image in enumerate(sample["images"]):
            pixels[row, place], mask[row, place] = image, True
    ids = torch.tensor(padded)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "pixel_values": pixels,
        "image_mask": mask,
        "task_ids": torch.tensor([DIGIT_TASKS.index(sample["task_type"]) for sample in samples]),
        "labels": torch.tensor([sample["label"] for sample in samples]),
        "metadata": [{} for _ in samples],
    }


def inputs_of(samples: list[dict[str, Any]], **how: int) -> dict[str, Any]:
    batch = batch_of(samples, **how)
    del batch["metadata"]
    return batch


@pytest.fixture
def model() -> DigitsModel:
    torch.manual_seed(0)
    return DigitsModel(64, hidden_size=32, layers=1).eval()


@pytest.fixture
def samples() -> list[dict[str, Any]]:
    digits = DigitTasks(24)
    return [digits[place] for place in range(24)]


def test_losses_at_the_start_are_those_of_knowing_nothing(model: DigitsModel, samples: list[dict[str, Any]]) -> None:
    output = model(**inputs_of(samples))
    assert output["sample_losses"].shape == (24,)
    assert torch.allclose(output["loss"], output["sample_losses"].mean())
    for place, task in enumerate(DIGIT_TASKS):
        of_task = [number for number, sample in enumerate(samples) if sample["task_type"] == task]
        wanted = torch.tensor(float(CLASSES[task])).log()
        assert abs(output["sample_losses"][of_task].mean() - wanted) < 0.6, place


def test_predictions_are_labels_of_the_task(model: DigitsModel, samples: list[dict[str, Any]]) -> None:
    predictions = model(**inputs_of(samples))["predictions"].tolist()
    assert all(0 <= label < CLASSES[sample["task_type"]] for label, sample in zip(predictions, samples, strict=True))
    without = inputs_of(samples)
    del without["labels"]
    output = model(**without)
    assert "loss" not in output
    assert output["predictions"].tolist() == predictions


def test_padding_changes_nothing(model: DigitsModel, samples: list[dict[str, Any]]) -> None:
    """A sample's loss is the same beside longer texts and more images."""
    alone = [sample for sample in samples if sample["task_type"] == "T1"][:3]
    narrow = model(**inputs_of(alone, most=1))["sample_losses"]
    wide = model(**inputs_of(alone, length=12, most=2))["sample_losses"]
    assert torch.allclose(narrow, wide, atol=1e-5)
    garbage = inputs_of(alone)
    garbage["pixel_values"][:, 1] = 9.0
    assert torch.allclose(model(**garbage)["sample_losses"], wide, atol=1e-5)


def test_samples_without_images_have_an_answer(model: DigitsModel, samples: list[dict[str, Any]]) -> None:
    none = inputs_of([{**sample, "images": []} for sample in samples[:2]], most=0)
    assert torch.isfinite(model(**none)["loss"])


def test_names_in_another_order(samples: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    usual = DigitsModel(64, hidden_size=32, layers=1).eval()
    torch.manual_seed(0)
    turned = DigitsModel(64, tasks=DIGIT_TASKS[::-1], hidden_size=32, layers=1).eval()
    batch = inputs_of(samples)
    losses = usual(**batch)["sample_losses"]
    assert torch.equal(turned(**{**batch, "task_ids": 2 - batch["task_ids"]})["sample_losses"], losses)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"hidden_size": 30, "heads": 4}, "heads divides hidden_size"), ({"tasks": ("T9",)}, "tasks has T9")],
)
def test_what_cannot_be_used(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DigitsModel(10, **arguments)


def test_it_learns(samples: list[dict[str, Any]]) -> None:
    """A few steps on a few samples, by heart."""
    torch.manual_seed(0)
    model = DigitsModel(64, hidden_size=32, layers=1).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    batch = inputs_of(samples)
    for _ in range(120):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        is_right = model.eval()(**batch)["predictions"] == batch["labels"]
    assert is_right.float().mean() > 0.8
