"""What each loss adds to a step is the difference of two traces."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.commands import plugins_forgotten
from tests.seeded_towers import write_seeded_towers
from tests.traced_networks import PLAN, loaded, write_traced_options
from trainauto.commands.plan_table import losses_text
from trainauto.core.plan import Plan
from trainauto.forecast.loss_bytes import LossBytes, bytes_by_loss
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.cost.memory_forecast import PlanBytes
from trainauto.memory.tracing.trace import TraceError
from trainauto.options.load import load_options

UNTRACEABLE = """
from trainauto.losses import LOSSES, WeightedLoss

@LOSSES.register("reads_whole")
class ReadsWhole(WeightedLoss):
    def compute(self, prediction, target):
        return (prediction - target).flatten()[: int((prediction > target).sum().item())].mean()

@LOSSES.register("indexes")
class Indexes(WeightedLoss):
    def compute(self, prediction, target):
        return (prediction - target)[prediction > target].mean()
"""


class InThisProcess:
    """Traces as a process of its own would."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.asked = 0

    def trace(self, plan: Plan, overrides: Sequence[str] = ()) -> PlanBytes:
        self.asked += 1
        trace = FakeRun.of(load_options(self._file, overrides)).trace(plan)
        return PlanBytes.of(trace, 0.0, segments=None)


def test_what_each_loss_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    write_seeded_towers(tmp_path, divisor=8)
    losses = [{"type": "l1loss"}, {"type": "perceptualloss"}, {"type": "distsloss", "loss_weight": 0}]
    file = write_traced_options(tmp_path, train={"losses": losses}, plugins=[])
    found = bytes_by_loss(load_options(file), InThisProcess(file), PLAN)  # type: ignore[arg-type]
    assert found is not None
    assert set(found.added) == {"l1loss", "perceptualloss"}
    alone = write_traced_options(tmp_path, train={"losses": losses[:1]}, plugins=[])
    without = FakeRun.of(load_options(alone)).trace(PLAN).peak_bytes
    both = FakeRun.of(load_options(write_traced_options(tmp_path, train={"losses": losses[:2]}, plugins=[])))
    assert found.added["perceptualloss"] == both.trace(PLAN).peak_bytes - without
    assert found.added["perceptualloss"] > 4 * 330_000  # weights of the tower, beside what it computes
    assert found.added["perceptualloss"] > found.added["l1loss"] >= 0


def test_the_loss_of_a_discriminator_comes_with_the_discriminator(tmp_path: Path) -> None:
    gan = {
        "model_type": "SRGANModel",
        "network_d": {"type": "unetdiscriminatorsn", "num_feat": 8},
        "path": {"pretrain_network_d": "weights.pth", "strict_load_d": False},
    }
    late = {"weight_schedule": {"start_iter": 3}}
    losses = [{"type": "l1loss", "target": "gt"}, {"type": "ganloss", "loss_weight": 0.1, **late}]
    pace = {"net_d_iters": 2, "net_d_init_iters": 3, "optim_d": {"type": "Adam", "lr": 1e-4}}
    file = write_traced_options(tmp_path, train={"losses": losses, **pace}, plugins=[], **gan)
    found = bytes_by_loss(load_options(file), InThisProcess(file), PLAN)  # type: ignore[arg-type]
    assert found is not None
    whole = FakeRun.of(load_options(file)).trace(PLAN).peak_bytes
    alone = write_traced_options(tmp_path, train={"losses": losses[:1]}, plugins=[])
    without = FakeRun.of(load_options(alone)).trace(PLAN).peak_bytes
    assert set(found.added) == {"l1loss", "ganloss"}  # without the first one no loss counts in the first step
    assert abs(found.added["ganloss"] - (whole - without)) <= 1024


@pytest.mark.parametrize("kind", ["reads_whole", "indexes"])
def test_a_loss_that_cannot_be_traced_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "untraceable.py").write_text(UNTRACEABLE)
    losses = [{"type": "l1loss"}, {"type": kind}, {"type": kind}]
    file = write_traced_options(tmp_path, train={"losses": losses}, plugins=["untraceable"])
    with plugins_forgotten(tmp_path), pytest.raises(TraceError, match=rf"untraceable.py:.*, in loss '{kind}'$"):
        FakeRun.of(loaded(file)).trace(PLAN)


def test_one_loss_is_not_traced_twice(tmp_path: Path) -> None:
    file = write_traced_options(tmp_path, train={"losses": [{"type": "l1loss"}]}, plugins=[])
    tracer = InThisProcess(file)
    assert bytes_by_loss(load_options(file), tracer, PLAN) is None  # type: ignore[arg-type]
    assert tracer.asked == 0


def test_words_name_the_largest_first() -> None:
    added = {"l1loss": 0, "mssimloss": 2 * 2**20, "perceptualloss": 3 * 2**29}
    assert " ".join(losses_text(LossBytes(Plan.of(batch_size=8, lq_size=64), added)).split()) == (
        "each loss by itself adds at batch 8 x 64 px: perceptualloss +1.50 GiB, mssimloss +2.0 MiB; nothing to the "
        "peak: l1loss"
    )
