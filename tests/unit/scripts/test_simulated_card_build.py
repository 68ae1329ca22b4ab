"""What is said where a simulated card cannot be made."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import simulated_card_build
from simulated_card_build import CACHE, NotHereError, make_environment, missing_tools


def test_too_little_disk_is_said_with_where_else_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(NotHereError, match=rf"4 GiB of disk are needed in .*, 1.0 GiB are free.\n.*{CACHE}\.$"):
        make_environment(tmp_path, tmp_path / "new", "2.14.1", full=False, lock_fd=0)


def test_tools_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_card_build.sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "objdump" else name)
    assert "this machine lacks objdump.\n  What to try: apt install g++" in missing_tools()
