"""What of a card is this process's to use, and how its allocator holds it."""

import pytest
import torch

from trainauto.core import process
from trainauto.memory.cuda_allocator.segments import any_expandable, uses_expandable_segments
from trainauto.memory.monitor.device_use import HEADROOM_BYTES, available_bytes

GIB = 1024**3


def test_neighbours_leave_less() -> None:
    """Other processes move the limit: only what they leave of the card may be taken."""
    alone = available_bytes(used=5 * GIB, own_reserved=5 * GIB, total=12 * GIB, limit=12 * GIB)
    assert alone == 12 * GIB - HEADROOM_BYTES
    assert available_bytes(8 * GIB, 5 * GIB, 12 * GIB, 12 * GIB) == alone - 3 * GIB
    assert available_bytes(20 * GIB, 5 * GIB, 12 * GIB, None) == 0


def test_a_budget_bounds_what_is_there() -> None:
    assert available_bytes(5 * GIB, 5 * GIB, 12 * GIB, 10 * GIB) == 10 * GIB
    assert available_bytes(9 * GIB, 5 * GIB, 12 * GIB, 10 * GIB) == 8 * GIB - HEADROOM_BYTES


def test_segments_of_another_device_say_nothing() -> None:
    segments = [{"device": 0, "is_expandable": False}, {"device": 1, "is_expandable": True}]
    assert not any_expandable(segments, 0)
    assert any_expandable(segments, 1)
    assert not uses_expandable_segments(torch.device("cpu"))


@pytest.mark.parametrize("name", process.ALLOCATOR_SETTINGS)
def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(process.platform, "system", lambda: "Linux")
    for other in process.ALLOCATOR_SETTINGS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "max_split_size_mb:512")
    process.use_expandable_segments()
    assert [process.os.environ.get(other) for other in process.ALLOCATOR_SETTINGS].count(None) == 2
    monkeypatch.delenv(name)
    process.use_expandable_segments()
    assert process.os.environ.pop(process.ALLOCATOR_SETTINGS[0]) == "expandable_segments:True"
