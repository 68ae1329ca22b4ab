from pathlib import Path

import processes
import pytest


@pytest.mark.parametrize(
    ("platform", "command", "written"),
    [
        ("linux", ["/a b/python", "-m", "x"], "'/a b/python' -m x"),
        ("linux", [".venv/bin/python", "-m", "x"], ".venv/bin/python -m x"),
        ("win32", [r".venv\Scripts\python.exe", "-m", "x"], r".venv\Scripts\python.exe -m x"),
        ("win32", [r"C:\a b\python.exe", "x"], r'"C:\a b\python.exe" x    (in PowerShell put & before it)'),
    ],
)
def test_commands_are_written_for_the_shell_of_the_system(
    monkeypatch: pytest.MonkeyPatch, platform: str, command: list[str], written: str
):
    monkeypatch.setattr(processes.sys, "platform", platform)
    assert processes.shell_command(command) == written


def test_paths_below_are_relative_and_others_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    below = Path.cwd() / "a" / "b"
    assert processes.short_path(below) == str(Path("a", "b"))
    assert processes.short_path(Path.cwd().parent) == str(Path.cwd().parent)
