"""Makes the modules of scripts/ importable, the way they import each other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
sys.path.append(str(SCRIPTS))  # last: scripts/test.py must not hide Python's own `test` package


@pytest.fixture
def all_checks() -> ModuleType:
    """The script scripts/test.py as a module."""
    spec = importlib.util.spec_from_file_location("all_checks", SCRIPTS / "test.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["all_checks"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a pyproject.toml and an environment folder that looks complete and has no stamp."""
    root = tmp_path / "a repository"
    python = root / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    python.parent.mkdir(parents=True)
    python.touch()
    (root / ".venv" / "pyvenv.cfg").write_text("home = somewhere\nversion = 3.11.7\n", encoding="utf-8")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["torch>=2.11", "numpy>=1.0"]\n'
        '[project.optional-dependencies]\ntest = ["pytest>=8.0"]\narchs = ["spandrel>=0.4"]\n'
        "[tool.ruff]\nline-length = 120\n",
        encoding="utf-8",
    )
    (root / "tests").mkdir()
    (root / "tests" / "versions.txt").write_text("ruff==1.2\n", encoding="utf-8")
    return root
