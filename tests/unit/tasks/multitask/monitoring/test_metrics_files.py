import json
import math
from pathlib import Path
from typing import Any

import pytest

from trainauto.core.errors import InputError
from trainauto.core.json_text import read_lines
from trainauto.tasks.multitask.monitoring.metrics_files import MetricsFiles


def filled(folder: Path, batches: int = 3) -> MetricsFiles:
    files = MetricsFiles(folder)
    files.begin()
    for number in range(batches):
        files.add_batch({"batch_idx": number})
    files.add_epoch({"epoch": 0})
    return files


def array(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("given", "folder"), [("metrics", "metrics/training_metrics"), ("training_metrics", "training_metrics")]
)
def test_where_files_lie(tmp_path: Path, given: str, folder: str) -> None:
    """A60: under training_metrics of the folder that is named."""
    assert MetricsFiles(tmp_path / given).folder == tmp_path / folder


def test_lines_are_there_at_once_and_arrays_when_refreshed(tmp_path: Path) -> None:
    """A60, A61."""
    files = filled(tmp_path)
    assert [line["batch_idx"] for line in read_lines(files.batch_lines)] == [0, 1, 2]
    assert not files.batches.exists()
    files.refresh()
    assert array(files.batches) == [{"batch_idx": 0}, {"batch_idx": 1}, {"batch_idx": 2}]
    assert array(files.epochs) == [{"epoch": 0}]
    assert not list(files.folder.glob(".*"))


def test_arrays_of_nothing(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path)
    files.begin()
    files.refresh()
    assert array(files.batches) == array(files.epochs) == []


def public_write(path: Path, values: list[Any]) -> None:
    """Write as the public code does, on a disk with little room."""
    with path.open("w") as file:
        file.write(json.dumps(values)[:30])
        raise OSError("no room")


def test_an_array_is_whole_or_not_at_all(tmp_path: Path) -> None:
    """A60: the public code wrote into the file itself, so that a failure left half an array."""
    files = filled(tmp_path)
    files.refresh()
    files.add_batch({"batch_idx": 3})
    with pytest.raises(OSError, match="no room"):
        public_write(files.batches, [*array(files.batches), {"batch_idx": 3}])
    with pytest.raises(json.JSONDecodeError):
        array(files.batches)
    files.refresh()
    whole = files.batches.read_bytes()
    files.batch_lines.unlink()
    files.batch_lines.mkdir()  # what is to be copied cannot be read
    with pytest.raises(OSError, match="batch_metrics"):
        files.refresh()
    assert files.batches.read_bytes() == whole
    assert not list(files.folder.glob(".*"))


def test_an_earlier_run_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with caplog.at_level("INFO", "trainauto"):
            files = filled(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "training_metrics",
        "training_metrics_1",
        "training_metrics_2",
    ]
    assert f"they are in {tmp_path / 'training_metrics_2'} now" in caplog.text
    assert len(list(read_lines(files.batch_lines))) == 3


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for begin in (MetricsFiles.begin, lambda files: files.take_up(bool, bool)):
        with pytest.raises(InputError, match=r"metrics .*file.*\n  Give another output_dir"):
            begin(MetricsFiles(tmp_path / "file"))


def test_lines_that_find_no_room_come_before_those_after_them(tmp_path: Path) -> None:
    files = filled(tmp_path, 1)
    before = files.batch_lines.read_bytes()
    files.batch_lines.unlink()
    files.batch_lines.mkdir()
    for number in (1, 2):
        with pytest.raises(OSError, match="batch_metrics"):
            files.add_batch({"batch_idx": number})
    files.batch_lines.rmdir()
    files.batch_lines.write_bytes(before)
    files.add_batch({"batch_idx": 3})
    assert [line["batch_idx"] for line in read_lines(files.batch_lines)] == [0, 1, 2, 3]


def test_lines_that_are_not_kept_go_and_half_ones_too(tmp_path: Path) -> None:
    files = filled(tmp_path)
    with files.batch_lines.open("a") as file:
        file.write('{"batch_idx": 4, "lo')
    again = MetricsFiles(tmp_path)
    again.take_up(lambda line: line["batch_idx"] < 2, lambda line: False)
    again.add_batch({"batch_idx": 2, "loss": math.nan})
    assert [json.loads(line) for line in again.batch_lines.read_text().splitlines()] == [
        {"batch_idx": 0},
        {"batch_idx": 1},
        {"batch_idx": 2, "loss": "NaN"},
    ]
    assert again.epoch_lines.read_text() == ""


def test_taking_up_where_nothing_is(tmp_path: Path) -> None:
    files = MetricsFiles(tmp_path / "new")
    files.take_up(bool, bool)
    assert files.folder.is_dir()


def test_a_report_reads_as_json_with_what_has_no_number(tmp_path: Path) -> None:
    """A62."""
    files = filled(tmp_path)
    files.write_report({"loss": {"mean": math.nan}, "tasks": {"größer": 1}})
    assert array(files.report) == {"loss": {"mean": "NaN"}, "tasks": {"größer": 1}}
    assert "größer" in files.report.read_text(encoding="utf-8")
