"""A loop of one's own whose process was not prepared for a memory budget."""

import os
import platform
import subprocess
import sys

import pytest

from trainauto.core.process import ENVIRONMENT


@pytest.mark.skipif(platform.system() != "Linux", reason="a CPU budget is enforced on Linux only")
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("", "set_environment() was not called, and a memory budget on a CPU needs it"),
        ("import torch; set_environment()", "set_environment() was called after torch had been imported, and"),
        ("set_environment(); import torch", None),
    ],
)
@pytest.mark.usefixtures("children_covered")
def test_a_cpu_budget_without_its_environment_is_told(before: str, words: str | None) -> None:
    """In a process of its own, where torch is not loaded yet."""
    code = f"""
from trainauto.core.process import set_environment
{before}
from trainauto.automations import TrainingAutomations
TrainingAutomations({{"DynamicBatchSizeOptimizer": {{}}}}, memory_budget="200MiB")
"""
    variables = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (words in done.stderr) if words else (done.stderr == "")
