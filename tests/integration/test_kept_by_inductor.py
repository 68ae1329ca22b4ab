"""What inductor's code really keeps between the passes, beside what the joint graph says; minutes of compiling."""

import sys
from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "bench"))

from compiled_steps import NETWORKS, compared


@only_in_acceptance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_joint_graph_keeps_what_inductor_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    row = compared(name)
    assert row.joint_bytes == pytest.approx(row.inductor_bytes, rel=0.1)
