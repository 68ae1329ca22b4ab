"""What the tests of the options room share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions, load_options

VALID = (Path(__file__).parents[2] / "assets" / "valid_options.yml").read_text()


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LoadedOptions]:
    """Load the valid file after some overrides, or another text."""

    def loaded(*overrides: str, text: str = VALID) -> LoadedOptions:
        file = tmp_path / "options.yml"
        file.write_text(text)
        return load_options(file, overrides)

    return loaded


@pytest.fixture
def problems(load: Callable[..., LoadedOptions]) -> Callable[..., tuple[Problem, ...]]:
    """Load the same, and return the problems that are reported."""

    def reported(*overrides: str, text: str = VALID) -> tuple[Problem, ...]:
        with pytest.raises(InputError) as caught:
            load(*overrides, text=text)
        return caught.value.problems

    return reported
