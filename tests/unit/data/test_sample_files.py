"""Lists of files by name and size, and how they differ."""

import json
import time
from pathlib import Path
from statistics import median

import pytest

from tests.acceptance import ACCEPTANCE
from trainauto.data import GTImageDataset
from trainauto.data.sample_files import Kept, SampleFiles, SetChanges
from trainauto.storage.kept_sets import keep_sets, kept_files
from trainauto.storage.run_directory import RunDirectory


def listed(**sizes: int) -> SampleFiles:
    return SampleFiles(tuple(sizes), tuple(sizes.values()))


def test_the_same_files_in_another_order_have_not_changed_but_are_another_order() -> None:
    one, other = listed(a=1, b=2), listed(b=2, a=1)
    assert SetChanges.between(one, other) == SetChanges()
    assert one.digest != other.digest


def test_each_kind_of_change_is_told_apart() -> None:
    changes = SetChanges.between(listed(a=1, b=2, c=3, d=4), listed(a=1, c=30, e=4, f=6))
    assert changes == SetChanges(removed=("b",), renamed=(("d", "e"),), added=("f",), resized=("c",))
    assert changes.words() == ["1 removed: b", "1 renamed: d is now e", "1 added: f", "1 of another size: c"]


def test_of_several_files_of_one_size_none_is_called_renamed() -> None:
    changes = SetChanges.between(listed(a=1, b=1), listed(c=1, d=1))
    assert changes == SetChanges(removed=("a", "b"), added=("c", "d"))


def test_names_are_counted_and_the_first_are_shown() -> None:
    changes = SetChanges.between(listed(), SampleFiles(tuple(f"{n}\0lq {n}" for n in range(9)), tuple(range(9))))
    assert changes.words() == ["9 added: 0, 1, 2 and 6 more"]


@pytest.mark.parametrize("content", [{}, {"names": ["a"]}, {"names": ["a"], "bytes": []}, {"names": 3, "bytes": [1]}])
def test_what_is_no_list_is_refused(content: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        SampleFiles.from_dict(content)


def test_a_file_of_another_run_or_none_is_no_list(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert kept_files(run.samples) is None
    for content in ("[]", '{"train": 3}', "{"):
        run.samples.write_text(content)
        assert kept_files(run.samples) is kept_files(run.samples, "val") is None


@pytest.mark.skipif(not ACCEPTANCE, reason="makes 10,000 files")
def test_the_check_of_ten_thousand_images_takes_a_tenth_of_a_second(tmp_path: Path) -> None:
    gt = tmp_path / "gt"
    gt.mkdir()
    for number in range(10_000):
        (gt / f"image_{number:05d}.png").write_bytes(b"x" * (number % 97))
    run, dataset = RunDirectory(tmp_path), GTImageDataset(str(gt), scale=2)
    keep_sets(run, [dataset], 0)
    sides = dataset._listed_sides(str(gt))
    taken_s = []
    for _ in range(5):
        start = time.process_time()
        dataset._taken(sides, Kept(kept_files(run.samples)))
        dataset.identity()
        taken_s.append(time.process_time() - start)
    assert dataset.changes == SetChanges()
    assert median(taken_s) < 0.1
    assert run.samples.stat().st_size < 300_000
    assert len(json.loads(run.samples.read_text())["train"]["names"]) == 10_000
