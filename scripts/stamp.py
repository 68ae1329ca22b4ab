"""What was installed into `.venv`, remembered in a file inside it, so that a second call is instant."""

import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from install import TESTED_VERSIONS, TORCH


def venv_python(root: Path) -> Path:
    """Interpreter inside the virtual environment."""
    return root / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def stamp_path(root: Path) -> Path:
    """Where the stamp is: inside the environment, so that both go together."""
    return root / ".venv" / "trainauto-stamp.json"


def stamp_key(root: Path) -> str:
    """Digest of all that an install depends on; the settings of linters in pyproject.toml are not among it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    sections = [project.get("build-system"), project.get("project"), project.get("tool", {}).get("setuptools")]
    tested = (root / TESTED_VERSIONS).read_text(encoding="utf-8") if (root / TESTED_VERSIONS).exists() else ""
    facts = [sections, TORCH, tested, venv_version(root), str(root)]  # an editable install points at its place
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def venv_version(root: Path) -> str:
    """Python version of the environment by its own settings file; empty where there is none."""
    config = root / ".venv" / "pyvenv.cfg"
    if not config.exists():
        return ""
    match = re.search(r"^version\w*\s*=\s*(\S+)", config.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def read_stamp(root: Path) -> tuple[str, list[str]]:
    """Key and extras of the last completed install; empty ones where there was none."""
    try:
        stamp = json.loads(stamp_path(root).read_text(encoding="utf-8"))
        return str(stamp["key"]), [str(extra) for extra in stamp["extras"]]
    except (OSError, ValueError, KeyError, TypeError):
        return "", []


def write_stamp(root: Path, extras: Sequence[str]) -> None:
    """Remember a completed install; whole or not at all."""
    fresh = stamp_path(root).with_suffix(".new")
    fresh.write_text(json.dumps({"key": stamp_key(root), "extras": sorted(extras)}), encoding="utf-8")
    os.replace(fresh, stamp_path(root))


def is_ready(root: Path, extras: Sequence[str]) -> bool:
    """Whether the environment was completed for this pyproject.toml, these extras and this Python, in this place."""
    key, installed = read_stamp(root)
    return venv_python(root).exists() and set(extras) <= set(installed) and key == stamp_key(root)
