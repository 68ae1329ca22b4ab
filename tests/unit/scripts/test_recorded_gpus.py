"""Histories of people's own cards: read as plain values, replayed, refused with a reason where that is not possible."""

import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import recorded_gpus
from allocator_histories import UnreadableError, histories_of, read_snapshot
from recorded_gpus import replayed

ROOT = Path(__file__).parents[3]
MIB = 2**20
UNSET = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "roundup_power2_divisions": {str(2**power): 0 for power in range(16)},
}


def entry(action: str, addr: int, size: int, stream: int = 0) -> dict[str, Any]:
    place = "device_free" if action == "oom" else "addr"
    return {"action": action, place: addr, "size": size, "stream": stream, "time_us": 7, "frames": []}


def freed(addr: int, size: int) -> list[dict[str, Any]]:
    return [entry("free_requested", addr, size), entry("free_completed", addr, size)]


def segment(addr: int, size: int, device: int = 0, expandable: bool = False) -> dict[str, Any]:
    kind = {"is_expandable": expandable, "segment_pool_id": (0, 0), "segment_type": "large", "stream": 0}
    return {"device": device, "address": addr, "total_size": size, "blocks": [], **kind}


SMALL, LARGE, OWN = 2**33, 2**34, 2**35
NATIVE = [
    entry("segment_alloc", SMALL, 2 * MIB),
    entry("alloc", SMALL, 1000),
    entry("segment_alloc", LARGE, 20 * MIB),
    entry("alloc", LARGE, 3 * MIB),
    entry("alloc", LARGE + 3 * MIB, 5 * MIB),
    *freed(LARGE, 3 * MIB),
    entry("snapshot", 0, 0),
    entry("segment_alloc", OWN, 32 * MIB),
    entry("alloc", OWN, 31 * MIB),
    *freed(OWN, 31 * MIB),
    *freed(SMALL, 1000),
    entry("segment_free", OWN, 32 * MIB),  # torch.cuda.empty_cache()
    entry("segment_free", SMALL, 2 * MIB),
    entry("oom", 10 * MIB, 2**40),
    entry("alloc", LARGE, 2 * MIB),
]
"""One device, native segments: eight events that count, of which the fifth and the sixth have most reserved."""

EXPANDS = [
    entry("segment_map", LARGE, 20 * MIB),
    entry("alloc", LARGE, 15 * MIB),
    entry("segment_map", LARGE + 20 * MIB, 20 * MIB),
    entry("alloc", LARGE + 15 * MIB, 15 * MIB),
    *freed(LARGE + 15 * MIB, 15 * MIB),
    entry("segment_unmap", LARGE + 20 * MIB, 20 * MIB),
    entry("alloc", LARGE + 15 * MIB, 5 * MIB),
]


def write(folder: Path, *traces: list[dict[str, Any]], segments: list[dict[str, Any]], **settings: Any) -> Path:
    file = folder / "a card.pickle"
    found = {"segments": segments, "device_traces": list(traces), "allocator_settings": {**UNSET, **settings}}
    file.write_bytes(pickle.dumps(found))
    return file


def rows(file: Path) -> list[recorded_gpus.Row]:
    return [replayed(one) for one in histories_of(file)]


def test_native_segments_and_what_is_given_back(tmp_path: Path) -> None:
    (row,) = rows(write(tmp_path, NATIVE, segments=[segment(LARGE, 20 * MIB)]))
    assert (row.name, row.segments, row.events, row.refused) == ("a card", "native", 8, "")
    assert row.differing == 0
    assert row.allocated == row.allocated_simulated == 36 * MIB + 1000
    assert row.reserved == row.reserved_simulated == 54 * MIB


def test_expandable_segments(tmp_path: Path) -> None:
    (row,) = rows(write(tmp_path, EXPANDS, segments=[segment(LARGE, 20 * MIB, expandable=True)]))
    assert (row.segments, row.events, row.differing, row.refused) == ("expandable", 4, 0, "")
    assert (row.reserved, row.reserved_simulated) == (40 * MIB, 40 * MIB)


