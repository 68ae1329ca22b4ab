"""Reading some of a real set."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.commands.doctor_checks import reading_speed as module
from trainauto.commands.doctor_checks.reading_speed import reading
from trainauto.core.errors import InputError
from trainauto.tasks.sr.data.file_datasets import GTImageDataset

Write = Callable[..., Path]


def test_up_to_twenty_images_spread_over_the_set(write_images: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = GTImageDataset(str(write_images("gt", 30, (40, 50))), scale=2)
    asked: list[int] = []
    original = GTImageDataset.__getitem__
    monkeypatch.setattr(
        GTImageDataset, "__getitem__", lambda self, key: asked.append(key.sample) or original(self, key)
    )
    found = reading(dataset, 16)
    assert (found["images"], found["of"]) == (20, 30)
    assert found["megapixels"] == pytest.approx(20 * 40 * 50 / 1e6)
    assert found["decode_seconds"] > 0 < found["sample_seconds"]
    assert (asked[0], asked[-1], len(set(asked))) == (0, 28, 20)


def test_it_ends_in_time_and_at_a_damaged_file(write_images: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    gt = write_images("gt", 3)
    dataset = GTImageDataset(str(gt), scale=2)
    (gt / "image_002.png").write_bytes((gt / "image_002.png").read_bytes()[:200] + bytes(4000))
    with pytest.raises(InputError, match="image_002"):
        reading(dataset, 16)
    monkeypatch.setattr(module, "MOST_SECONDS", 0.0)
    assert reading(dataset, 16)["images"] == 1
