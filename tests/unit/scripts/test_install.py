import os
import signal
import sys
from pathlib import Path

import pytest
from install import (
    ADVICE,
    InstallError,
    explain,
    is_satisfied,
    name_of,
    numbers,
    requirements,
    run_logged,
)


@pytest.mark.parametrize(
    ("requirement", "satisfied"),
    [
        ("numpy>=1.0", True),
        ("numpy>=99", False),
        ("numpy", True),
        ("coverage[toml]>=7.10", True),
        ("pyyaml>=6.0", True),
        ("surely-not-there", False),
        ("json>=99", True),  # a module of that name is there, though no distribution: good enough, as cv2 would be
    ],
)
def test_what_counts_as_installed(requirement: str, satisfied: bool):
    assert is_satisfied(requirement) is satisfied


def test_everything_this_project_requires_is_recognised_in_the_environment_of_its_tests():
    root = Path(__file__).parents[3]
    assert [line for line in requirements(root, ["test"]) if not is_satisfied(line)] == []


@pytest.mark.parametrize(
    ("version", "expected"), [("2.11.0a0+nv25.1", (2, 11, 0)), ("26.3", (26, 3)), ("7", (7,)), ("", ()), ("x", ())]
)
def test_leading_numbers_of_a_version(version: str, expected: tuple[int, ...]):
    assert numbers(version) == expected


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("PyYAML>=6", "pyyaml"), ("coverage[toml]>=7.10", "coverage"), ("types_PyYAML", "types-pyyaml"), ("a ; x", "a")],
)
def test_name_of_a_requirement(requirement: str, name: str):
    assert name_of(requirement) == name


def test_requirements_are_those_of_the_project_and_of_the_extras(repository: Path):
    assert requirements(repository, []) == ["torch>=2.11", "numpy>=1.0"]
    assert requirements(repository, ["test"]) == ["torch>=2.11", "numpy>=1.0", "pytest>=8.0"]


@pytest.mark.parametrize(
    ("output", "word"),
    [
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("NewConnectionError: [Errno -3] Temporary failure in name resolution", "network"),
        ("error: externally-managed-environment", "--here out"),
        ("something else", "Run again"),
    ],
)
def test_advice_fits_the_failure(output: str, word: str):
    assert word in explain(["pip"], output)
    assert any(word in text for _, text in ADVICE)


def test_only_the_end_of_a_long_output_is_quoted():
    message = explain(["pip"], "\n".join(f"line {n}" for n in range(1000)))
    assert "line 999" in message
    assert "line 900" not in message


@pytest.mark.skipif(os.name != "posix", reason="signals end no process here")
def test_a_command_that_ctrl_c_ends_has_not_failed():
    code = (
        f"import os, signal; signal.signal({signal.SIGINT:d}, signal.SIG_DFL); os.kill(os.getpid(), {signal.SIGINT:d})"
    )
    with pytest.raises(KeyboardInterrupt):
        run_logged([sys.executable, "-c", code])
    with pytest.raises(InstallError, match="failed; the end of its output"):
        run_logged([sys.executable, "-c", "import sys; sys.exit('no')"])
