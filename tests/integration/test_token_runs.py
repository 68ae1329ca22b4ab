"""Texts on two ranks and under a real memory budget, through the engine's loop: nothing here is an image."""

import json
import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.ranks import finish, start
from tests.integration.token_worker import BUDGET_BYTES, BUDGETED, COUNTED, LONG, SHORT, STEPS
from tests.token_runs import heard, token_run
from tests.token_workloads import TokenModel
from trainauto.core.plan import Plan
from trainauto.core.record_json import step_from_dict
from trainauto.core.records import StepRecord
from trainauto.data.sampler import LoggedBatch
from trainauto.engine.loop import train

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="the CPU budget is enforced on Linux only")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the two ranks saw; they are started once for all tests here."""
    folder = tmp_path_factory.mktemp("ranks")
    words = ["-m", "tests.integration.token_worker", "seen_{rank}.json", str(folder)]
    done = finish(start(words, 2, folder))
    assert [code for code, _ in done] == [0, 0], "\n".join(text for _, text in done)
    return [json.loads((folder / f"seen_{rank}.json").read_text()) for rank in (0, 1)]


def steps_of(part: dict[str, Any]) -> list[StepRecord]:
    return [step_from_dict(line) for line in part["records"]]


def check_close(model: Any, weights: list[float]) -> None:
    assert isinstance(model, TokenModel)
    torch.testing.assert_close(model.weights(), torch.tensor(weights), rtol=1e-5, atol=1e-6)


def test_two_ranks_train_as_one_process_would(seen: list[dict[str, Any]], tmp_path: Path) -> None:
    """Parts of the step weigh what is supervised in them, which differs from rank to rank."""
    first, second = (rank["counted"] for rank in seen)
    assert first["weights"] == second["weights"], "to the bit"
    plan, plans = COUNTED
    twice = {step: both.with_batch_size(2 * both.batch_size) for step, both in plans.items()}
    with token_run(tmp_path, plan.with_batch_size(2 * plan.batch_size), STEPS, plans=twice) as run:
        train(run)
        check_close(run.model, first["weights"])
        for ours, theirs in zip(steps_of(first), heard(run).records, strict=True):
            assert ours.losses["ce"] == pytest.approx(theirs.losses["ce"], rel=1e-5)
            assert (ours.first_sample, ours.shape.samples) == (theirs.first_sample, theirs.shape.samples)
            assert ours.shape.extent == theirs.shape.extent


def test_two_ranks_under_a_budget_of_tokens_are_repeated_by_one(seen: list[dict[str, Any]], tmp_path: Path) -> None:
    first, second = (rank["budgeted"] for rank in seen)
    assert first["weights"] == second["weights"], "to the bit"
    records = steps_of(first)
    assert any(record.plan != record.drawn for record in records), "draws in flight were cut"
    assert len({record.shape.samples for record in records}) > 2
    with token_run(tmp_path, BUDGETED[0], STEPS) as run:
        run.loader.replay([LoggedBatch.of(record) for record in records])
        train(run)
        check_close(run.model, first["weights"])
        assert [r.shape.samples for r in heard(run).records] == [r.shape.samples for r in records]


def test_a_real_memory_budget_is_recovered_from_in_pieces_and_by_shorter_texts(seen: list[dict[str, Any]]) -> None:
    told = seen[0]["memory"]
    records = steps_of(told)
    assert [record.step for record in records] == list(range(1, 25))
    assert told["ledger"] == list(range(sum(record.shape.samples for record in records))), "each sample once"
    assert all(record.peak is not None and record.peak.limit == BUDGET_BYTES for record in records)
    assert sum(record.ooms for record in records[:3]) == 0
    # 32 texts fit in no forward pass: that step ran in pieces, and those after it do from the start.
    recovered = next(record for record in records if record.ooms)
    assert recovered.plan == Plan.of(batch_size=32, tokens=SHORT)
    assert recovered.pieces["g"].micro_batches > 1
    assert any("per micro-batch from now on" in reason for reason in told["reasons"])
    # Of the long texts one alone does not fit: it came back, and was cut to what does.
    assert any("the plan shrinks" in reason for reason in told["reasons"])
    assert SHORT < max(record.shape.extent for record in records) < LONG
