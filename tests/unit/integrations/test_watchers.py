"""Automations that watch a loop of one's own: rates over its schedule, clipping, stops, resumes."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.steering import planned
from tests.unit.automations.watched import step_of
from tests.unit.integrations.test_adaptive_loop import SAMPLES, Numbered, Regression
from trainauto import AdaptiveLoop
from trainauto.automations.stop_file import STOP_FILE
from trainauto.core.decisions import ClipAt, RateFactor
from trainauto.core.errors import InputError


def loop_of(task: Regression, **options: Any) -> AdaptiveLoop:
    return AdaptiveLoop(task.net, task.objective(), Numbered(), batch_size=10, **options)


def test_what_is_decided_multiplies_the_rates_of_the_loops_own_schedule_and_leaves_it_alone() -> None:
    """A schedule that makes each rate of the one before."""
    task, by_hand = Regression(), Regression()
    schedule = torch.optim.lr_scheduler.ExponentialLR(task.optimizer, 0.9)
    rates: list[float] = []
    with planned({2: RateFactor(0.5, "half"), 6: RateFactor(0.25, "less")}) as section:
        loop = loop_of(task, automations=section)
    with loop:
        for batch in loop.batches(epochs=2):
            features, target = loop.contents(batch)
            factor = 1.0 if len(rates) < 2 else 0.5 if len(rates) < 6 else 0.25
            by_hand.optimizer.param_groups[0]["lr"] = 0.01 * 0.9 ** len(rates) * factor
            by_hand.optimizer.zero_grad()
            F.mse_loss(by_hand.net((features / SAMPLES).double()), target.double()).backward()
            by_hand.optimizer.step()
            assert loop.step(batch).trained
            rates.append(task.optimizer.param_groups[0]["lr"])
            schedule.step()
    assert rates == pytest.approx([0.01 * 0.9**step for step in range(10)], rel=1e-12)
    assert torch.allclose(task.weights(), by_hand.weights(), rtol=1e-12, atol=0)


def test_gradients_are_clipped_at_what_is_decided() -> None:
    task, moved = Regression(), []
    with planned({2: ClipAt(1e-3, "spikes", pass_name="fit"), 4: ClipAt(None, "calm")}) as section:
        loop = loop_of(task, automations=section, max_norm=1e-2)
    for batch in loop.batches(epochs=1):
        before = task.weights()
        loop.step(batch)
        moved.append(float((task.weights() - before).norm()) / 0.01)
    assert moved[:4] == pytest.approx([1e-2, 1e-2, 1e-3, 1e-3], rel=1e-3)
    assert moved[4] > 2e-2


def test_a_loop_that_gets_no_better_ends_and_goes_on_once_its_automations_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopping: dict[str, Any] = {"IntelligentEarlyStopping": {"monitor_metric": "val/accuracy", "patience": 2}}
    task = Regression()
    loop = loop_of(task, automations=stopping, run_directory=tmp_path / "runs")
    with loop:
        for epoch in range(9):
            for batch in loop.batches(epochs=epoch + 1):
                loop.step(batch)
            decided = loop.validated({"accuracy": 0.5}, better_is_higher={"accuracy": True})
            if loop.stop_reason:
                break
        state = loop.state_dict()
    assert (loop.epoch, len(decided)) == (3, 1)
    assert loop.stop_reason == ("val/accuracy has not improved in 2 validations: best 0.5 after step 5, now 0.5")
    run = (tmp_path / "runs" / "current").resolve()
    (stop,) = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert (stop["kind"], stop["step"], stop["termination"]) == ("stop", 15, "auto_no_improvement")
    summary = json.loads((run / "training_log.json").read_text())
    assert (summary["status"], summary["termination_status"]) == ("stopped", "auto_no_improvement")

    again = loop_of(Regression(), automations=stopping)
    again.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        assert list(again.batches(epochs=9)) == []
    assert "nothing to train: the run was stopped: val/accuracy has not improved" in caplog.text
    more = loop_of(Regression(), automations={"IntelligentEarlyStopping": {"patience": 4}})
    more.load_state_dict(state)
    assert not more.stop_reason
    for batch in more.batches(epochs=4):
        more.step(batch)
    assert more.epoch == 4
    assert not more.validated({"accuracy": 0.5})
    assert more.training.journal.automations[1].state_dict()["waited"] == 3


def trained_and_kept(section: Any, epochs: int = 1, **options: Any) -> tuple[AdaptiveLoop, Any]:
    """Return a loop that has trained, and its state as a file has it."""
    loop, file = loop_of(Regression(), automations=section, **options), io.BytesIO()
    for batch in loop.batches(epochs=epochs):
        loop.step(batch)
    torch.save(loop.state_dict(), file)
    loop.close()
    return loop, torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def test_what_an_automation_decided_ends_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """Taken out, and put back: it believes in no factor that is not in force."""
    decisions = {2: RateFactor(0.25, "less"), 3: ClipAt(1e-3, "spikes", pass_name="fit")}
    with planned(decisions) as section:
        kept, state = trained_and_kept(section)
        assert (kept.training.controls.rate_factor, kept.training.controls.max_norm_of("fit")) == (0.25, 1e-3)
        same = loop_of(Regression(), automations=section)
        same.load_state_dict(state)
        assert same.training.controls.rate_factor == 0.25
    without = loop_of(Regression())
    with caplog.at_level(logging.WARNING):
        without.load_state_dict(state)
    words = (
        "Plans is no longer among the automations, so its decisions are undone: learning rates follow the schedule "
        "again, instead of 0.25 times it, and gradients are clipped as the run does without it"
    )
    assert words in caplog.text
    assert (without.training.controls.rate_factor, without.training.controls.max_norm_of("fit")) == (1.0, None)
    step = next(without.step(batch) for batch in without.batches(epochs=2))
    assert [(type(one), one.early) for one in step.decisions] == [(RateFactor, True), (ClipAt, True)]
    again = loop_of(Regression(), automations={"IntelligentLearningRateScheduler": {}})
    again.load_state_dict(without.state_dict())
    assert again.training.facts().rate_factor == 1.0


def test_a_scheduler_that_is_added_to_another_goes_on_from_its_factor() -> None:
    both = {"IntelligentLearningRateScheduler": {}}
    with planned({2: RateFactor(0.25, "less")}) as section:
        _, state = trained_and_kept(section)
        loop = loop_of(Regression(), automations={**section, **both})
        loop.load_state_dict(state)
        next(loop.batches(epochs=2))
    (scheduler,) = [one for one in loop.training.journal.automations if one.name in both]
    assert scheduler.state_dict()["factor"] == 0.25


def test_a_loop_that_clips_at_less_than_before_clips_at_no_more() -> None:
    with planned({2: ClipAt(1e-2, "spikes", pass_name="fit")}) as section:
        _, state = trained_and_kept(section, max_norm=1.0)
        loop = loop_of(Regression(), automations=section, max_norm=1e-3)
        loop.load_state_dict(state)
    assert loop.training.controls.max_norm_of("fit") == 1e-3


def test_numbers_of_numpy_make_no_checkpoint_that_cannot_be_read() -> None:
    section = {
        "StopAtLowLoss": {"loss": np.float64(0.0), "patience": np.int64(3)},
        "IntelligentLearningRateScheduler": {"min_lr_factor": np.float32(0.25), "plateau_patience": torch.tensor(100)},
        "AdaptiveGradientClipping": {"percentile": np.float64(50.0), "warmup_steps": np.int64(1)},
    }
    loop, state = trained_and_kept(section, max_norm=np.float64(1.0))
    assert state["automations_given"]["StopAtLowLoss"] == {"loss": 0.0, "patience": 3}
    scheduler = next(one for one in loop.training.journal.automations if one.name.endswith("Scheduler"))
    runs_away = [scheduler.on_step_end(step_of(step, 2 ** (step / 20))) for step in range(6, 400)]
    assert {type(one.factor) for one in runs_away if isinstance(one, RateFactor)} == {float}
    assert type(state["controls"]["max_norms"]["fit"]) is float


def test_a_loop_that_was_ended_goes_on_where_anything_it_is_given_is_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    low = {"StopAtLowLoss": {"loss": 1e9, "patience": 2}}
    ended, state = trained_and_kept(low, max_norm=5.0)
    assert ended.progress.steps == 2
    same = loop_of(Regression(), automations=low, max_norm=5.0)
    same.load_state_dict(state)
    with caplog.at_level(logging.WARNING):
        assert list(same.batches(epochs=9)) == []
    assert "nothing to train: the run was stopped: the loss was at most 1e+09 for 2 steps" in caplog.text
    assert "It continues once anything it is given is another than then" in caplog.text
    other = loop_of(Regression(), automations=low, max_norm=2.0)
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(state)
    assert "max_norm 5.0 -> 2.0: so it continues" in caplog.text
    assert not other.stop_reason


def test_a_file_ends_a_loop_and_a_resume_goes_on(tmp_path: Path) -> None:
    loop = loop_of(Regression(), automations={"StopFile": {}}, run_directory=tmp_path)
    for batch in loop.batches(epochs=2):
        loop.step(batch)
        if loop.progress.steps == 3:
            (tmp_path / "current").resolve().joinpath(STOP_FILE).touch()
    assert loop.progress.steps == 4
    assert loop.stop_reason == "STOP_TRAINING requested it after step 4"
    state = loop.state_dict()
    loop.close()
    again = loop_of(Regression(), automations={"StopFile": {}}, run_directory=tmp_path)
    again.load_state_dict(state)
    with again:
        for batch in again.batches(epochs=2):
            again.step(batch)
    assert again.progress.steps == 10


def test_what_is_decided_is_logged_without_a_run_directory(caplog: pytest.LogCaptureFixture) -> None:
    with planned({1: RateFactor(0.5, "half")}) as section:
        loop = loop_of(Regression(), automations=section)
    with caplog.at_level(logging.INFO):
        for batch in loop.batches(epochs=1):
            loop.step(batch)
    assert "step 1: learning rate -> 0.5 x schedule: half" in caplog.text


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"DynamicBatchSizeOptimizer": {}}, "DynamicBatchSizeOptimizer chooses batches"),
        ({"PlanSchedule": {"changes": []}}, "PlanSchedule chooses batches"),
        ({"StopFil": {}}, "there is no automation named 'StopFil'"),
        ({"IntelligentEarlyStopping": {"patient": 3}}, "has no argument 'patient'"),
        (["StopFile"], "automations are a mapping of names to arguments"),
    ],
)
def test_what_cannot_watch_a_loop_is_refused(section: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        loop_of(Regression(), automations=section)
