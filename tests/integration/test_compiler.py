"""Tests of torch's compiler, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.compiler import APART

ROOT = Path(__file__).parents[2]
MODULES = ("tests/unit/models/test_compiled_network.py", "tests/unit/memory/tracing/test_kept_bytes.py")


def test_tests_of_the_compiler_pass_apart() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *MODULES]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, APART: "1"}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
