"""What runs learned is kept for their kind, and nothing that is not theirs is believed."""

import json
import logging
from pathlib import Path

import pytest

from trainauto.memory.cost import calibration
from trainauto.memory.cost.calibration import Calibration, cache_folder

KIND = {"network": {"type": "compact", "num_feat": 16}, "torch": "2.13.0", "device": {"name": "cpu"}}
LEARNED = {"controller": {"plan": {"batch_size": 8}}, "foresight": None}


def test_kept_for_the_same_kind_only(tmp_path: Path) -> None:
    Calibration(KIND, tmp_path).write(LEARNED)
    assert Calibration(json.loads(json.dumps(KIND)), tmp_path).read() == LEARNED
    for key in KIND:
        assert Calibration({**KIND, key: "other"}, tmp_path).read() is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"format": 0}', b"\xff\xfe".decode("latin1") * 3, "null"])
def test_damaged_entries_are_ignored_with_a_line(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    one = Calibration(KIND, tmp_path)
    one.path.parent.mkdir(exist_ok=True)
    one.path.write_text(text)
    assert one.read() is None
    assert "is ignored" in caplog.text
    one.write(LEARNED)
    assert one.read() == LEARNED


def test_stale_entries_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = Calibration(KIND, tmp_path)
    one.write(LEARNED)
    kept = json.loads(one.path.read_text())
    one.path.write_text(json.dumps({**kept, "kind": {**KIND, "torch": "2.11.0"}}))
    assert one.read() is None
    assert "another format" in caplog.text


def test_a_folder_that_cannot_be_written_to_costs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    Calibration(KIND, tmp_path / "file").write(LEARNED)
    assert "cannot be saved" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


def test_a_user_whom_nobody_knows_has_a_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers there may be no home."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TRAINAUTO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(calibration.platform, "system", lambda: "Linux")
    monkeypatch.setattr(calibration.Path, "home", nobody)
    assert cache_folder().name == "trainauto"


@pytest.mark.parametrize(
    ("system", "variable", "ends"),
    [("Linux", "XDG_CACHE_HOME", "trainauto"), ("Windows", "LOCALAPPDATA", "trainauto"), ("Darwin", "", "trainauto")],
)
def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, system: str, variable: str, ends: str) -> None:
    monkeypatch.delenv("TRAINAUTO_CACHE")
    monkeypatch.setattr(calibration.platform, "system", lambda: system)
    if variable:
        monkeypatch.setenv(variable, "/somewhere")
        assert cache_folder() == Path("/somewhere") / ends
    else:
        assert cache_folder().parts[-3:] == ("Library", "Caches", ends)
    monkeypatch.setenv("TRAINAUTO_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
