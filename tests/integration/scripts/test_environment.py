"""The running Python's own packages, asked for by running it."""

import os
import sys
from pathlib import Path

import environment
import pytest


def test_here_takes_the_running_python_and_finds_the_project_through_pythonpath(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    made = environment.prepare(["test"], here=True, root=repository)
    assert made.python == Path(sys.executable)
    assert made.variables["PYTHONPATH"].split(os.pathsep) == [str(repository), "elsewhere"]


def test_here_without_a_network_names_what_is_missing_and_goes_on(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    project = repository / "pyproject.toml"
    project.write_text(project.read_text().replace("numpy>=1.0", "surely-not-there>=1.0"))
    made = environment.prepare([], here=True, root=repository)
    assert "PYTHONPATH only; missing: surely-not-there" in capsys.readouterr().out
    assert made.python == Path(sys.executable)


def test_here_never_replaces_an_old_torch(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[str] = []
    monkeypatch.setattr(environment, "install_missing", lambda _python, missing, *_options: asked.extend(missing))
    project = repository / "pyproject.toml"
    project.write_text(project.read_text().replace("torch>=2.11", "torch>=99").replace("numpy>=1.0", "numpy>=99"))
    environment.prepare([], here=True, root=repository)
    assert asked == ["numpy>=99"]
    assert "left as it is" in capsys.readouterr().out
