"""Probes find the lines that coverage.py's tracer finds."""

import builtins
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

from tests import line_probes

SAMPLE = '''"""A docstring
of two lines."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass


def plain(
    a,
    b=(
        1,
        2,
    ),
):
    """A docstring."""
    global COUNT
    COUNT = (
        a
        + len(b)
    )
    if a and (
        b
    ):
        return 1
    elif a == 0:
        return 2
    else:
        return 3


@contextlib.contextmanager
def managed():
    try:
        yield 1
    except ValueError:
        print("never")
    except (
        KeyError,
        OSError,
    ):
        raise
    except TypeError:
        print("not even asked")
    else:
        print("went well")
    finally:
        print("ended")


@dataclass
class Some:
    """A docstring."""

    x: int
    y: int = 1

    @property
    @staticmethod
    def never():
        return 1

    def looping(self) -> int:
        for i in range(3):
            if i == 1:
                continue
            while True:
                break
        else:
            i = [
                k
                for k in range(2)
            ]
        match self.x:
            case 1:
                return 1
            case 2 | 3:
                return 2
            case _:
                pass
        return (
            lambda: 3
        )()


def only_documented():
    """A docstring."""


def items():
    with managed() as m, contextlib.suppress(ValueError):
        yield m
    with managed():
        raise KeyError
    yield 1


def run():
    plain(1)
    plain(0)
    for x in (1, 3, 9):
        Some(x).looping()
    only_documented()
    with contextlib.suppress(KeyError):
        list(items())
    x = 1; y = 2
    assert x, y
    del x
    async def never():
        await never()
    return 1 if y else 2
'''


@pytest.fixture
def run_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Import the sample anew and run it; gives its file."""
    (tmp_path / "sample_of_lines.py").write_text(SAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run() -> str:
        monkeypatch.delitem(sys.modules, "sample_of_lines", raising=False)
        sample = importlib.import_module("sample_of_lines")
        sample.run()
        return str(sample.__file__)

    return run


def missing(data: str, file: str) -> tuple[list[int], list[int]]:
    """Return statements and those of them that did not run."""
    reader = Coverage(data_file=data)
    reader.load()
    _, statements, _, not_run, _ = reader.analysis2(file)
    return statements, not_run


def test_missing_lines_are_those_of_the_tracer(
    tmp_path: Path, run_sample: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = Coverage(data_file="traced", source=["sample_of_lines"])
    with tracer.collect():
        run_sample()
    tracer.save()

    marks = line_probes.Marks(["sample_of_lines"])
    monkeypatch.setattr(builtins, line_probes.MARKS, marks.bytes, raising=False)
    monkeypatch.setattr(sys, "meta_path", [marks, *sys.meta_path])
    file = run_sample()
    data = CoverageData("marked")
    data.add_lines(marks.ran())
    data.write()

    statements, not_run = missing("traced", file)
    assert missing("marked", file) == (statements, not_run)
    assert [SAMPLE.splitlines()[line - 1].strip() for line in not_run] == [
        "return 3",
        'print("never")',
        "except TypeError:",
        'print("not even asked")',
        "return 1",
        "yield 1",
        "await never()",
    ]


def test_a_file_that_was_never_loaded_has_run_no_line(tmp_path: Path, run_sample: Callable[[], str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").touch()
    (tmp_path / "folder" / "loaded_by_nobody.py").write_text("x = 1\n")
    (tmp_path / "folder" / "left_out.py").write_text("x = 1\n")
    marks = line_probes.Marks(["folder"], ["*/left_*"])
    assert marks.ran() == {str(tmp_path / "folder" / name): [] for name in ("__init__.py", "loaded_by_nobody.py")}
