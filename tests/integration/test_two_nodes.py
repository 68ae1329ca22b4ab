"""A run on two machines that loses a rank or a whole machine goes on without a gap (C43)."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import latest_weights, merged, run_directory, step_records, write_options
from tests.integration.machines import two_machines, wait_for, why_not
from tests.integration.ranks import worker
from tests.integration.test_elastic import STEPS, wait_for_steps
from tests.integration.test_elastic import options_for as for_lost_ranks

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there can be two machines")

WriteImages = Callable[..., Path]
SLOW = Path(__file__).parents[1] / "assets" / "plugins" / "slow.py"


def options_for(gt: Path, name: str, **changes: Any) -> dict[str, Any]:
    slow = {"plugins": ["slow"], "training_automations": {"Slow": {"seconds": 0.05}}}
    return for_lost_ranks(gt, name, **merged(slow, changes))


@pytest.fixture
def gt(tmp_path: Path, write_images: WriteImages) -> Path:
    shutil.copy(SLOW, tmp_path)
    return write_images("gt", 11)


@pytest.fixture
def said(tmp_path: Path) -> Callable[[], str]:
    def read() -> str:
        return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in sorted(tmp_path.glob("said_*.txt")))

    return read


@pytest.fixture(scope="module")
def unbroken() -> dict[str, bytes]:
    """Weights of the run that lost nothing; the first test that needs them trains it."""
    return {}


@only_in_acceptance
def test_a_lost_rank_leaves_no_gap(
    tmp_path: Path, gt: Path, said: Callable[[], str], unbroken: dict[str, bytes]
) -> None:
    """Its own torchrun counts a restart, the other one may only have seen it come back: both ranks go on."""
    options = write_options(tmp_path / "lost.yml", options_for(gt, "lost"))
    with two_machines() as machines:
        for machine in machines:
            machine.torchrun(options, machines[0], variables={})
        wait_for_steps(records_of(options), 25)
        machines[1].kill_rank()
        assert wait_for([machine.agents[-1] for machine in machines], 150) == [0, 0], said()
    check_whole(options, gt, unbroken)


@only_in_acceptance
@pytest.mark.parametrize("lost", ["second", "first"])
def test_a_lost_machine_leaves_no_gap(
    tmp_path: Path, gt: Path, said: Callable[[], str], unbroken: dict[str, bytes], lost: str
) -> None:
    """It comes back as a scheduler would bring it, and says alone that the run is to go on.

    The other one has the meeting point. Machines are numbered by address: the one that is lost has rank 1 in one case,
    and rank 0, which decides and writes, in the other.
    """
    options = write_options(tmp_path / "lost.yml", options_for(gt, "lost"))
    # Else torchrun on the machine that stays names the store of the last round, or none, to the one that comes.
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with two_machines() as machines:
        keeps, falls = machines if lost == "second" else reversed(machines)
        for machine in (keeps, falls):
            machine.torchrun(options, keeps, variables=variables)
        wait_for_steps(records_of(options), 25)
        falls.kill()
        falls.torchrun(options, keeps, "--auto_resume", variables=variables)
        assert wait_for([keeps.agents[-1], falls.agents[-1]], 150) == [0, 0], said()
    check_whole(options, gt, unbroken)


def records_of(options: Path) -> Path:
    return options.parent / "experiments" / "lost" / "current" / "training_log.jsonl"


def check_whole(options: Path, gt: Path, unbroken: dict[str, bytes]) -> None:
    """Every step and sample is there once, in one folder, and the weights are those of a run that lost nothing."""
    run = run_directory(options, "lost")
    steps = step_records(run)
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    ends = [step["first_sample"] + step["samples"] for step in steps]
    assert [step["first_sample"] for step in steps] == [0, *ends[:-1]]
    assert len(list((options.parent / "experiments" / "lost").glob("2*"))) == 1, "it goes on in its own directory"
    assert (run / "training.log").read_text().count("directory ") == 2, "it was lost once, and went on once"

    if not unbroken:
        quick = {"training_automations": {"Slow": {"seconds": 0}}}
        whole = write_options(options.with_name("whole.yml"), options_for(gt, "whole", **quick))
        (first, second) = worker(whole, 2)
        assert first["weights"] == second["weights"]
        unbroken.update(latest_weights(run_directory(whole, "whole")))
    assert latest_weights(run) == unbroken
