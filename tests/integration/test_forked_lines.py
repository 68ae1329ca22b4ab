"""Lines that a forked child ran are known, however it ended."""

import builtins
import os
import signal
import sys
from pathlib import Path

import pytest

from tests import line_probes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_child_has_marked_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "forked_sample.py"
    file.write_text("x = 1\nif x > 1:\n    x = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    marks = line_probes.Marks(["forked_sample"])
    monkeypatch.setattr(builtins, line_probes.MARKS, marks.bytes, raising=False)
    monkeypatch.setattr(sys, "meta_path", [marks, *sys.meta_path])
    if (child := os.fork()) == 0:
        try:
            __import__("forked_sample")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert marks.ran() == {str(file): [1, 2]}
