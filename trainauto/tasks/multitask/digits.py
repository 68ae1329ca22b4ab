"""Handwritten digits as samples of three tasks, each with a question in words: data that every machine has."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from trainauto.tasks.multitask.registry import SAMPLE_SETS

T1, T2, T3 = "T1", "T2", "T3"
DIGIT_TASKS = (T1, T2, T3)
"""One picture (which digit), two views of one (digit and change), two digits (sum, and which is larger)."""

CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "quarter turn": lambda picture: torch.rot90(picture, 1, (-2, -1)),
    "half turn": lambda picture: torch.rot90(picture, 2, (-2, -1)),
    "mirror": lambda picture: picture.flip(-1),
    "negative": lambda picture: 1 - picture,
}
"""How the second view of T2 is made of the first."""

DIGITS, SUMS, ORDERS = 10, 19, 3
"""Answers there are: digits, sums of two, and whether the first is larger, the second, or neither."""

CLASSES: Mapping[str, int] = {T1: DIGITS, T2: DIGITS * len(CHANGES), T3: SUMS * ORDERS}
"""Labels of each task: 0 up to one less."""

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    T1: ("Which digit is this?", "Name the digit in the picture."),
    T2: (
        "Which digit is this, and what was done to its second view?",
        "Name the digit, and how the second picture was made of the first.",
    ),
    T3: (
        "What do the two digits add up to, and which is larger?",
        "Add the digits of both pictures, and say whether the first is larger, the second, or neither.",
    ),
}
MOST_SAMPLES = 2**20
"""Of 1,797 pictures; a larger number is taken for a mistake."""
_BRIGHTEST = 16.0
"""Of scikit-learn's pixels."""
_TEST_EVERY = 5


@SAMPLE_SETS.register("DigitTasks")
class DigitTasks(Dataset[dict[str, Any]]):
    """Samples of three tasks made of scikit-learn's 1,797 pictures of digits, 8 x 8 pixels each.

    The same arguments give the same samples. A sample has ``images`` (a list of one or two tensors (1, 8, 8), values 0
    to 1), ``text`` (a question; every second one goes on to say how much ink each row of the first picture holds, so
    that texts have many lengths), ``task_type`` and ``label``: the digit (T1); ``digit * 4 + change`` (T2);
    ``sum * 3 + order`` (T3).

    Args:
        samples: how many.
        part: ``train`` has four of five pictures, ``test`` every fifth: no picture is in both.
        shares: of the tasks; those that are left out have none.
        seed: of pictures, changes and wordings.
        shifts: whether pictures are moved by up to a pixel to each side, zeros coming in: more to learn from.

    Raises:
        ValueError: an argument cannot be used; the message begins with its name.
    """

    def __init__(
        self,
        samples: int = 6000,
        part: Literal["train", "test"] = "train",
        shares: dict[str, float] | None = None,
        seed: int = 0,
        shifts: bool = False,
    ) -> None:
        if not 1 <= samples <= MOST_SAMPLES:
            raise ValueError(f"samples is 1 to {MOST_SAMPLES}, got {samples}")
        if part not in ("train", "test"):
            raise ValueError(f"part is train or test, got {part}")
        of_tasks = _tasks_of(samples, {T1: 0.4, T2: 0.3, T3: 0.3} if shares is None else shares)
        pictures, digits = _pictures_of(part)
        drawn = np.random.default_rng([seed, part == "test"])
        self._pictures, self._digits = pictures, digits
        self._tasks = drawn.permutation(of_tasks)
        self._chosen = drawn.integers(len(digits), size=(samples, 2))
        self._changes = drawn.integers(len(CHANGES), size=samples)
        self._wordings = drawn.integers(4, size=samples)
        self._shifts = drawn.integers(-1, 2, size=(samples, 2, 2)) if shifts else np.zeros((samples, 2, 2), np.int64)

    def __len__(self) -> int:
        return len(self._tasks)

    def get_sample_metadata(self, idx: int) -> dict[str, Any]:
        """Return task and number of images of a sample, which is not made for that."""
        task = DIGIT_TASKS[self._tasks[idx]]
        return {"task_type": task, "num_images": 1 if task == T1 else 2}

    def __getitem__(self, idx: int) -> dict[str, Any]:
        task = DIGIT_TASKS[self._tasks[idx]]
        first, second = (int(place) for place in self._chosen[idx])
        change = int(self._changes[idx])
        picture, digit = self._shifted(idx, 0), int(self._digits[first])
        if task == T1:
            images, label = [picture], digit
        elif task == T2:
            images, label = [picture, list(CHANGES.values())[change](picture)], digit * len(CHANGES) + change
        else:
            other = int(self._digits[second])
            images, label = [picture, self._shifted(idx, 1)], (digit + other) * ORDERS + _order(digit, other)
        return {"text": self._question(idx, task, picture), "images": images, "task_type": task, "label": label}

    def _shifted(self, idx: int, place: int) -> Tensor:
        """Return the first or second picture that was drawn for a sample."""
        picture = self._pictures[int(self._chosen[idx, place])]
        down, right = (int(pixels) for pixels in self._shifts[idx, place])
        if not (down or right):
            return picture
        height, width = picture.shape[-2:]
        padded = functional.pad(picture, (1, 1, 1, 1))
        return padded[:, 1 - down : 1 - down + height, 1 - right : 1 - right + width]

    def _question(self, idx: int, task: str, picture: Tensor) -> str:
        wording, tells_ink = divmod(int(self._wordings[idx]), 2)
        question = QUESTIONS[task][wording]
        if not tells_ink:
            return question
        rows = (picture[0].sum(-1) * _BRIGHTEST).round().int().tolist()
        return f"{question} Ink by row: {' '.join(map(str, rows))}."


def _order(first: int, second: int) -> int:
    return 0 if first > second else 1 if second > first else 2


def _tasks_of(samples: int, shares: Mapping[str, float]) -> npt.NDArray[np.int64]:
    """Return the task of each sample, as its place in :data:`DIGIT_TASKS`; numbers are within one of their shares.

    Raises:
        ValueError: a share is of no task, negative, or there is none.
    """
    unknown = [name for name in shares if name not in DIGIT_TASKS]
    if unknown:
        raise ValueError(f"shares has {', '.join(unknown)}; tasks are {', '.join(DIGIT_TASKS)}")
    parts = np.array([shares.get(name, 0.0) for name in DIGIT_TASKS])
    if (parts < 0).any() or not parts.sum():
        raise ValueError(f"shares are 0 or more, and one is above it, got {dict(shares)}")
    ends = np.rint(np.cumsum(parts / parts.sum()) * samples).astype(np.int64)
    return np.repeat(np.arange(len(DIGIT_TASKS)), np.diff(ends, prepend=0))


def _pictures_of(part: str) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Return the pictures of a part, (n, 1, 8, 8), and their digits."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    is_test = np.arange(len(loaded.target)) % _TEST_EVERY == _TEST_EVERY - 1
    chosen = is_test if part == "test" else ~is_test
    pictures = torch.from_numpy(loaded.images[chosen] / _BRIGHTEST).float().unsqueeze(1)
    return pictures, loaded.target[chosen].astype(np.int64)
