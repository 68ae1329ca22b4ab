"""Scripts that no test runs still begin: what they import of the package is there."""

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((ROOT / "scripts").rglob("*.py"))


def imported(script: Path) -> Iterator[tuple[str, str]]:
    """Modules of the package that a script imports names of, with these names."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "trainauto":
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    missing = [f"{module}.{name}" for module, name in imported(script) if not is_there(module, name)]
    assert not missing


def is_there(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError as error:
        # A peer that only a bench's own environment has.
        return not (error.name or "").startswith("trainauto")
