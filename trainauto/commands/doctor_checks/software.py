"""Python, torch and the packages that are asked for."""

import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from trainauto.core.process import unknown_torch
from trainauto.core.words import counted
from trainauto.reporting.finding import BROKEN, LOOK, OK, UNKNOWN, Finding

PACKAGE = "trainauto"
PROJECT_FILE = Path(__file__).parents[3] / "pyproject.toml"

MODULES = {
    "pyyaml": "yaml",
    "opencv-python-headless": "cv2",
    "pillow": "PIL.Image",
    "scikit-image": "skimage.metrics",
    "scikit-learn": "sklearn",
    "tensorboard": "tensorboard.summary.writer.event_file_writer",
    "nvidia-ml-py": "pynvml",
}
"""What is imported of packages whose modules have other names."""

_REQUIREMENT = re.compile(r"^\s*([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?\s*(?:>=\s*([\w.]+))?")


def release(version: str) -> tuple[int, ...]:
    """Return the numbers a version begins with: ``2.13.0+cpu`` is (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def is_older(version: str, least: str) -> bool:
    """Say whether a version is below another; ``2.9`` is below ``2.11``."""
    mine, other = release(version), release(least)
    length = max(len(mine), len(other))
    return mine + (0,) * (length - len(mine)) < other + (0,) * (length - len(other))


def installed_version(name: str) -> str | None:
    """Return the version of a package; ``None`` where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirements() -> tuple[str, dict[str, str]]:
    """Return the Python that is asked for, and the least version of each package; empty where any will do.

    They are read from pyproject.toml where that is beside the package, else from what was installed.
    """
    if PROJECT_FILE.is_file():
        project = tomllib.loads(PROJECT_FILE.read_text(encoding="utf-8"))["project"]
        return project["requires-python"], parsed(project["dependencies"])
    python = metadata.metadata(PACKAGE)["Requires-Python"]
    return python, parsed(
        [requirement for requirement in metadata.requires(PACKAGE) or [] if "extra ==" not in requirement]
    )


def parsed(lines: Sequence[str]) -> dict[str, str]:
    """Return names and least versions of requirements."""
    matches = [_REQUIREMENT.match(line) for line in lines]
    return {match[1].lower(): match[2] or "" for match in matches if match}


def python_finding(version: str, required: str) -> Finding:
    """Judge the Python that runs this."""
    fact = f"{version} ({platform.python_implementation()}), {required} is asked for"
    if is_older(version, required.lstrip("> =")):
        return Finding("Python", BROKEN, fact, "Make the environment with a newer Python.")
    return Finding("Python", OK, fact)


def package_finding(name: str, least: str, version: str | None, error: str) -> Finding:
    """Judge a package.

    Args:
        name: of the package.
        least: the version that is asked for; empty where any will do.
        version: what is installed; ``None`` where nothing is.
        error: what importing it said; empty where it worked.
    """
    requirement = f", at least {least} is asked for" if least else ""
    install = f'Install it: pip install "{name}>={least}"' if least else f"Install it: pip install {name}"
    if version is None:
        return Finding(name, BROKEN, f"not installed{requirement}", install)
    if error:
        return Finding(name, BROKEN, f"{version} cannot be imported: {error}", f"{install} --force-reinstall")
    if least and is_older(version, least):
        return Finding(name, BROKEN, f"{version}{requirement}", f"{install} --upgrade")
    return Finding(name, OK, f"{version}{requirement}")


def packages_finding(findings: Sequence[Finding]) -> list[Finding]:
    """Return what is wrong with packages one by one, and all others in one line."""
    good = [finding for finding in findings if finding.state == OK]
    line = ", ".join(f"{finding.name} {finding.fact.split(',')[0]}" for finding in good)
    whole = [Finding("packages", OK, f"{line}: they import")] if good else []
    return [*(finding for finding in findings if finding.state != OK), *whole]


def torch_finding(facts: Mapping[str, Any], has_nvidia_card: bool) -> Finding:
    """Judge how torch was built.

    Args:
        facts: ``version``, ``cuda`` (e.g. ``12.8``), ``hip``, ``threads``.
        has_nvidia_card: whether the driver knows one.
    """
    if "version" not in facts:
        return Finding("torch build", UNKNOWN, str(facts.get("error", "torch did not answer")))
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else (f"ROCm {facts['hip']}" if facts["hip"] else "no CUDA")
    fact = f"{facts['version']}, built with {build}; {counted(facts['threads'], 'thread')} an operation"
    if not facts["cuda"] and has_nvidia_card:
        return Finding("torch build", LOOK, f"{fact}, and there is an NVIDIA card", "Install torch's CUDA build.")
    return Finding("torch build", OK, fact)


def traces_finding(facts: Mapping[str, Any]) -> Finding:
    """Judge whether traces still show what this torch allocates.

    Args:
        facts: names of small steps that ``differ`` from their traces, number of ``steps``, ``version`` of torch.
    """
    if "differ" not in facts:
        return Finding("traces", UNKNOWN, f"they could not be tried: {facts.get('error', '')}")
    differ, steps = facts["differ"], counted(facts["steps"], "small step")
    if differ:
        fact = f"torch {facts['version']} allocates otherwise than traced in {len(differ)} of {steps}: "
        advice = "Predictions may be off. Peaks are measured all the same, and a run's plans follow them."
        return Finding("traces", LOOK, fact + ", ".join(differ), advice)
    fact = f"{steps} on the CPU allocated what their traces say, to the byte"
    if unknown := unknown_torch(facts["version"]):
        return Finding("traces", LOOK, f"{fact}; {unknown}", "What a card needs may still have changed.")
    return Finding("traces", OK, fact)
