"""Checkpoints are whole or not there."""

import errno
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trainauto.core.errors import CheckpointError, InputError
from trainauto.engine.best import Best
from trainauto.engine.checkpoint import CheckpointNotWrittenError, Checkpoints, DiskFullError
from trainauto.engine.random_state import random_state, seed_everything, set_random_state


def write_weights(folder: Path) -> None:
    save_file({"weight": torch.arange(8.0)}, folder / "net_g.safetensors")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_newest_and_best_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step, score in ((10, 1.0), (20, 5.0), (30, 4.0), (40, 3.0), (50, 4.5)):
        assert checkpoints.note_score(Best(step, score, "val/psnr"), better_is_higher=True) == (step in (10, 20))
        checkpoints.save(step, {"value": step}, write_weights)
    assert names(tmp_path) == ["latest.json", "step_00000020", "step_00000040", "step_00000050"]
    again = Checkpoints(tmp_path, keep=2)
    newest = again.latest()
    assert newest == tmp_path / "step_00000050"
    assert again.best is not None
    assert (again.best.step, again.best.value) == (20, 5.0)
    assert Checkpoints.read_state(newest)["value"] == 50
    assert not again.note_score(Best(60, 4.9, "val/psnr"), better_is_higher=True)
    assert not again.note_score(Best(60, float("nan"), "val/ssim"), better_is_higher=True)
    assert again.note_score(Best(70, 0.4, "val/ssim"), better_is_higher=True)  # another metric: nothing to compare with
    assert again.note_score(Best(80, 0.3, "val/ssim"), better_is_higher=False)


def test_the_best_belongs_to_what_it_was_measured_by(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.note_score(Best(10, 30.0, "val/psnr", "psnr(crop_border=4)"), better_is_higher=True)
    assert not checkpoints.note_score(Best(20, 29.0, "val/psnr", "psnr(crop_border=4)"), better_is_higher=True)
    assert not checkpoints.note_score(Best(20, float("inf"), "val/psnr"), better_is_higher=True)
    assert checkpoints.note_score(Best(30, 28.0, "val/psnr", "psnr(crop_border=0)"), better_is_higher=True)
    assert "was measured by psnr(crop_border=4) and now by psnr(crop_border=0): the comparison restarts" in caplog.text
    assert not checkpoints.note_score(Best(40, 27.0, "val/psnr"), better_is_higher=True), "of an earlier version"


def test_an_infinite_best_of_an_earlier_version_is_forgotten(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, write_weights)
    checkpoints.best = Best(10, float("inf"), "val/psnr")
    checkpoints.point_at(10)
    again = Checkpoints(tmp_path, keep=2)
    assert again.latest() is not None
    assert again.best is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO")
def test_a_pointer_that_is_a_fifo_is_not_opened(tmp_path: Path) -> None:
    """Opening it waits for a writer; which checkpoint is the newest stands in the names of folders, too."""
    Checkpoints(tmp_path, keep=2).save(10, {}, write_weights)
    (tmp_path / "latest.json").unlink()
    os.mkfifo(tmp_path / "latest.json")
    assert Checkpoints(tmp_path, keep=2).latest() == tmp_path / "step_00000010"


def fill_disk(monkeypatch: pytest.MonkeyPatch, folder: Path, fits: int) -> None:
    """Have the disk hold so many checkpoints and no more: at the lowest level, where torch opens its file."""
    real_save = torch.save

    def save(state: object, file: object) -> None:
        if len(list(folder.glob("step_*"))) >= fits:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_save(state, file)

    monkeypatch.setattr(torch, "save", save)


def test_a_full_disk_costs_the_oldest_that_is_not_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=10)
    fill_disk(monkeypatch, tmp_path, fits=3)
    checkpoints.note_score(Best(10, 5.0, "val/psnr"), better_is_higher=True)
    for step in (10, 20, 30, 40):
        checkpoints.save(step, {}, write_weights)
    assert checkpoints.steps() == [10, 30, 40]
    assert "the checkpoint of step 20 is deleted to make room for that of step 40" in caplog.text
    fill_disk(monkeypatch, tmp_path, fits=2)
    with pytest.raises(
        DiskFullError,
        match=r"not enough disk space for the checkpoint of step 50 .* free; one takes (?s:.*)step 40 is intact",
    ):
        checkpoints.save(50, {}, write_weights)
    assert names(tmp_path) == ["latest.json", "step_00000010", "step_00000040"]
    assert Checkpoints(tmp_path, keep=10).newest_whole() == tmp_path / "step_00000040"
    with pytest.raises(DiskFullError):
        checkpoints.renew(40, {"value": 1})
    assert Checkpoints(tmp_path, keep=10).newest_whole() == tmp_path / "step_00000040"


