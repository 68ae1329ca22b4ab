"""Digits as samples of three tasks."""

import numpy as np
import pytest
import torch

from trainauto.tasks.multitask.digits import (
    CHANGES,
    CLASSES,
    DIGIT_TASKS,
    ORDERS,
    QUESTIONS,
    DigitTasks,
)


def test_the_same_arguments_give_the_same_samples() -> None:
    first, second, other = DigitTasks(40, seed=3), DigitTasks(40, seed=3), DigitTasks(40, seed=4)
    for place in range(40):
        one, two = first[place], second[place]
        assert (one["text"], one["task_type"], one["label"]) == (two["text"], two["task_type"], two["label"])
        assert all(torch.equal(left, right) for left, right in zip(one["images"], two["images"], strict=True))
    assert [first[place]["text"] for place in range(40)] != [other[place]["text"] for place in range(40)]


def test_metadata_is_that_of_the_samples() -> None:
    samples = DigitTasks(60)
    for place in range(60):
        sample, metadata = samples[place], samples.get_sample_metadata(place)
        assert metadata == {"task_type": sample["task_type"], "num_images": len(sample["images"])}
        assert 0 <= sample["label"] < CLASSES[sample["task_type"]]
        assert all(image.shape == (1, 8, 8) and 0 <= image.min() <= image.max() <= 1 for image in sample["images"])


def test_numbers_of_the_tasks_are_their_shares() -> None:
    metadata = [DigitTasks(100).get_sample_metadata(place)["task_type"] for place in range(100)]
    assert [metadata.count(name) for name in DIGIT_TASKS] == [40, 30, 30]
    alone = DigitTasks(10, shares={"T2": 1})
    assert {alone.get_sample_metadata(place)["task_type"] for place in range(10)} == {"T2"}


def test_no_picture_is_in_both_parts() -> None:
    parts = [DigitTasks(5, part=part)._pictures for part in ("train", "test")]
    assert [len(pictures) for pictures in parts] == [1438, 359]
    rows = [{picture.numpy().tobytes() for picture in pictures} for pictures in parts]
    assert not rows[0] & rows[1]


def test_the_second_view_is_the_first_changed() -> None:
    samples = DigitTasks(200, shares={"T2": 1})
    labels = set()
    for place in range(200):
        sample = samples[place]
        first, second = sample["images"]
        change = sample["label"] % len(CHANGES)
        labels.add(change)
        assert torch.equal(list(CHANGES.values())[change](first), second)
    assert labels == set(range(len(CHANGES)))


def test_sums_and_orders() -> None:
    samples = DigitTasks(300, shares={"T3": 1})
    orders = [samples[place]["label"] % ORDERS for place in range(300)]
    assert set(orders) == {0, 1, 2}
    sums = [samples[place]["label"] // ORDERS for place in range(300)]
    assert (min(sums), max(sums)) == (0, 18)
    chosen = samples._chosen[7]
    assert sums[7] == samples._digits[chosen].sum()


def test_texts_have_many_lengths() -> None:
    samples = DigitTasks(80)
    texts = [samples[place]["text"] for place in range(80)]
    assert len({len(text) for text in texts}) > 10
    assert {text.split(" Ink by row")[0] for text in texts} == {
        text for of_task in QUESTIONS.values() for text in of_task
    }
    telling = next(place for place in range(80) if "Ink by row" in texts[place])
    first_row = texts[telling].split("Ink by row: ")[1].split()[0]
    assert int(first_row) == round(float(samples[telling]["images"][0][0, 0].sum()) * 16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"samples": 0}, "samples is 1 to 1048576, got 0"),
        ({"part": "val"}, "part is train or test"),
        ({"shares": {"T4": 1.0}}, "shares has T4; tasks are T1, T2, T3"),
        ({"shares": {"T1": 0.0}}, "shares are 0 or more"),
        ({"shares": {"T1": -1.0, "T2": 2.0}}, "shares are 0 or more"),
    ],
)
def test_what_cannot_be_used(arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DigitTasks(**arguments)


def test_pictures_are_near_the_digits() -> None:
    """The nearest picture of the other part is mostly of the same digit: labels belong to their pictures."""
    train, test = DigitTasks(1), DigitTasks(1, part="test")
    distances = torch.cdist(test._pictures.flatten(1), train._pictures.flatten(1))
    nearest = train._digits[distances.argmin(1).numpy()]
    assert np.mean(nearest == test._digits) > 0.95


def test_shifted_pictures_are_moved_by_a_pixel_at_most() -> None:
    plain, shifted = DigitTasks(60), DigitTasks(60, shifts=True)
    moved = 0
    for place in range(60):
        one, other = plain[place], shifted[place]
        assert (one["label"], one["task_type"]) == (other["label"], other["task_type"])
        picture, seen = one["images"][0], other["images"][0]
        moved += not torch.equal(picture, seen)
        candidates = [torch.zeros(1, 10, 10) for _ in range(9)]
        for number, canvas in enumerate(candidates):
            down, right = divmod(number, 3)
            canvas[:, down : down + 8, right : right + 8] = picture
        assert any(torch.equal(canvas[:, 1:9, 1:9], seen) for canvas in candidates)
        if one["task_type"] == "T2":
            change = list(CHANGES.values())[other["label"] % len(CHANGES)]
            assert torch.equal(change(seen), other["images"][1])
    assert moved > 30
