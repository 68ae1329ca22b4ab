"""Damaged JPEGs where processes decode: workers of a loader, and those that decode all images before a run."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.tasks.sr.data.test_damaged_images import damage_middle
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.tasks.sr.data.image_dataset import damaged_among
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.reading import Reading

Write = Callable[..., Path]


@pytest.fixture
def damaged(write_images: Write) -> Path:
    folder = write_images("photographs", 3, (200, 300), suffix=".jpg")
    damage_middle(folder / "image_001.jpg")
    return folder


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_photograph_is_named_once_when_it_is_read(
    damaged: Path, workers: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert GTImageDataset(str(damaged), scale=2).scan().samples == 3, "its header and its end are whole"
    plan = Plan.of(batch_size=2, lq_size=16)
    with DynamicDataLoader(GTImageDataset(str(damaged), scale=2), plan, seed=1, num_workers=workers) as loader:
        batches = iter(loader)
        for _ in range(12):
            next(batches)
    named = [message for message in caplog.messages if "image_001.jpg is damaged" in message]
    assert len(named) == 1
    assert "Corrupt JPEG data" in named[0]
    assert "image_000" not in caplog.text
    assert "Corrupt JPEG data" not in capfd.readouterr().err, "it is said with its name only"


@pytest.mark.parametrize("few", [0, 64])
def test_decoding_all_refuses_damaged_ones(damaged: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.tasks.sr.data.image_dataset.FEW", few)
    whole = (damaged / "image_000.jpg").read_bytes()
    (damaged / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(InputError, match=r"broken\.png"):
        GTImageDataset(str(damaged), scale=2, reading=Reading(decode_all=True)).scan()
    (damaged / "broken.png").unlink()
    with pytest.raises(InputError, match=r"'train': .*image_001\.jpg is damaged: Corrupt JPEG data") as caught:
        GTImageDataset(str(damaged), scale=2, reading=Reading(decode_all=True)).scan()
    assert len(caught.value.problems) == 1
    (damaged / "image_001.jpg").write_bytes(whole)
    assert GTImageDataset(str(damaged), scale=2, reading=Reading(decode_all=True)).scan().samples == 3


def _die(_path: str, form: PixelFormat) -> str:
    os._exit(form.channels)


def test_killed_process_that_decodes_is_one_block(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.tasks.sr.data.image_dataset.FEW", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)  # one core would decode in this process
    monkeypatch.setattr("trainauto.tasks.sr.data.image_dataset._damage", _die)
    with pytest.raises(InputError, match=r"'train': a process .* was killed\n  Memory"):
        list(damaged_among([str(damaged / "image_000.jpg")], PixelFormat(3), "train"))
