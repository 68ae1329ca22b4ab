"""Traces follow the losses of super-resolution: a step with each of them takes what torch's profiler says it does."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.seeded_towers import needs_metrics, write_seeded_towers
from trainauto.core.plan import Plan

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import trace_accuracy as bench
from trace_cases import option_case

DEFAULT = ["charbonnierloss", "mssimloss", "perceptualloss", "hsluvloss"]
PLAN = Plan.of(batch_size=3, lq_size=16)


@pytest.fixture(scope="module", autouse=True)
def _towers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("towers")
    write_seeded_towers(home, divisor=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_HOME", str(home))
        yield


@pytest.mark.parametrize(
    "losses",
    [
        DEFAULT,
        ["l1loss", "fftloss", "psnrloss"],
        ["colorloss", "averageloss", "bicubicloss", "lumaloss"],
        ["ffloss", "gradientvarianceloss", "nccloss"],
        ["cosimloss", "sobeledgeloss", "msssiml1loss", "fliploss"],
        ["ldlloss"],
        ["mssim_loss", "consistency_loss", "chc_loss", "ldl_loss"],
        ["vggperceptualloss", "perceptualfp16loss"],
        pytest.param(["lpipsloss"], marks=needs_metrics),
        pytest.param(["distsloss"], marks=needs_metrics),
    ],
    ids="+".join,
)
def test_a_step_takes_what_its_trace_says(losses: list[str], tmp_path: Path) -> None:
    options = {
        "network_g": {"type": "compact", "num_feat": 8, "num_conv": 1},
        "train": {"losses": [{"type": name} for name in losses]},
    }
    (row,) = bench.measure(option_case("losses", tmp_path, options, [PLAN]), torch.float32)["plans"]
    assert abs(row["error"]) < 1e-3
