"""Tests that run torch's compiler in their process, which may change how later tests of the process trace."""

import os

import pytest

APART = "TRAINAUTO_TESTS_OF_COMPILER"

in_own_process = pytest.mark.skipif(APART not in os.environ, reason="tests/integration/test_compiler.py runs it apart")
