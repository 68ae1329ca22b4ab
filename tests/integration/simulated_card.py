"""Running programs on a simulated card: PyTorch's CUDA build over a CUDA whose kernels do nothing."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "simulated_card.py"
PROGRAMS = ROOT / "tests" / "simulated_card" / "programs"
NOT_HERE = 3

in_acceptance = pytest.mark.skipif(
    "TRAINAUTO_SIMULATED_CARD" not in os.environ, reason="TRAINAUTO_SIMULATED_CARD is not set"
)


@pytest.fixture(scope="session")
def simulated_card() -> None:
    """Build it, or skip where this machine lacks what it is made of."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "prepare", "--here"], capture_output=True, text=True, check=False
    )
    if done.returncode == NOT_HERE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def _without_limit() -> None:
    """Lift what a budget of an earlier test left in this process: the card's memory is address space, which counts."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def on_card(
    *command: str | Path,
    card: str = "RTX 3060 12GB",
    others: str = "0MiB",
    count: int = 1,
    expandable: bool = True,
    torch: str | None = None,
    cwd: Path = ROOT,
    code: int = 0,
) -> str:
    """Run a command on a card, and return what it wrote; it must end with this exit code."""
    chosen = ["--card", card, "--others", others, "--count", str(count), *(["--torch", torch] if torch else [])]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "run", "--here", *chosen, "--", *map(str, command)],
        env={**inherited, "PYTORCH_ALLOC_CONF": f"expandable_segments:{expandable}"},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        preexec_fn=_without_limit,
        check=False,
    )
    assert done.returncode == code, done.stdout[-6000:]
    return done.stdout
