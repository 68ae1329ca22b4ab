"""The virtual environment's interpreter: made, checked, and freed of what a killed install left half done."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from install import InstallError, phase, run_logged

LOCK_NAME = ".lock"


def is_usable(python: Path, oldest: tuple[int, int]) -> bool:
    """Whether an interpreter runs, is new enough and has pip; a missing pip is brought back."""
    if not python.exists():
        return False
    new_enough = f"import sys; sys.exit(sys.version_info[:2] < {oldest})"
    if not succeeds(python, "-c", new_enough):
        return False
    return has_pip(python) or (succeeds(python, "-m", "ensurepip", "--upgrade") and has_pip(python))


def has_pip(python: Path) -> bool:
    """Whether pip itself can be imported, not only found."""
    return succeeds(python, "-m", "pip", "--version")


def succeeds(python: Path, *arguments: str) -> bool:
    """Run an interpreter silently and tell whether it ended well."""
    try:
        ended = subprocess.run([str(python), *arguments], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:  # a damaged or foreign executable
        return False
    return ended.returncode == 0


def create(venv: Path, lock_fd: int) -> None:
    """Make the virtual environment anew; what is in the folder goes, except the lock that is being held.

    Raises:
        InstallError: If this Python cannot make one.
    """
    if importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        raise InstallError(
            "This Python came without ensurepip, so it cannot make a virtual environment.\n"
            f"What to try: apt install {package} (Debian, Ubuntu), or add --here to use this Python as it is."
        )
    with phase("creating .venv"):
        for entry in venv.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK_NAME:
                entry.unlink()
        base = getattr(sys, "_base_executable", sys.executable)  # the running Python may be in the folder just emptied
        run_logged([base, "-m", "venv", str(venv)], lock_fd=lock_fd)


def drop_half_installed(venv: Path) -> list[str]:
    """Make pip forget packages whose install was killed, so that it installs them again.

    pip writes RECORD last: a package that has its metadata and no RECORD may lack files.

    Returns:
        Names of what was dropped.
    """
    sites = [*venv.glob("lib/python*/site-packages"), *venv.glob("Lib/site-packages")]
    halves = sorted({p for site in sites for p in site.glob("*.dist-info") if not (p / "RECORD").exists()})
    for half in halves:
        shutil.rmtree(half)
    if halves:
        print("environment: repairing a killed install:", ", ".join(half.stem for half in halves), flush=True)
    return [half.stem for half in halves]
