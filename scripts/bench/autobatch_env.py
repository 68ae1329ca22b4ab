"""An environment beside the repository's own in which the peers are installed; torch stays the one that is measured."""

import importlib.metadata
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

from autobatch_cases import ROOT

KEPT = ("torch", "numpy")
"""Distributions that no peer may replace."""


def peers_python(folder: Path) -> Path:
    """Return an interpreter that sees this environment and the extra ``bench``; make it if it is not there.

    Raises:
        subprocess.CalledProcessError: pip could not install the peers; its output was printed.
    """
    python = folder / "bin" / "python"
    stamp = folder / "ready.txt"
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["optional-dependencies"]["bench"]
    if stamp.exists() and stamp.read_text() == repr(wanted):
        return python
    print(f"installing {', '.join(wanted)} in {folder} ...", flush=True)
    venv.create(folder, with_pip=True, clear=folder.exists())
    inside = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    here = sysconfig.get_path("purelib")
    (inside / "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={importlib.metadata.version(name)}\n" for name in KEPT))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "-c", str(constraints), *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
        done.check_returncode()
    stamp.write_text(repr(wanted))
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the versions of what is compared."""
    names = ["torch", "lightning", "accelerate"]
    code = f"import importlib.metadata as m; print(*[m.version(n) for n in {names}])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.split(), strict=True))
