"""Checkpoints are whole or not there."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from trainauto.core.errors import CheckpointError
from trainauto.engine.checkpoint import Best, Checkpoints
from trainauto.engine.random_state import random_state, seed_everything, set_random_state


def write_weights(folder: Path) -> None:
    (folder / "net_g.safetensors").write_bytes(b"weights")


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


def test_a_failed_write_leaves_the_last_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(10, {}, write_weights)

    def fail(folder: Path) -> None:
        (folder / "net_g.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoints.save(20, {}, fail)
    assert names(tmp_path) == ["latest.json", "step_00000010"]
    assert checkpoints.latest() == tmp_path / "step_00000010"


def test_leftovers_of_a_killed_writer_are_swept(tmp_path: Path) -> None:
    Checkpoints(tmp_path, keep=2).save(10, {}, write_weights)
    (tmp_path / ".step_00000020.abc.tmp").mkdir()
    (tmp_path / ".latest.json.abc.tmp").write_text("{")
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
