"""The loss of each sample: the model's own, or of logits and labels."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.losses.sample_losses import losses_of_samples

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 5, 7, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.randint(0, 7, (3, 5), generator=GENERATOR)


def test_the_models_own_come_first() -> None:
    own = torch.tensor([1.0, 2.0, 3.0])
    output = SimpleNamespace(sample_losses=own, logits=LOGITS)
    assert torch.equal(losses_of_samples(output, LABELS, 3), own)
    halves = {"sample_losses": own.bfloat16()}
    assert losses_of_samples(halves, None, 3).dtype == torch.float32


def test_rows_are_means_over_labels_that_count() -> None:
    labels = LABELS.clone()
    labels[0, 2:], labels[2] = -100, -100
    losses = losses_of_samples({"logits": LOGITS}, labels, 3)
    expected = [functional.cross_entropy(LOGITS[0, :2], labels[0, :2]), functional.cross_entropy(LOGITS[1], labels[1])]
    torch.testing.assert_close(losses, torch.stack([*expected, torch.zeros((), dtype=torch.float64)]))


def test_causal_models_predict_the_next_label() -> None:
    losses = losses_of_samples({"logits": LOGITS}, LABELS, 3, shifts_labels=True)
    torch.testing.assert_close(losses[1], functional.cross_entropy(LOGITS[1, :-1], LABELS[1, 1:]))


def test_classes_and_numbers() -> None:
    labels = torch.tensor([1, 0, -100])
    losses = losses_of_samples({"logits": LOGITS[:, 0]}, labels, 3)
    torch.testing.assert_close(losses[:2], functional.cross_entropy(LOGITS[:2, 0], labels[:2], reduction="none"))
    assert losses[2] == 0
    numbers = torch.tensor([1.0, 2.0, 3.0])
    for shape in ((3,), (3, 1)):
        squares = losses_of_samples({"logits": torch.zeros(shape)}, numbers, 3)
        torch.testing.assert_close(squares, numbers.square())


def test_one_value_for_each_is_a_number_to_learn_also_where_all_of_a_batch_are_whole() -> None:
    """Cross entropy of one class is 0 whatever it is given, and fails on a label of 1."""
    values = torch.tensor([[0.5], [2.0], [0.0], [7.0]])
    losses = losses_of_samples({"logits": values}, torch.tensor([1, 0, 0, -100]), 4)
    assert losses.tolist() == [0.25, 4.0, 0.0, 0.0]
    rows = losses_of_samples({"logits": values.view(2, 2, 1)}, torch.tensor([[1, 0], [0, -100]]), 2)
    assert rows.tolist() == [2.125, 0.0]


@pytest.mark.parametrize(
    ("output", "labels", "words"),
    [
        ({"loss": torch.ones(())}, LABELS, "neither sample_losses nor logits"),
        ({"logits": LOGITS}, None, "the batch has no labels"),
        ({"sample_losses": torch.ones(2)}, LABELS, r"shape \(2,\) for 3 samples"),
        ({"logits": LOGITS}, LABELS[:, :2], "do not go with labels"),
        ({"logits": LOGITS}, torch.ones(3), "do not go with numbers"),
    ],
)
def test_what_says_no_loss_of_each_sample_is_refused(output: dict[str, Any], labels: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        losses_of_samples(output, labels, 3)
