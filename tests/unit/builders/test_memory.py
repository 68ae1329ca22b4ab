from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reporting.builders import GIB, a_summary
from trainauto.automations import Automation, DynamicBatchSizeOptimizer
from trainauto.builders.memory import BOUNDS, controller_defaults, log_bounds, with_memory
from trainauto.core.decisions import RunFacts
from trainauto.core.plan import Axis, Plan
from trainauto.core.run_events import DETAIL
from trainauto.options.cards import CardPreset, cpu_preset, find_card

MIB = 1024**2
SMALL = cpu_preset(60 * MIB)  # crops of 8 to 16 px, batches of 1 to 4
CARD = find_card("NVIDIA GeForce RTX 4090", 24 * GIB)


def facts(lq_size: int = 16, batch_size: int = 4, multiple: int = 1) -> RunFacts:
    axes = (Axis("lq_size", "px", multiple, 512, multiple, power=2), Axis("batch_size", "samples", 1, 1024))
    return RunFacts(axes, Plan.of(lq_size=lq_size, batch_size=batch_size))


@pytest.mark.parametrize(
    ("limit", "shares", "target"),
    [(10 * GIB, [0.8], 8 * GIB), (10 * GIB, [0.9, 0.5], 5 * GIB), (10 * GIB, [], None), (None, [0.8], None)],
)
def test_the_target_is_a_share_of_the_limit(limit: int | None, shares: list[float], target: int | None) -> None:
    automations: list[Automation] = [DynamicBatchSizeOptimizer(target_vram_usage=share) for share in shares]
    summary = with_memory(a_summary(), limit, [Automation(), *automations])
    assert (summary.memory_limit_bytes, summary.memory_target_bytes) == (limit, target)
    assert summary.name == a_summary().name


def test_the_start_says_what_is_filled_and_between_which_bounds() -> None:
    axes = (Axis("lq_size", "px", 4, 50, 4, "the smallest image", power=2), Axis("batch_size", "samples", 1, 1024))
    controller = DynamicBatchSizeOptimizer(target_vram_usage=0.8, safety_margin=0.1, min_lq_size=8, max_batch_size=16)
    told = with_memory(a_summary(facts=(("seed", "1"),)), 10 * GIB, [controller], axes, SMALL).facts
    assert told == (
        ("memory", "10.00 GiB; peaks are steered to 7.00 GiB to 8.00 GiB (70% to 80%)"),
        ("bounds", "lq_size 8 to 48 (the smallest image), batch_size 2 to 16 (file, else preset CPU 60MiB)"),
        ("seed", "1"),
    )
    for limit, automations, memory in (
        (GIB, [], "1.00 GiB; no controller is enabled, so batch size and crop size stay as in the file"),
        (None, [], "no limit is known; no controller is enabled, so batch size and crop size stay as in the file"),
        (None, [controller], "no limit is known, so batch size and crop size stay as in the file"),
    ):
        assert with_memory(a_summary(), limit, automations, axes).facts == (("memory", memory),)


def test_the_preset_fills_in_what_is_not_written_and_the_first_plan_lies_within() -> None:
    assert controller_defaults(SMALL, facts(), {"max_batch_size": 7}) == {
        "target_vram_usage": 0.55,
        "safety_margin": 0.05,
        "min_batch_size": 1,
        "min_lq_size": 8,
        "max_lq_size": 16,
    }
    found = controller_defaults(SMALL, facts(lq_size=4, batch_size=9), {})
    assert (found["min_lq_size"], found["max_batch_size"]) == (4, 9)


@pytest.mark.parametrize(
    ("preset", "written", "yields"),
    [
        (SMALL, {"min_lq_size": 64}, {"max_lq_size": 64}),
        (SMALL, {"min_batch_size": 6}, {"max_batch_size": 6}),
        (CARD, {"max_lq_size": 8}, {"min_lq_size": 8}),
        (CARD, {"max_batch_size": 1}, {"min_batch_size": 1}),
        (None, {"max_lq_size": 8}, {"min_lq_size": 8}),
        (None, {"max_batch_size": 1}, {"min_batch_size": 1}),
        (None, {"min_lq_size": 300}, {"max_lq_size": 300}),
        (None, {"min_batch_size": 100}, {"max_batch_size": 100}),
        (SMALL, {"target_vram_usage": 0.05}, {"safety_margin": 0.025}),
        (None, {"target_vram_usage": 0.04}, {"safety_margin": 0.02}),
        (SMALL, {"safety_margin": 0.6}, {"target_vram_usage": 0.8}),
    ],
)
def test_what_nobody_wrote_yields_to_what_somebody_wrote(
    preset: CardPreset | None, written: dict[str, Any], yields: dict[str, Any]
) -> None:
    found = controller_defaults(preset, facts(), written)
    assert {name: found[name] for name in yields} == yields
    DynamicBatchSizeOptimizer(**found, **written)


