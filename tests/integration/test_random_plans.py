"""Random plans against random budgets on four networks: every failure is recovered, nothing is kept (C04)."""

import json
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import ACCEPTANCE, only_in_acceptance
from tests.integration.commands import script

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")

ROOT = Path(__file__).parents[2]
PLANS = 125 if ACCEPTANCE else 24  # of each network
LEAST_OF_EITHER = PLANS // 6
LARGEST_GROWTH_MIB = 32


def tried(network: str) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run the plans in a child process; return what became of each, and how much more memory it held in the end."""
    done = script("-m", "tests.integration.random_plans", network, "1", str(PLANS), cwd=ROOT, timeout_s=280)
    # An error that the engine does not take for a lack of memory ends the child with 1, an abort with a signal.
    assert done.returncode == 0, f"after {len(done.stdout.splitlines())} plans:\n{done.stderr}"
    *plans, end = (json.loads(line) for line in done.stdout.splitlines())
    return plans, end["at_the_end_mib"]


@pytest.mark.parametrize(
    "network",
    ["compact", *(pytest.param(name, marks=only_in_acceptance) for name in ("rrdbnet", "span", "swinir_light"))],
)
def test_every_failure_is_recovered_and_nothing_stays(network: str) -> None:
    plans, at_the_end_mib = tried(network)
    assert len(plans) == PLANS
    failed = [plan for plan in plans if plan["errors"]]
    kinds = Counter(error[:60] for plan in failed for error in plan["errors"])
    print(f"{network}: {len(failed)} of {PLANS} plans did not fit; {dict(kinds)}; {at_the_end_mib} in the end")
    assert len(failed) >= LEAST_OF_EITHER
    assert PLANS - len(failed) >= LEAST_OF_EITHER
    assert all(plan["trained"] and plan["changed"] for plan in plans if not plan["errors"])

    # What fits in no pieces leaves the weights alone, and the smallest plan trains under the same budget.
    assert [plan for plan in failed if plan["trained"] != plan["changed"]] == []
    assert [plan for plan in failed if not plan["smallest_trained"]] == []
    assert all(plan["finite"] for plan in plans)

    growths_mib = [at_the_end_mib, *(plan["growth_mib"] for plan in failed)]
    assert max(growth for growths in growths_mib for growth in growths.values()) <= LARGEST_GROWTH_MIB
