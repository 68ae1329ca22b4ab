"""``gradient_checkpointing: auto``: as few blocks as let the file's plan fit, kept by resumes and replays."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import latest_weights, merged, run_directory, step_records, tiny_options, write_options
from trainauto.build import build_run
from trainauto.builders.data import first_plan
from trainauto.commands.run_replay import logged_run, replay
from trainauto.core.errors import InputError
from trainauto.core.units import MIB
from trainauto.core.worker_process import start_tracing
from trainauto.engine.loop import train as train_run
from trainauto.forecast.option_plans import plan_for_cards, plan_recipes_of_blocks
from trainauto.forecast.recomputation import Bounds, choose_parts, recomputing
from trainauto.forecast.trace_process import TraceProcess
from trainauto.options.cards import card_of_memory
from trainauto.options.load import load_options

RRDB = {"type": "rrdbnet", "num_feat": 16, "num_grow_ch": 8, "num_block": 4}
BLOCKS = [f"net_g.body.{number}" for number in range(4)]


@pytest.fixture
def options(tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return tiny_options(
        write_images("gt", 3, (160, 160)),
        network_g=RRDB,
        datasets={"train": {"lq_size": 32, "batch_size_per_gpu": 2}},
        val={"val_enabled": False, "metrics": {}},
        memory={"gradient_checkpointing": "auto"},
    )


def test_fewest_blocks_suffice_on_a_card_and_none_where_memory_is_plenty(options: dict[str, Any]) -> None:
    loaded = load_options(write_options(Path("run.yml"), options))
    plan = first_plan(loaded.options)
    with TraceProcess(loaded.path, segments="expandable", timeout_s=200) as tracer:
        none = tracer.trace(plan)
        counts = []
        for share in (2.0, 0.9, 0.7, 0.1):
            most = share * (none.allocated_bytes or 0) + 40 * MIB  # the constant that is believed, and its doubt
            bounds = Bounds("cuda", most, 2**40)
            chosen = choose_parts(tracer, plan, bounds)
            counts.append(len(chosen.parts))
            # The first blocks of the network: their turn in the backward pass comes last.
            assert list(chosen.parts) == BLOCKS[: len(chosen.parts)]
            if chosen.parts:
                fewer = tracer.trace(plan, [recomputing(chosen.parts[:-1])])
                assert not bounds.admits(plan, fewer)
                assert chosen.fits is bounds.admits(plan, tracer.trace(plan, [recomputing(chosen.parts)]))
        assert counts[0] == 0
        assert counts == sorted(counts)
        work, forward = tracer.work_of_parts(plan)
    assert list(work) == BLOCKS
    assert len({one.multiplications for one in work.values()}) == 1
    assert 0.5 * forward < sum(one.multiplications for one in work.values()) < forward


def test_a_run_keeps_its_blocks_in_resumes_and_replays(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainauto.build.step_bounds", lambda *_: Bounds("cpu", 18 * MIB, None))

    def trained(name: str, total_iter: int, **memory: Any) -> list[str]:
        changes = {"name": name, "train": {"total_iter": total_iter}, "memory": memory}
        caplog.clear()
        with build_run(load_options(write_options(Path("run.yml"), merged(options, changes))), auto_resume=True) as run:
            train_run(run)
            return run.model.checkpointed_parts()

    some = trained("auto", 2)
    assert 0 < len(some) < len(BLOCKS)
    assert f"auto: {len(some)} of 4 blocks run again" in caplog.text
    assert some[-1] in caplog.text
    directory = run_directory(Path("run.yml").resolve(), "auto")
    assert json.loads((directory / "config.json").read_text())["memory"]["gradient_checkpointing"] == some
    # A resume asks no trace, whatever would fit now, and nothing has changed.
    monkeypatch.setattr("trainauto.build.recomputed_blocks", None)
    assert trained("auto", 4) == some
    assert f"{len(some)} of 4 blocks run again: net_g.body.0" in caplog.text
    assert "memory.gradient_checkpointing" not in caplog.text
    assert trained("none", 4, gradient_checkpointing=False) == []
    assert trained("named", 4, gradient_checkpointing=[BLOCKS[3], BLOCKS[1]]) == [BLOCKS[1], BLOCKS[3]]
    weights = [latest_weights(run_directory(Path("run.yml").resolve(), name)) for name in ("auto", "none", "named")]
    assert weights[0] == weights[1] == weights[2] != {}

    caplog.clear()
    logged = logged_run(directory)
    assert replay(logged, [part.load([]) for part in logged.parts]) == 0
    assert f"{len(some)} of 4 blocks run again" in caplog.text
    assert [step["losses"] for step in step_records(run_directory(Path("run.yml").resolve(), "auto_replay"))] == [
        step["losses"] for step in step_records(directory)
    ]


def test_a_name_that_no_block_has_is_refused_at_its_place(options: dict[str, Any]) -> None:
    changes = {"memory": {"gradient_checkpointing": ["net_g.body.4"]}}
    loaded = load_options(write_options(Path("run.yml"), merged(options, changes)))
    with (
        pytest.raises(InputError, match=r"no block is called 'net_g\.body\.4'.*net_g\.body\.3") as caught,
        build_run(loaded),
    ):
        pass
    assert "gradient_checkpointing" in caught.value.problems[0].place.text


def test_plans_take_the_blocks_of_each_card_and_recipes_say_what_they_cost(options: dict[str, Any]) -> None:
    train = {"train": {"lq_size": 64, "batch_size_per_gpu": 32}}
    loaded = load_options(write_options(Path("run.yml"), merged(options, {"datasets": train})))
    cards = [card_of_memory(size) for size in (5 * 2**28, 24 * 2**30)]
    with start_tracing(like_cuda=True) as worker:
        answer = plan_for_cards(loaded, cards, child=worker)
        recipes = plan_recipes_of_blocks(loaded, cards, worker)
    small, large = answer.cards
    assert small.kept is not None
    assert large.kept is not None
    assert small.kept.fits is large.kept.fits is True
    assert small.kept.expected_bytes < large.kept.expected_bytes
    said = [note for note in answer.notes if "gradient checkpointing auto" in note]
    assert "of 4 blocks run again" in said[0]
    assert said[1].endswith("no block runs again.")
    assert [row.blocks for row in recipes.rows] == [0, 1, 2, 3, 4]
    peaks = [row.allocated.expected_bytes for row in recipes.rows]
    computed = [row.taken.multiplications for row in recipes.rows]
    assert peaks == sorted(peaks, reverse=True)
    assert computed == sorted(computed)
    assert 1.1 < computed[-1] / computed[0] < 4 / 3
    assert [row.fits[cards[1].name] for row in recipes.rows] == [True] * 5
    assert recipes.rows[0].fits[cards[0].name] is not True
    assert recipes.rows[-1].fits[cards[0].name] is True