def test_it_yields_to_a_multiple_that_the_network_takes() -> None:
    run = facts(multiple=8)
    for written in ({"min_lq_size": 100}, {"max_lq_size": 20}):
        found = {**controller_defaults(SMALL, run, written), **written}
        assert (found["min_lq_size"], found["max_lq_size"]) in ((100, 104), (8, 20))
        DynamicBatchSizeOptimizer(**found).check(run)
    found = controller_defaults(CARD, facts(lq_size=64, multiple=8), {"max_lq_size": 20})
    assert found["min_lq_size"] == 16


@pytest.mark.parametrize("written", [{"max_lq_size": 0}, {"min_batch_size": 0}, {"target_vram_usage": 2.0}])
def test_what_is_wrong_alone_stays_wrong(written: dict[str, Any]) -> None:
    found = controller_defaults(SMALL, facts(), written)
    with pytest.raises(ValueError, match=rf"^{next(iter(written))} "):
        DynamicBatchSizeOptimizer(**found, **written)


SIZES = st.integers(1, 400)
WRITTEN = st.fixed_dictionaries(
    {},
    optional={
        **{name: SIZES for name in BOUNDS if name.endswith("size")},
        "target_vram_usage": st.floats(0.01, 1.0),
        "safety_margin": st.floats(0.0, 0.99),
    },
)


@given(WRITTEN, st.sampled_from([SMALL, CARD, None]), st.integers(1, 300), st.integers(1, 300))
def test_only_what_is_written_can_contradict(
    written: dict[str, Any], preset: CardPreset | None, lq_size: int, batch_size: int
) -> None:
    for low, high in (("min_lq_size", "max_lq_size"), ("min_batch_size", "max_batch_size")):
        if low in written and high in written:
            written[high] = max(written[high], written[low])
    if "target_vram_usage" in written and "safety_margin" in written:
        written["safety_margin"] = written["target_vram_usage"] * written["safety_margin"]
    run = facts(lq_size, batch_size)
    DynamicBatchSizeOptimizer(**controller_defaults(preset, run, written), **written).check(run)


def test_the_log_says_every_bound_and_where_it_comes_from(caplog: pytest.LogCaptureFixture) -> None:
    written = {"target_vram_usage": 0.7, "min_lq_size": 64, "policy": "jump"}
    with caplog.at_level(DETAIL):
        log_bounds("Controller", SMALL, written, controller_defaults(SMALL, facts(), written))
    assert caplog.messages == [
        "memory preset: CPU 60MiB (computed from the budget), for keys that the option file does not set",
        "Controller: target_vram_usage 0.7 (file), safety_margin 0.05 (preset), min_batch_size 1 (preset), "
        "max_batch_size 4 (preset), min_lq_size 64 (file), max_lq_size 64 (preset 16, moved to suit the file)",
    ]


def test_a_margin_that_raises_the_target_of_the_preset_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A margin is written to be careful, and must not raise what is filled without a word."""
    for written in ({"safety_margin": 0.7}, {"safety_margin": 0.3}, {"target_vram_usage": 0.02}):
        log_bounds("Controller", SMALL, written, controller_defaults(SMALL, facts(), written))
    assert caplog.messages == [
        "safety_margin 0.7 must lie below target_vram_usage, so that is 0.85 instead of 0.55, the preset's: "
        "write target_vram_usage beside it to set how much of the memory may be used"
    ]


def test_without_a_limit_there_is_nothing_to_fill(caplog: pytest.LogCaptureFixture) -> None:
    log_bounds("Controller", None, {}, controller_defaults(None, facts(), {}))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Controller has no memory limit to follow" in caplog.text
    assert "memory: {cpu_budget: 2GiB}" in caplog.text
