"""Real runs in this process that a schedule or the real controller steers: length, bounds, resume, curves.

No budget is in force. The controller is told of a limit so large that what is really read lies far below its band, so
that it grows after every period; which plans it asks for then depends on no machine.
"""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.integration.commands import merged, run_directory, step_records, tiny_options, write_options
from trainauto.automations import DynamicBatchSizeOptimizer
from trainauto.build import build_run
from trainauto.builders.precision import load_compiler
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.engine.loop import train
from trainauto.engine.run import Run
from trainauto.engine.run_errors import NothingFitsError
from trainauto.memory.monitor.meter import resident_bytes
from trainauto.optim.ema import Ema
from trainauto.options.load import load_options
from trainauto.reporting.curves import UNITS, unit_for
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.sr.losses import LOSSES

Write = Callable[..., Path]
Records = list[dict[str, Any]]

LIMIT_BYTES = 2**40
NAME = "DynamicBatchSizeOptimizer"
SMALLEST_LQ_PX = 27

needs_readings = pytest.mark.skipif(resident_bytes() is None, reason="this platform does not tell its memory")


@pytest.fixture
def options(tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a run on images of 50 and more pixels of the input, but for one of 27."""
    monkeypatch.chdir(tmp_path)
    gt = write_images("gt", 3, (100, 110))
    write_images("gt/small", 1, (2 * SMALLEST_LQ_PX, 70))
    options = tiny_options(gt, val={"val_enabled": False, "metrics": {}}, train={"scheduler": {"type": "linear"}})
    del options["datasets"]["val"]
    return options


def steered(options: dict[str, Any], total_iter: int = 20, **controller: Any) -> dict[str, Any]:
    arguments = {
        "policy": "step",
        "adjustment_frequency": 2,
        "min_batch_size": 2,
        "min_lq_size": 8,
        "max_lq_size": 64,
        **controller,
    }
    return merged(options, {"train": {"total_iter": total_iter}, "training_automations": {NAME: arguments}})


@contextmanager
def built(options: dict[str, Any], *, auto_resume: bool = False) -> Iterator[Run]:
    with build_run(load_options(write_options(Path("run.yml"), options)), auto_resume=auto_resume) as run:
        run.meter.limit_bytes = LIMIT_BYTES
        yield run


def trained(options: dict[str, Any], *, auto_resume: bool = False) -> Records:
    with built(options, auto_resume=auto_resume) as run:
        assert train(run).status == "completed"
    return step_records(directory())


def directory() -> Path:
    return run_directory(Path.cwd() / "run.yml")


def decisions() -> Records:
    file = directory() / "decisions.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def plans(records: Records) -> list[tuple[int, int]]:
    return [(record["plan"]["lq_size"], record["plan"]["batch_size"]) for record in records]


def controller_of(run: Run) -> DynamicBatchSizeOptimizer:
    (controller,) = run.journal.automations
    assert isinstance(controller, DynamicBatchSizeOptimizer)
    return controller


def test_a_run_leaves_to_its_process_what_that_kept_from_collection(options: dict[str, Any]) -> None:
    load_compiler()
    gc.freeze()
    kept = gc.get_freeze_count()
    with built(options):
        pass
    assert gc.get_freeze_count() > 0.9 * kept


GROWING = {"training_automations": {"PlanSchedule": {"changes": [{"step": 2, "batch_size": 15}]}}}


def test_a_run_counted_in_steps_keeps_its_steps_when_the_batch_grows(options: dict[str, Any]) -> None:
    """Fault 2: the length was epochs of the first batch size, so that a growing batch ended the run early."""
    records = trained(merged(options, {**GROWING, "train": {"total_iter": 14}}))
    assert [record["samples"] for record in records] == [4] * 6 + [15] * 8
    assert [record["lr"]["g"] for record in records] == [pytest.approx(1e-3 * (1 - step / 14)) for step in range(14)]


def test_a_run_counted_in_samples_sees_them_all_when_the_batch_grows(options: dict[str, Any]) -> None:
    """Fault 2: 100 samples are 100 samples, in fewer steps; the rate follows the samples and not the steps."""
    del options["train"]["total_iter"]
    records = trained(merged(options, {**GROWING, "train": {"total_samples": 100}}))
    assert [record["samples"] for record in records] == [4] * 6 + [15] * 6
    trained_before = [record["first_sample"] for record in records]
    assert trained_before[-1] < 100 <= trained_before[-1] + 15
    assert [record["lr"]["g"] for record in records] == [pytest.approx(1e-3 * (1 - n / 100)) for n in trained_before]


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("sqrt", 2.0), ("linear", 4.0)])
def test_rates_follow_the_batch_as_the_file_says(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, rule: str, factor: float
) -> None:
    """The average follows too, and a resumed run goes on alike; pieces of a batch cut down are smaller steps."""
    shares: list[float] = []
    update = Ema.update

    def noting(self: Ema, network: nn.Module, share: float = 1.0) -> None:
        shares.append(share)
        update(self, network, share)

    monkeypatch.setattr(Ema, "update", noting)
    changes = [{"step": 2, "batch_size": 16}, {"step": 8, "batch_size": 1}]
    chosen = {"training_automations": {"PlanSchedule": {"changes": changes}}}
    chosen |= {"train": {"total_iter": 8, "lr_scaling": rule, "scheduler": {"type": "constant"}}}
    trained(merged(options, chosen))
    records = trained(merged(options, merged(chosen, {"train": {"total_iter": 12}})), auto_resume=True)
    samples = [record["samples"] for record in records]
    assert samples == [4] * 6 + [16] * 2 + [1] * 4
    cut = {1.0: 1.0, 2.0: 0.5, 4.0: 0.25}[factor]
    want = [1.0] * 6 + [factor] * 2 + [cut] * 4
    assert [record["lr"]["g"] for record in records] == pytest.approx([1e-3 * rate for rate in want])
    assert shares == ([1.0] * 12 if rule == "none" else [count / 4 for count in samples])


@needs_readings
def test_growth_ends_at_the_smallest_image_and_reaches_the_curves(options: dict[str, Any]) -> None:
    """Fault 15: there was no cap by the smallest image. Fault 20: batch and crop never reached TensorBoard.

    The curve of peaks is that of the records as well (E14).
    """
    steering = steered(options, 30, max_batch_size=9)
    records = trained(merged(steering, {"logger": {"use_tb_logger": True}}))
    crops, batches = zip(*plans(records), strict=True)
    assert sorted(set(crops)) == [16, 24, SMALLEST_LQ_PX]
    assert (crops[-1], batches[-1]) == (SMALLEST_LQ_PX, 9)
    assert [record["extent"] for record in records] == list(crops)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(RunDirectory(directory()).tensorboard), size_guidance={"scalars": 0}).Reload()
    for axis, values in (("lq_size", crops), ("batch_size", batches)):
        curve = [(event.step, event.value) for event in events.Scalars(f"plan/{axis}")]
        assert curve == list(enumerate(values, 1)), axis
    peaks = [record["peak"]["allocated"] for record in records]
    # The unit follows the first peak, which is of the whole process here: what earlier tests left counts.
    unit = unit_for(int(peaks[0]))
    curve = events.Scalars(f"memory/peak_{unit.lower()}")
    assert [event.value * UNITS[unit] for event in curve] == pytest.approx(peaks, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "largest"),
    [
        ({}, SMALLEST_LQ_PX),
        ({"network_g": {"type": "swinir_light", "embed_dim": 12, "depths": [1], "num_heads": [2]}}, 24),  # windows of 8
        ({"datasets": {"train": {"lq_size": 32}}}, 32),  # the file asks for it: mirrored at the edge, and no further
    ],
)
def test_the_axes_of_a_run_end_at_the_smallest_image(
    options: dict[str, Any], changes: dict[str, Any], largest: int
) -> None:
    """Fault 15: what every automation is told of the run, and what the network makes of it."""
    with built(merged(steered(options), changes)) as run:
        (lq_size,) = [axis for axis in run.axes if axis.name == "lq_size"]
    assert lq_size.maximum == largest


def test_a_crop_that_no_image_holds_is_refused(options: dict[str, Any]) -> None:
    changes = merged(steered(options), {"datasets": {"train": {"lq_size": 51}}})
    with pytest.raises(InputError, match="lq_size 51 is larger than every image") as caught, built(changes):
        pass
    (problem,) = caught.value.problems
    assert problem.advice == f"Take at most 50; the smallest has {SMALLEST_LQ_PX}."


@needs_readings
def test_decisions_rest_on_whole_periods_of_the_steps_own_peaks(options: dict[str, Any]) -> None:
    """Fault 22: decisions were made from memory at start-up. Here the log shows it (E04, E05, E06, E14, E18)."""
    records = trained(steered(options, 20, adjustment_frequency=5))
    first = decisions()[0]
    assert first["step"] == 5
    assert first["measured"] == max(record["peak"]["allocated"] for record in records[:5])


@needs_readings
def test_a_resume_takes_up_the_loaders_plan_and_the_controllers_numbers(options: dict[str, Any]) -> None:
    """Fault 11: the automation's numbers came back and the loader's did not, so that they spoke of another batch."""
    whole = trained(steered(options))
    with built(steered(options, 9)) as run:
        train(run)
        loader, controller, pending = run.loader.state_dict(), controller_of(run).state_dict(), run.loader.plan
    assert (pending["lq_size"], plans(step_records(directory()))[-1]) == (27, (24, 4))  # asked for, and on its way
    with built(steered(options), auto_resume=True) as run:
        assert run.loader.plan == pending
        assert run.loader.state_dict() == loader
        assert controller_of(run).state_dict() == controller
        train(run)
    resumed = step_records(directory())
    assert [record["step"] for record in resumed] == list(range(1, 21))
    assert plans(resumed) == plans(whole)
    assert [r["first_sample"] for r in resumed] == [r["first_sample"] for r in whole]


@needs_readings
@pytest.mark.parametrize("switch", [{"enabled": False}, {NAME: {"enabled": False}}])
def test_a_checkpoint_switches_nothing_back_on(options: dict[str, Any], switch: dict[str, Any]) -> None:
    """Fault 12: the checkpoint overrode ``enabled`` of the option file (C12, C13)."""
    trained(steered(options, 7))
    before = decisions()
    off = merged(steered(options, 14), {"training_automations": switch})
    with built(off, auto_resume=True) as run:
        assert list(run.journal.automations) == []
        train(run)
    assert decisions() == before != []
    assert plans(step_records(directory()))[7:] == [(24, 4)] * 7  # the plan stays where the controller had brought it
    trained(steered(options, 24), auto_resume=True)
    assert len(decisions()) > len(before)  # switched on again it goes on, though the last checkpoint knew none


@needs_readings
def test_a_resume_takes_bounds_and_target_from_the_option_file(options: dict[str, Any]) -> None:
    """Fault 12: the numbers of the option file are not the checkpoint's either."""
    trained(steered(options, 7))
    other = {"max_batch_size": 6, "max_lq_size": 25, "target_vram_usage": 0.5, "safety_margin": 0.1}
    with built(steered(options, 30, **other), auto_resume=True) as run:
        controller = controller_of(run)
        crop, batch = controller.controller.bounded(())
        assert (batch.maximum, crop.maximum, controller.target_vram_usage, controller.safety_margin) == (
            6,
            25,
            0.5,
            0.1,
        )
        train(run)
    assert plans(step_records(directory()))[-1] == (25, 6)


@pytest.mark.parametrize("master", [True, False])
def test_switching_off_what_there_is_not_is_refused(options: dict[str, Any], master: bool) -> None:
    """Fault 1: an automation by a wrong name was silently left on."""
    wrong = {"enabled": master, "DynamicBatchsizeOptimiser": {"enabled": False}}
    with pytest.raises(InputError) as caught, built(merged(steered(options), {"training_automations": wrong})):
        pass
    (problem,) = caught.value.problems
    assert problem.message == "there is no automation named 'DynamicBatchsizeOptimiser'"
    assert problem.advice == "Did you mean 'DynamicBatchSizeOptimizer'?"
    assert problem.place is not None
    assert "DynamicBatchsizeOptimiser:" in problem.place.text


class NeverFits(nn.Module):
    """A loss that no batch fits; notes the crops that were tried, px of the output."""

    def __init__(self, tried: set[int]) -> None:
        super().__init__()
        self.tried = tried

    def forward(self, output: Tensor, gt: Tensor) -> Tensor:
        self.tried.add(gt.shape[-1])
        return torch.empty(2**60, dtype=torch.uint8)  # the allocator's own refusal


def test_nothing_is_shrunk_below_the_minimum(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 9: decreases ignored the minimum. When nothing fits, the engine itself shrinks, and stops there too."""
    tried: set[int] = set()
    monkeypatch.setitem(LOSSES._entries, "l1loss", lambda: NeverFits(tried))
    with built(steered(options, min_lq_size=13, min_batch_size=3)) as run:
        with pytest.raises(NothingFitsError):
            train(run)
        assert run.loader.plan == Plan.of(batch_size=3, lq_size=13)
    assert tried == {2 * 16, 2 * 13}
