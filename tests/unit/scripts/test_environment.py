from pathlib import Path
from typing import Any

import environment
import pytest
from install import InstallError
from stamp import is_ready, venv_python, write_stamp


class FakePip:
    """Stands for pip and for the interpreter's answers; remembers what was asked."""

    def __init__(self, torch: str | None) -> None:
        self.torch = torch
        self.calls: list[list[str]] = []

    def __call__(self, _python: Path, *arguments: str, lock_fd: int | None = None) -> None:
        assert lock_fd is not None
        self.calls.append(list(arguments))
        if arguments[-1].startswith("torch=="):
            self.torch = "2.13.0+cpu"

    def version_in(self, _python: Path, distribution: str) -> str | None:
        return {"torch": self.torch, "pip": "23.2.1"}[distribution]


@pytest.fixture
def fake_pip(monkeypatch: pytest.MonkeyPatch) -> FakePip:
    pip = FakePip(torch=None)
    monkeypatch.setattr(environment, "pip", pip)
    monkeypatch.setattr(environment, "version_in", pip.version_in)
    monkeypatch.setattr("install.version_in", pip.version_in)
    monkeypatch.setattr(environment, "is_usable", lambda *_: True)
    return pip


def test_torch_comes_first_and_everything_else_under_its_constraint(repository: Path, fake_pip: FakePip):
    made = environment.prepare(["test"], root=repository)
    constraints = repository / ".venv" / "trainauto-constraints.txt"
    assert fake_pip.calls == [
        ["install", environment.TORCH],
        ["install", "-c", str(constraints), "-e", f"{repository}[test]"],
    ]
    assert constraints.read_text(encoding="utf-8") == "torch==2.13.0+cpu\nruff==1.2\n"
    assert made.python == venv_python(repository)


def test_the_library_of_networks_is_installed_without_the_torchvision_it_asks_for(repository: Path, fake_pip: FakePip):
    environment.prepare(["test", "archs"], root=repository)
    constraints = str(repository / ".venv" / "trainauto-constraints.txt")
    assert fake_pip.calls[1:] == [
        ["install", "-c", constraints, "-e", f"{repository}[test]"],
        ["install", "-c", constraints, "--no-deps", "spandrel>=0.4"],
    ]
    assert is_ready(repository, ["archs"])


def test_the_running_interpreter_gets_what_is_missing_torchvision_left_out(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(environment, "pip", lambda _python, *arguments: calls.append(arguments))
    monkeypatch.setattr(environment, "is_satisfied", lambda line: not line.startswith(("spandrel", "pytest")))
    environment.prepare(["test", "archs"], here=True, root=repository)
    assert [[*call[5:]] for call in calls] == [["pytest>=8.0"], ["--no-deps", "spandrel>=0.4"]]


def test_a_second_call_installs_nothing(repository: Path, fake_pip: FakePip):
    environment.prepare([], root=repository)
    fake_pip.calls.clear()
    environment.prepare([], root=repository)
    assert fake_pip.calls == []


def test_a_torch_that_is_there_stays(repository: Path, fake_pip: FakePip):
    fake_pip.torch = "2.11.0+cu128"
    environment.prepare([], root=repository)
    assert [call[-1] for call in fake_pip.calls] == [str(repository)]
    assert (repository / ".venv" / "trainauto-constraints.txt").read_text() == "torch==2.11.0+cu128\n"


def test_new_requirements_also_refresh_the_extras_of_earlier_calls(repository: Path, fake_pip: FakePip):
    environment.prepare(["test"], root=repository)
    project = repository / "pyproject.toml"
    project.write_text(project.read_text().replace("numpy>=1.0", "numpy>=2.0"))
    environment.prepare([], root=repository)
    assert fake_pip.calls[-1][-1] == f"{repository}[test]"
    assert is_ready(repository, ["test"])


def test_a_failed_install_leaves_no_stamp(
    repository: Path, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write_stamp(repository, [])

    def fails(*_: Any, **__: Any) -> None:
        raise InstallError("planted")

    monkeypatch.setattr(environment, "pip", fails)
    with pytest.raises(InstallError, match="planted"):
        environment.prepare(["test"], root=repository)
    assert not is_ready(repository, [])
    assert "failed after" in capsys.readouterr().out


@pytest.mark.parametrize(("error", "code"), [(InstallError("x"), "environment: x"), (KeyboardInterrupt(), 130)])
def test_failures_end_the_script_with_words_not_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: str | int
):
    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(environment, "prepare", fails)
    with pytest.raises(SystemExit) as ended:
        environment.prepare_or_exit()
    assert ended.value.code == code
