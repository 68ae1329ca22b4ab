import importlib.util
from pathlib import Path

import pytest
from install import InstallError
from interpreter import create, drop_half_installed
from locking import locked


def test_without_ensurepip_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InstallError, match=r"apt install python3\.\d+-venv"):
        create(tmp_path, lock_fd=0)


def test_a_killed_environment_is_made_anew_under_the_same_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commands: list[list[str]] = []
    monkeypatch.setattr("interpreter.run_logged", lambda command, lock_fd: commands.append(command))
    (tmp_path / ".lock").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / "pyvenv.cfg").touch()
    create(tmp_path, lock_fd=0)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert commands[0][1:] == ["-m", "venv", str(tmp_path)]


def test_packages_without_a_record_are_dropped_and_others_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, files in {"whole-1.0": ["METADATA", "RECORD"], "half-2.0": ["METADATA"], "empty-3.0": []}.items():
        folder = site / f"{name}.dist-info"
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).touch()
    assert drop_half_installed(tmp_path) == ["empty-3.0", "half-2.0"]
    assert [path.name for path in site.iterdir()] == ["whole-1.0.dist-info"]
    assert "half-2.0" in capsys.readouterr().out
    assert drop_half_installed(tmp_path) == []


def test_whoever_waits_says_so_and_then_gets_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answers = iter([False, False, True])
    monkeypatch.setattr("locking.try_lock", lambda _: next(answers))
    monkeypatch.setattr("locking.POLL_S", 0.0)
    with locked(tmp_path / "lock", "a friend"):
        assert capsys.readouterr().out == "environment: waiting for a friend\n"
