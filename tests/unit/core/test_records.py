"""What a step's peak says of its plan."""

from dataclasses import replace

from trainauto.core.plan import BatchShape, Plan
from trainauto.core.record_json import step_from_dict, step_to_dict
from trainauto.core.records import MicrobatchSplit, Progress, StepRecord

PLAN = Plan.of(batch_size=4, lq_size=16)
WHOLE = StepRecord(1, PLAN, PLAN, BatchShape(4, 16), 0, {}, {}, {}, 0.0, 0.1)


def test_only_a_step_that_ran_as_its_plan_says_is_whole() -> None:
    """A replay runs in pieces without a failure; its peak is that of the pieces."""
    assert WHOLE.is_whole
    assert not replace(WHOLE, shape=BatchShape(2, 16)).is_whole
    assert not replace(WHOLE, shape=BatchShape(4, 12)).is_whole
    assert not replace(WHOLE, ooms=1).is_whole
    assert not replace(WHOLE, pieces={"g": MicrobatchSplit(2, 16)}).is_whole
    without_generator = replace(WHOLE, left_out=("g",))
    assert not without_generator.is_whole
    assert step_from_dict(step_to_dict(without_generator)).left_out == ("g",)


def test_texts_may_be_shorter_than_their_plan_allows() -> None:
    plan = Plan.of(batch_size=4, tokens=16)
    texts = replace(WHOLE, plan=plan, drawn=plan, shape=BatchShape(4, 12, tokens=48))
    assert texts.is_whole
    assert not replace(texts, shape=BatchShape(4, 17, tokens=68)).is_whole


def test_a_draw_that_says_itself_what_it_holds_was_trained_whole_or_not() -> None:
    plan = Plan.of(tokens=50)
    texts = replace(WHOLE, plan=plan, drawn=plan, shape=BatchShape(4, 12, tokens=48), draw_samples=4)
    assert texts.is_whole
    assert not replace(texts, draw_samples=5).is_whole
    assert not replace(texts, drawn=Plan.of(tokens=60)).is_whole
    assert step_from_dict(step_to_dict(texts)) == texts
    assert "draw_samples" not in step_to_dict(WHOLE)


def test_what_was_called_pixels_is_read() -> None:
    line = step_to_dict(replace(WHOLE, units=7))
    before = {"pixels" if name == "units" else name: value for name, value in line.items()}
    assert step_from_dict(before) == step_from_dict(line) == replace(WHOLE, units=7)
    progress = Progress(steps=2, samples=8, units=9, tokens=3, seconds=0.5)
    counters = {"steps": 2, "samples": 8, "pixels": 9, "tokens": 3, "seconds": 0.5}
    assert Progress.from_dict(counters) == Progress.from_dict(vars(progress)) == progress
