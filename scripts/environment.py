"""The environment that the other scripts run in: `.venv` in the repository, made once, or the running one (--here)."""
# ruff: noqa: E402  the version is judged before anything is imported that an older Python does not have

import sys

OLDEST_PYTHON = (3, 11)
if sys.version_info[:2] < OLDEST_PYTHON:
    sys.exit("trainauto needs Python 3.11 or newer; this is Python " + sys.version.split()[0])

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from install import (
    ALONE,
    TESTED_VERSIONS,
    TORCH,
    InstallError,
    is_satisfied,
    name_of,
    numbers,
    phase,
    pip,
    requirements,
    requirements_of,
    version_in,
    write_constraints,
)
from interpreter import LOCK_NAME, create, drop_half_installed, is_usable
from locking import locked
from stamp import is_ready, read_stamp, stamp_path, venv_python, write_stamp

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PIP = (22, 3)  # came with Python 3.11; from there on editable installs need no setup.py


@dataclass(frozen=True)
class Environment:
    """An interpreter that has what the project needs, and the variables to start it with."""

    python: Path
    variables: dict[str, str]


def prepare_or_exit(extras: Sequence[str] = (), *, here: bool = False) -> Environment:
    """Make the environment ready, or tell the person why not and end with exit code 1 (130 for Ctrl-C)."""
    try:
        return prepare(extras, here=here)
    except (InstallError, OSError) as error:
        sys.exit(f"environment: {error}")
    except KeyboardInterrupt:
        print("environment: interrupted; the next call continues from here", flush=True)
        sys.exit(130)


def prepare(extras: Sequence[str] = (), *, here: bool = False, root: Path = ROOT) -> Environment:
    """Make the environment ready; instant when it already is.

    Args:
        extras: Names under optional-dependencies of pyproject.toml.
        here: Take the running interpreter as it is and add only what is missing.
        root: The repository.

    Raises:
        InstallError: If it cannot be made.
    """
    if here:
        return use_running(root, extras)
    if not is_ready(root, extras):
        (root / ".venv").mkdir(exist_ok=True)
        with locked(root / ".venv" / LOCK_NAME, "another process that is making .venv") as lock_fd:
            if not is_ready(root, extras):  # it may have been made while we waited
                make(root, extras, lock_fd)
    return Environment(venv_python(root), dict(os.environ))


def make(root: Path, extras: Sequence[str], lock_fd: int) -> None:
    """Create or repair the environment and install the project into it; called under the lock."""
    venv, python = root / ".venv", venv_python(root)
    wanted = sorted({*extras, *read_stamp(root)[1]})  # what an earlier call asked for is kept up to date
    stamp_path(root).unlink(missing_ok=True)  # from here to the end the environment is half made
    if not is_usable(python, OLDEST_PYTHON):
        create(venv, lock_fd)
    drop_half_installed(venv)
    if numbers(version_in(python, "pip") or "") < OLDEST_PIP:
        with phase("upgrading pip"):
            pip(python, "install", "--upgrade", "pip", lock_fd=lock_fd)
    if version_in(python, "torch") is None:
        with phase(f"installing {TORCH} (a CUDA build is some GB)"):
            pip(python, "install", TORCH, lock_fd=lock_fd)
    constraints = venv / "trainauto-constraints.txt"
    write_constraints(python, constraints, tested=root / TESTED_VERSIONS if "test" in wanted else None)
    together = [extra for extra in wanted if extra not in ALONE]
    alone = [line for extra in wanted if extra in ALONE for line in requirements_of(root, extra)]
    project = f"{root}[{','.join(together)}]" if together else str(root)
    with phase("installing trainauto and what it needs" + (f" ({', '.join(wanted)})" if wanted else "")):
        pip(python, "install", "-c", str(constraints), "-e", project, lock_fd=lock_fd)
        if alone:
            pip(python, "install", "-c", str(constraints), "--no-deps", *alone, lock_fd=lock_fd)
    write_stamp(root, wanted)


def use_running(root: Path, extras: Sequence[str]) -> Environment:
    """Take the running interpreter, whose torch is never replaced; the project is found through PYTHONPATH.

    What is missing is installed if it can be; if not, it is named and the run continues without it.
    """
    python = Path(sys.executable)
    missing = [requirement for requirement in requirements(root, extras) if not is_satisfied(requirement)]
    torch = version_in(python, "torch")
    if torch and any(name_of(requirement) == "torch" for requirement in missing):
        print(f"environment: torch {torch} is older than the project asks for; it is left as it is", flush=True)
        missing = [requirement for requirement in missing if name_of(requirement) != "torch"]
    if missing:
        alone = [line for extra in extras if extra in ALONE for line in requirements_of(root, extra)]
        together = [TORCH if name_of(line) == "torch" else line for line in missing if line not in alone]
        install_missing(python, together)
        install_missing(python, [line for line in missing if line in alone], "--no-deps")
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return Environment(python, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)})


def install_missing(python: Path, missing: Sequence[str], *options: str) -> None:
    """Add packages to an environment that is not ours, torch pinned; without a network say what will be missing."""
    if not missing:
        return
    names = ", ".join(name_of(requirement) for requirement in missing)
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        write_constraints(python, constraints)
        try:
            with phase(f"adding to {sys.prefix}: {names}"):
                # Offline is likely here.
                pip(python, "install", "--retries", "1", "-c", str(constraints), *options, *missing)
        except InstallError as error:
            print(f"environment: {error}\nenvironment: continuing with PYTHONPATH only; missing: {names}", flush=True)
