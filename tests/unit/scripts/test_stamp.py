from pathlib import Path

import pytest
from stamp import is_ready, read_stamp, stamp_path, venv_python, write_stamp


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_without_a_stamp_nothing_is_ready(repository: Path):
    assert not is_ready(repository, [])
    assert read_stamp(repository) == ("", [])


def test_a_stamp_covers_what_was_installed_and_no_more(repository: Path):
    write_stamp(repository, [])
    assert is_ready(repository, [])
    assert not is_ready(repository, ["test"])
    write_stamp(repository, ["test"])
    assert is_ready(repository, ["test"])
    assert is_ready(repository, [])
    assert [p.name for p in stamp_path(repository).parent.glob("*.new")] == []


@pytest.mark.parametrize(
    ("file", "old", "new", "ready"),
    [
        ("pyproject.toml", "numpy>=1.0", "numpy>=2.0", False),
        ("pyproject.toml", "pytest>=8.0", "pytest>=9.0", False),
        ("pyproject.toml", "line-length = 120", "line-length = 100", True),
        (".venv/pyvenv.cfg", "3.11.7", "3.12.1", False),
        ("tests/versions.txt", "ruff==1.2", "ruff==1.3", False),
    ],
)
def test_a_stamp_holds_for_the_same_requirements_and_python(
    repository: Path, file: str, old: str, new: str, ready: bool
):
    write_stamp(repository, ["test"])
    replace_in(repository / file, old, new)
    assert is_ready(repository, ["test"]) is ready


def test_a_moved_repository_is_not_ready_because_its_editable_install_points_elsewhere(repository: Path):
    write_stamp(repository, [])
    moved = repository.rename(repository.with_name("moved"))
    assert not is_ready(moved, [])


def test_an_environment_without_its_interpreter_is_not_ready(repository: Path):
    write_stamp(repository, [])
    venv_python(repository).unlink()
    assert not is_ready(repository, [])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "x"}', "null"])
def test_a_damaged_stamp_counts_as_none(repository: Path, text: str):
    stamp_path(repository).write_text(text, encoding="utf-8")
    assert read_stamp(repository) == ("", [])
    assert not is_ready(repository, [])
