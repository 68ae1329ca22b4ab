"""What is known of images outlives a kill, and is the same whatever happened on the way."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.tasks.sr.preparation import journal as module
from trainauto.tasks.sr.preparation.journal import JOURNAL, REPORT, Entry, Journal, begun, ended

ENTRIES = [Entry(name, f"/{name}.png", 5, 7, 10, 12, 8, ["grey"], "0" * 16, [[1.5, 1.0]]) for name in ("b", "a", "ä")]


def finished(folder: Path, entries: list[Entry]) -> bytes:
    with Journal(folder) as journal:
        journal.begin({"tile_px": 8}, {})
        for entry in entries:
            journal.note(entry)
        journal.finish({"of": 1}, {entry.name: {"kept": [1]} for entry in entries})
    return (folder / REPORT).read_bytes()


def test_a_report_is_read_back_and_does_not_depend_on_the_order(tmp_path: Path) -> None:
    report = finished(tmp_path / "one", ENTRIES)
    assert finished(tmp_path / "two", ENTRIES[::-1]) == report
    assert [image["name"] for image in json.loads(report)["images"]] == ["a", "b", "ä"]
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [REPORT]
    with Journal(tmp_path / "one") as journal:
        assert journal.settings == {"tile_px": 8}
        assert journal.entries == {entry.name: entry for entry in ENTRIES}


@pytest.mark.parametrize("cut_bytes", [0, 1, 30])
def test_lines_of_a_killed_command_are_read_but_for_the_last(tmp_path: Path, cut_bytes: int) -> None:
    finished(tmp_path, ENTRIES[:1])
    begun_twice = begun(begun(ENTRIES[1], [1]), [2])
    with Journal(tmp_path) as journal:
        journal.begin({"tile_px": 9}, {ENTRIES[1].name: ENTRIES[1]})
        journal.note(begun_twice)
        journal.note(ENTRIES[2])
    lines = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(lines[: len(lines) - cut_bytes])
    for _ in range(2):
        with Journal(tmp_path) as journal:
            assert journal.settings == {"tile_px": 9}
            whole = {"a": begun_twice, **({"ä": ENTRIES[2]} if cut_bytes < 2 else {})}
            assert journal.entries == whole, "the last settings say which entries hold"
    assert begun_twice.written == [1, 2]
    assert ended(begun_twice, [2]) == replace(ENTRIES[1], written=[2], is_written=True)


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"12345")
    status = file.stat()
    entry = Entry("a", str(file), 5, status.st_mtime_ns)
    assert entry.is_of(file)
    assert not replace(entry, mtime_ns=1).is_of(file)
    assert not replace(entry, size_bytes=6).is_of(file)
    assert not entry.is_of(tmp_path)


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.0)
    with Journal(tmp_path), pytest.raises(InputError, match="another process is preparing"), Journal(tmp_path):
        pass
    with Journal(tmp_path):
        pass