def test_another_allocator_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A card whose torch takes 24 MiB where the simulated one takes 20, from its third event on."""
    other = [
        {**one, "size": 24 * MIB} if one["action"] == "segment_alloc" and one["addr"] == LARGE else one
        for one in NATIVE
    ]
    write(tmp_path, other, segments=[segment(LARGE, 24 * MIB)])
    assert recorded_gpus.main([str(tmp_path)]) == 1
    assert "| a card | native | 8 | 7 | 0 | 36.00 MiB | 36.00 MiB | 58.00 MiB | 54.00 MiB |" in capsys.readouterr().out


def test_devices_are_replayed_each(tmp_path: Path) -> None:
    """A device without a trace is none."""
    held = [segment(LARGE, 20 * MIB), segment(LARGE, 20 * MIB, device=2, expandable=True)]
    first, second = rows(write(tmp_path, NATIVE, [], EXPANDS, segments=held))
    assert (first.name, first.differing, first.segments) == ("a card, device 0", 0, "native")
    assert (second.name, second.differing, second.segments) == ("a card, device 2", 0, "expandable")


def test_a_trace_whose_beginning_was_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What ``max_entries`` leaves of a longer one: nobody knows what the first 22 MiB hold."""
    write(tmp_path, NATIVE[5:], segments=[segment(LARGE, 20 * MIB)])
    assert recorded_gpus.main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| a card | native | 5 | - | - | - | - | 54.00 MiB | - |" in printed
    assert "- a card: begins with 22.0 MiB reserved: recording began late, or max_entries was too small" in printed


def streams(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*trace, entry("alloc", LARGE + 10 * MIB, MIB, stream=9)]


@pytest.mark.parametrize(
    ("trace", "changes", "reason"),
    [
        (streams(NATIVE), {}, "allocates on 2 streams"),
        ([*NATIVE, *freed(LARGE + 16 * MIB, 512)], {}, "frees what it did not allocate"),
        ([{**one, "pool_id": (0, 1)} for one in NATIVE], {}, "has private pools"),
        ([*NATIVE, entry("segment_map", 7, MIB), entry("segment_unmap", 7, MIB)], {}, "native and expandable"),
        (NATIVE, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}, "recorded with max_split_size_mb"),
        (NATIVE, {"max_split_size": 128 * MIB}, "recorded with max_split_size,"),
        (NATIVE, {"garbage_collection_threshold": 0.8}, "recorded with garbage_collection_threshold"),
        (NATIVE, {"roundup_power2_divisions": {"1": 0, "256": 4}}, "recorded with roundup_power2_divisions"),
        ([], {}, "has no trace"),
    ],
)
def test_what_cannot_be_replayed_says_why(
    trace: list[dict[str, Any]], changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (row,) = rows(write(tmp_path, trace, segments=[segment(LARGE, 20 * MIB)], **changes))
    assert reason in row.refused
    assert row.differing is row.reserved_simulated is None


class Runs:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


class Outside(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return "elsewhere" if obj == "frames" else None


def test_a_pickle_that_would_run_something_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, mark = tmp_path / "theirs.pickle", tmp_path / "run"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        file.write_bytes(pickle.dumps({"device_traces": [[Runs(mark)]]}, protocol))
        with pytest.raises(UnreadableError, match=r"theirs\.pickle: it asks for (posix|nt|os)\.mkdir"):
            read_snapshot(file)
        assert not mark.exists()
    assert recorded_gpus.main([str(tmp_path)]) == 2
    assert "theirs.pickle" in capsys.readouterr().err
    pickle.loads(file.read_bytes())
    assert mark.exists()  # it would have


def test_other_pickles_are_no_snapshots(tmp_path: Path) -> None:
    file = tmp_path / "theirs.pickle"
    for content, reason in (
        (pickle.dumps(OrderedDict()), "asks for collections.OrderedDict"),
        (pickle.dumps([1, 2]), "has no device_traces"),
        (b"not a pickle", "no pickle"),
        (pickle.dumps({"device_traces": [[{"action": "alloc"}]], "segments": []}), "not as torch writes it"),
        (pickle.dumps({"device_traces": [[entry("teleport", 1, 1)]], "segments": []}), "unknown events: teleport"),
    ):
        file.write_bytes(content)
        with pytest.raises(UnreadableError, match=reason) as caught:
            histories_of(file)
        assert "theirs.pickle" in str(caught.value)
    with file.open("wb") as stream:
        Outside(stream).dump({"device_traces": ["frames"]})
    with pytest.raises(UnreadableError, match="refers to something outside"):
        read_snapshot(file)


def test_every_history_is_repeated_to_the_byte_and_to_the_address(tmp_path: Path) -> None:
    """Of real cards and of the real allocator on a simulated one; those of others where they are here."""
    assert recorded_gpus.main(["--write", str(tmp_path)]) == 0
    written = (tmp_path / recorded_gpus.PAGE).read_text().splitlines()
    page = (ROOT / "docs" / "benchmarks" / recorded_gpus.PAGE).read_text().splitlines()
    assert set(written) <= set(page)
    assert len(page) - len(written) in (0, 9)
    own = list((ROOT / "tests" / "assets" / "cuda_histories").glob("*.csv.gz"))
    assert sum("| 0 | 0 |" in line for line in page) == len(own) + 9 == 29
