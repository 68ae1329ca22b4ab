"""Environments beside the repository's own in which peers are installed; torch stays the one that is measured."""

import importlib.metadata
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("torch", "numpy")
"""Distributions that no peer may replace."""


def peers_python(folder: Path, extra: str) -> Path:
    """Return an interpreter that sees this environment and an extra of peers; make it if it is not there.

    Args:
        folder: where it is, or is made.
        extra: name in pyproject.toml.

    Raises:
        subprocess.CalledProcessError: pip could not install the peers; its output was printed.
    """
    with (ROOT / "pyproject.toml").open("rb") as file:
        return python_beside(folder, tomllib.load(file)["project"]["optional-dependencies"][extra])


def python_beside(folder: Path, wanted: Sequence[str], alone: Sequence[str] = ()) -> Path:
    """Return an interpreter that sees this environment and these releases; make it if it is not there.

    Args:
        folder: where it is, or is made.
        wanted: what pip installs there.
        alone: what it installs without what that asks for.

    Raises:
        subprocess.CalledProcessError: pip could not install them; its output was printed.
    """
    python = folder / "bin" / "python"
    stamp, content = folder / "ready.txt", repr((*wanted, *alone))
    if stamp.exists() and stamp.read_text() == content:
        return python
    print(f"installing {', '.join((*wanted, *alone))} in {folder} ...", flush=True)
    venv.create(folder, with_pip=True, clear=folder.exists())
    inside = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    here = sysconfig.get_path("purelib")
    (inside / "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={importlib.metadata.version(name)}\n" for name in KEPT))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for chosen in (["-c", str(constraints), *wanted], *([["--no-deps", *alone]] if alone else [])):
        done = subprocess.run([*pip, *chosen], capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
            done.check_returncode()
    stamp.write_text(content)
    return python


def versions(python: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of these distributions in an environment."""
    code = f"import importlib.metadata as m; print(*[m.version(n) for n in {list(names)}])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.split(), strict=True))