def test_a_renewed_state_is_whole_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {"value": 1}, write_weights)
    seen: list[int] = []
    real_replace = os.replace

    def replace(source: Path, target: Path) -> None:
        seen.append(Checkpoints.read_state(Checkpoints(tmp_path, 0).newest_whole() or tmp_path)["value"])
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", replace)
    checkpoints.renew(10, {"value": 2})
    monkeypatch.undo()
    assert seen == [1, 1, 2]
    newest = Checkpoints(tmp_path, keep=2).newest_whole()
    assert newest is not None
    assert Checkpoints.read_state(newest)["value"] == 2


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut short": (lambda file: os.truncate(file, file.stat().st_size // 2), r"bytes"),
    "a changed byte": (lambda file: file.write_bytes(b"?" + file.read_bytes()[1:]), "checksum differs"),
    "missing": (lambda file: file.unlink(), "is missing"),
}


@pytest.mark.parametrize("name", ["state.pt", "net_g.safetensors"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_one_is_set_aside_for_the_one_before(
    tmp_path: Path, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (10, 20, 30):
        checkpoints.save(step, {}, write_weights)
    damage, how = DAMAGES[kind]
    damage(tmp_path / "step_00000030" / name)
    assert Checkpoints(tmp_path, keep=3).newest_whole() == tmp_path / "step_00000020"
    assert re.search(rf"step_00000030 is damaged \({name}.*{how}.*\): resuming from step_00000020 instead", caplog.text)
    assert names(tmp_path) == ["damaged_step_00000030", "latest.json", "step_00000010", "step_00000020"]
    for step in (10, 20):
        damage(tmp_path / f"step_{step:08d}" / name)
    with pytest.raises(
        InputError, match=r"step_00000020 is damaged(?s:.*)step_00000010 is damaged(?s:.*)begin a new run"
    ):
        Checkpoints(tmp_path, keep=3).newest_whole()
    assert "step_00000020" in names(tmp_path), "where nothing else is whole, nothing is moved"


@pytest.mark.parametrize("name", ["state.pt", "net_g.safetensors"])
def test_one_of_an_earlier_version_has_no_sums_and_is_read(tmp_path: Path, name: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (10, 20):
        checkpoints.save(step, {}, write_weights)
        (tmp_path / f"step_{step:08d}" / "sums.json").unlink()
    assert checkpoints.newest_whole() == tmp_path / "step_00000020"
    (tmp_path / "step_00000020" / name).write_bytes((tmp_path / "step_00000020" / name).read_bytes()[:-7])
    assert checkpoints.newest_whole() == tmp_path / "step_00000010"


def test_weights_that_the_sums_do_not_know_are_damage(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (10, 20):
        checkpoints.save(step, {}, write_weights)
    (tmp_path / "step_00000020" / "sums.json").write_text("{}")
    assert checkpoints.newest_whole() == tmp_path / "step_00000010"


def test_one_that_cannot_be_read_now_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (10, 20):
        checkpoints.save(step, {}, write_weights)
    before = names(tmp_path)
    real_open = Path.open

    def refuse(self: Path, *arguments: Any, **named: Any) -> Any:
        if self.name == "net_g.safetensors":
            raise OSError(errno.ESTALE, "Stale file handle", str(self))
        return real_open(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(InputError, match=r"step_00000020 cannot be read: .*Stale.*\n.*Nothing was moved"):
            checkpoints.newest_whole()
    assert names(tmp_path) == before
    assert checkpoints.newest_whole() == tmp_path / "step_00000020"


def test_one_of_another_format_is_not_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (10, 20):
        folder = checkpoints.save(step, {}, write_weights)
    torch.save({"format": 2}, folder / "state.pt")
    (folder / "sums.json").unlink()
    assert checkpoints.newest_whole() == folder
    with pytest.raises(CheckpointError, match="format 2, this version reads 3"):
        Checkpoints.read_state(folder)


def test_whole_one_that_nothing_points_at_is_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(10, {}, write_weights)
    pointer = (tmp_path / "latest.json").read_bytes()
    checkpoints.save(20, {}, write_weights)
    (tmp_path / "latest.json").write_bytes(pointer)  # as a kill between the two leaves it
    assert checkpoints.newest_whole() == tmp_path / "step_00000020" == checkpoints.latest()


def test_the_best_is_set_aside_with_its_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(10, {}, write_weights)
    assert checkpoints.note_score(Best(20, 40.0, "val/psnr"), better_is_higher=True)
    checkpoints.save(20, {}, write_weights)
    (tmp_path / "step_00000020" / "state.pt").unlink()
    for again in (Checkpoints(tmp_path, keep=1), Checkpoints(tmp_path, keep=1)):
        assert again.newest_whole() == tmp_path / "step_00000010" == again.latest()
        assert again.best is None
    assert again.note_score(Best(30, 39.0, "val/psnr"), better_is_higher=True)
    for step in (30, 40):
        again.save(step, {}, write_weights)
    assert again.steps() == [30, 40]


def test_renewing_reads_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(10, {"value": 1}, write_weights)
    opened: list[str] = []
    real_open = Path.open

    def note(self: Path, *arguments: Any, **named: Any) -> Any:
        opened.append(self.name)
        return real_open(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", note)
        checkpoints.renew(10, {"value": 2})
    assert "state.pt" in opened
    assert "net_g.safetensors" not in opened
    assert checkpoints.newest_whole() == tmp_path / "step_00000010"


def test_damaged_ones_go_first_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=10)
    for step in (10, 20):
        checkpoints.save(step, {}, write_weights)
    (tmp_path / "damaged_step_00000030").mkdir()
    real_save = torch.save

    def save(state: object, file: object) -> None:
        if (tmp_path / "damaged_step_00000030").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        real_save(state, file)

    monkeypatch.setattr(torch, "save", save)
    checkpoints.save(40, {}, write_weights)
    assert checkpoints.steps() == [10, 20, 40]


def test_a_failed_write_leaves_the_last_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, write_weights)

    def fail(folder: Path) -> None:
        (folder / "net_g.safetensors").write_bytes(b"half")
        raise OSError(errno.EIO, "unplugged")

    what = (
        r"step 20 cannot be written: .*step_00000020: Input/output error\n"
        r"  The checkpoint of step 10 is intact: check the disk"
    )
    with pytest.raises(CheckpointNotWrittenError, match=what):
        checkpoints.save(20, {}, fail)
    assert names(tmp_path) == ["latest.json", "step_00000010"]
    assert checkpoints.latest() == tmp_path / "step_00000010"


def test_a_folder_in_the_place_of_the_pointer_is_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    (tmp_path / "latest.json").mkdir()
    what = (
        r"latest\.json: Is a directory\n  The checkpoint of step 10 is intact: move what is in its place, then resume"
    )
    with pytest.raises(CheckpointNotWrittenError, match=what):
        checkpoints.save(10, {}, write_weights)
    assert Checkpoints(tmp_path, keep=2).newest_whole() == tmp_path / "step_00000010"


def test_checkpoints_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, write_weights)

    def refused(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", refused)
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match="cannot be read"):
        checkpoints.newest_whole()


def test_a_deletion_that_failed_half_way_hinders_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes back twice over the same step; the first time its files stay."""
    checkpoints = Checkpoints(tmp_path, keep=5)
    checkpoints.save(10, {}, write_weights)
    with monkeypatch.context() as failing:
        failing.setattr(os, "unlink", lambda *_args, **_kwargs: (_ for _ in ()).throw(PermissionError(errno.EACCES)))
        for _ in range(2):
            checkpoints.save(20, {}, write_weights)
            checkpoints.drop_after(10)
            assert checkpoints.steps() == [10]
        checkpoints.save(10, {"value": 2}, write_weights)  # in place of one that is there
    assert Checkpoints.read_state(checkpoints.path(10))["value"] == 2
    assert len(names(tmp_path)) == 5
    assert Checkpoints(tmp_path, keep=5).newest_whole() == tmp_path / "step_00000010"
    assert names(tmp_path) == ["latest.json", "step_00000010"]


def test_leftovers_of_a_killed_writer_are_swept(tmp_path: Path) -> None:
    Checkpoints(tmp_path, keep=2).save(10, {}, write_weights)
    (tmp_path / f".step_00000020.{'0a' * 16}.tmp").mkdir()
    (tmp_path / ".step_00000005.tmp").mkdir()  # of an earlier version, which was deleting it
    (tmp_path / f".latest.json.{'0b' * 16}.tmp").write_text("{")
    assert Checkpoints(tmp_path, keep=2).latest() == tmp_path / "step_00000010"
    assert names(tmp_path) == ["latest.json", "step_00000010"]


@pytest.mark.parametrize("pointer", ["", "{", '{"step": 5}', '{"step": 9, "folder": "step_00000009", "best": null}'])
def test_a_lost_pointer_is_no_loss(tmp_path: Path, pointer: str) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, write_weights)
    (tmp_path / "latest.json").write_text(pointer)
    assert Checkpoints(tmp_path, keep=2).latest() == tmp_path / "step_00000010"
    (tmp_path / "step_00000010" / "state.pt").unlink()
    assert Checkpoints(tmp_path, keep=2).latest() is None


def test_damaged_and_foreign_states_are_named(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, keep=1).save(10, {}, write_weights)
    torch.save({"format": 99}, folder / "state.pt")
    with pytest.raises(CheckpointError, match="format 99"):
        Checkpoints.read_state(folder)
    (folder / "state.pt").write_bytes(b"garbage")
    with pytest.raises(CheckpointError, match=r"state\.pt"):
        Checkpoints.read_state(folder)


def test_state_with_code_in_it_is_refused(tmp_path: Path) -> None:
    folder = Checkpoints(tmp_path, keep=1).save(10, {}, write_weights)
    torch.save({"format": 1, "code": Path}, folder / "state.pt")
    with pytest.raises(CheckpointError):
        Checkpoints.read_state(folder)


def test_pointer_is_plain_json(tmp_path: Path) -> None:
    Checkpoints(tmp_path, keep=1).save(7, {}, write_weights)
    assert json.loads((tmp_path / "latest.json").read_text()) == {"step": 7, "folder": "step_00000007", "best": None}


def test_random_streams_go_on(tmp_path: Path) -> None:
    seed_everything(3)
    random.random(), np.random.rand(3), torch.rand(2), np.random.randn()
    torch.save(random_state(), tmp_path / "random.pt")
    want = random.random(), np.random.randn(2).tolist(), torch.rand(3).tolist()
    seed_everything(99)
    set_random_state(torch.load(tmp_path / "random.pt", weights_only=True))
    assert (random.random(), np.random.randn(2).tolist(), torch.rand(3).tolist()) == want


@pytest.mark.parametrize("every", [1, 7, 60, 400])
def test_a_run_that_may_go_back_keeps_one_that_is_old_enough(tmp_path: Path, every: int) -> None:
    """However few are kept: never more than two besides, none younger than 100 steps, and none needlessly old."""
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.way_back_steps = 100
    for step in range(0, max(350, 10 * every), every):
        checkpoints.save(step, {}, lambda _folder: None)
        kept = checkpoints.steps()
        assert len(kept) <= 3
        old = [one for one in kept if one <= step - 100]
        assert old or step < 100
        assert not old or step - old[-1] <= 100 + max(100, 2 * every)
