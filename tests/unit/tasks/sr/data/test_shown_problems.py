"""Of many problems of a set the first are shown, and the others are counted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.data import GTImageDataset
from trainauto.tasks.sr.data.image_dataset import SHOWN_PROBLEMS

Write = Callable[..., Path]


@pytest.mark.parametrize(("damaged", "last"), [(1, "... and 1 more problem"), (3, "... and 3 more problems")])
def test_problems_that_are_not_shown_are_counted_as_problems(write_images: Write, damaged: int, last: str) -> None:
    """Not as files: a problem may be that of many files alike."""
    folder = write_images("damaged", 1)
    for index in range(SHOWN_PROBLEMS + damaged):
        (folder / f"text_{index:02}.png").write_bytes(b"this is text")
    with pytest.raises(InputError) as caught:
        GTImageDataset(str(folder), scale=2, name="photos").scan()
    problems = caught.value.problems
    assert len(problems) == SHOWN_PROBLEMS + 1
    assert problems[-1].message == last
