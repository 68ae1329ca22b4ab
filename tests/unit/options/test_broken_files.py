"""Broken option files say in their first lines what is to be reported for them."""

import re
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.options.load import load_options

FILES = sorted((Path(__file__).parents[2] / "assets" / "broken_options").glob("*.yml"))
EXPECTATION = re.compile(r"# expect: (?P<line>\d+):(?P<column>\d+) (?P<what>.*?) \| (?P<advice>.*)")
LOADABLE = [file for file in FILES if "# needs-build" not in file.read_text()]


def test_there_are_at_least_twelve() -> None:
    assert len(LOADABLE) >= 12


@pytest.mark.parametrize("file", LOADABLE, ids=lambda file: file.stem)
def test_every_problem_is_reported_with_its_place_and_a_remedy(file: Path) -> None:
    expected = list(EXPECTATION.finditer(file.read_text()))
    with pytest.raises(InputError) as caught:
        load_options(file)
    problems = caught.value.problems
    assert len(problems) == len(expected), str(caught.value)
    for problem, match in zip(problems, expected, strict=True):
        assert problem.place is not None
        assert (problem.place.line, problem.place.column) == (int(match["line"]), int(match["column"])), str(problem)
        assert problem.place.text == file.read_text().splitlines()[problem.place.line - 1].replace("\t", " ")
        assert match["what"] in problem.message
        assert match["advice"] in problem.advice
        assert str(problem).startswith(f"{file}:{match['line']}:{match['column']}: ")


@pytest.mark.parametrize("file", sorted(set(FILES) - set(LOADABLE)), ids=lambda file: file.stem)
def test_files_for_the_build_pass_the_options_room(file: Path) -> None:
    assert load_options(file).options.name == "broken"
