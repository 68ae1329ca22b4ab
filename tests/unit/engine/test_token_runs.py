"""Runs of texts through the same loop as images: they train, grow, recover, resume and are repeated."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.token_runs import LENGTHS, heard, ledger, token_run
from tests.token_workloads import PackedTokens, TokenModel, TokenTexts
from trainauto.core.objectives import LossTerms, MicroBatch
from trainauto.core.plan import Plan
from trainauto.core.record_json import step_from_dict, step_to_dict
from trainauto.core.records import StepRecord
from trainauto.data.sampler import LoggedBatch
from trainauto.engine.long_steps import advice_for
from trainauto.engine.loop import train
from trainauto.engine.probe import untrained_step
from trainauto.engine.replay_script import LoggedScript

STEPS = 24
COUNTED = Plan.of(batch_size=3, tokens=12), {5: Plan.of(batch_size=5, tokens=24), 12: Plan.of(batch_size=9, tokens=40)}
BUDGETED = Plan.of(tokens=40), {5: Plan.of(tokens=100), 12: Plan.of(tokens=30)}
BOTH = pytest.mark.parametrize(("plan", "plans"), [COUNTED, BUDGETED], ids=["counted", "under a budget"])


def trained_weights(folder: Path, plan: Plan, plans: dict[int, Plan]) -> tuple[torch.Tensor, list[StepRecord]]:
    with token_run(folder, plan, STEPS, plans=plans) as run:
        train(run)
        assert isinstance(run.model, TokenModel)
        return run.model.weights(), heard(run).records


def test_texts_train_while_both_axes_grow(tmp_path: Path) -> None:
    plan, plans = COUNTED
    with token_run(tmp_path, plan, STEPS, plans=plans) as run:
        end = train(run)
        records = heard(run).records
    assert end.status == "completed"
    assert [record.step for record in records] == list(range(1, STEPS + 1))
    assert records[-1].losses["ce"] < 0.8 * records[0].losses["ce"]
    assert ledger(records) == list(range(sum(record.shape.samples for record in records)))
    assert {record.plan for record in records} == {plan, *plans.values()}
    assert records[-1].shape.samples == 9
    assert max(record.shape.extent for record in records) == max(LENGTHS)
    assert run.progress.tokens == sum(record.shape.tokens for record in records)
    # Texts that are shorter than the plan allows are no batch that was cut down.
    assert all(record.is_whole for record in records)


def test_texts_train_under_a_budget_of_tokens(tmp_path: Path) -> None:
    plan, plans = BUDGETED
    _, records = trained_weights(tmp_path, plan, plans)
    assert all(r.shape.samples == 1 or r.shape.samples * r.shape.extent <= r.plan.size for r in records)
    assert len({record.shape.samples for record in records}) > 2
    assert ledger(records) == list(range(sum(record.shape.samples for record in records)))
    cut = [record for record in records if record.plan != record.drawn]
    assert cut
    assert [record.is_whole for record in records] == [record not in cut for record in records]


@BOTH
@pytest.mark.parametrize("stop", [4, 13])
def test_a_resume_gives_the_same_bits(tmp_path: Path, plan: Plan, plans: dict[int, Plan], stop: int) -> None:
    whole, records = trained_weights(tmp_path / "whole", plan, plans)
    with token_run(tmp_path / "parts", plan, STEPS, plans=plans) as first:
        first.schedule = replace(first.schedule, total=stop)
        train(first)
        checkpoint = first.last_checkpoint
    assert checkpoint is not None
    with token_run(tmp_path / "parts", plan, STEPS, plans=plans) as second:
        second.restore(checkpoint)
        train(second)
        assert isinstance(second.model, TokenModel)
        assert torch.equal(second.model.weights(), whole)
        assert [r.losses for r in heard(second).records] == [r.losses for r in records[stop:]]


@BOTH
def test_a_run_is_repeated_from_its_log(tmp_path: Path, plan: Plan, plans: dict[int, Plan]) -> None:
    """Out of memory on the way, too: what the log says of pieces is followed."""
    with token_run(tmp_path / "run", plan, STEPS, plans=plans, model=TokenModel(fits=2)) as run:
        train(run)
        assert isinstance(run.model, TokenModel)
        weights, decisions = run.model.weights(), heard(run).decisions
        lines = [json.dumps(step_to_dict(record)) for record in heard(run).records]
        state = run.loader.state_dict()
    records = [step_from_dict(json.loads(line)) for line in lines]
    assert sum(record.ooms for record in records) > 0
    with token_run(tmp_path / "again", plan, STEPS) as run:
        run.loader.replay([LoggedBatch.of(record) for record in records])
        run.script = script = LoggedScript(iter(records), decisions, STEPS, is_exact=True)
        train(run)
        assert isinstance(run.model, TokenModel)
        assert torch.equal(run.model.weights(), weights)
        assert run.loader.state_dict() == state
    assert script.facts() == (("replayed", f"{STEPS} steps, every loss equals the log's"),)


@BOTH
def test_packed_texts_train_as_rows_do(tmp_path: Path, plan: Plan, plans: dict[int, Plan]) -> None:
    rows, _ = trained_weights(tmp_path / "rows", plan, plans)
    texts = TokenTexts(LENGTHS, PackedTokens())
    with token_run(tmp_path / "packed", plan, STEPS, plans=plans, texts=texts) as run:
        train(run)
        assert isinstance(run.model, TokenModel)
        torch.testing.assert_close(run.model.weights(), rows, rtol=1e-5, atol=1e-6)


def test_after_a_failure_later_batches_under_a_budget_run_in_pieces(tmp_path: Path) -> None:
    with token_run(tmp_path, Plan.of(tokens=120), 8, model=TokenModel(fits=3)) as run:
        train(run)
        records = heard(run).records
        assert isinstance(run.model, TokenModel)
        assert max(run.model.forwards[-4:]) <= 3
    assert records[0].ooms > 0
    assert records[-1].plan.micro_batches > 1
    assert {record.plan.size for record in records} == {120}, "texts that are shorter than the budget were not cut"
    assert "batch_size" not in records[-1].plan
    assert sum(record.ooms for record in records) < len(records)


@pytest.mark.parametrize(("plan", "rows"), [(Plan.of(batch_size=3, tokens=64), 3), (Plan.of(tokens=64), 1)])
def test_a_plan_is_measured_at_its_full_size(tmp_path: Path, plan: Plan, rows: int) -> None:
    class Watched(TokenModel):
        seen: torch.Size

        def loss(self, micro_batch: MicroBatch) -> LossTerms:
            self.seen = micro_batch["ids"].shape
            return super().loss(micro_batch)

    model = Watched()
    before = model.weights()
    with token_run(tmp_path, plan, 8, model=model) as run:
        untrained_step(run, plan)
    assert model.seen == (rows, 64)
    assert torch.equal(model.weights(), before)


def test_advice_for_texts_names_their_axes(tmp_path: Path) -> None:
    with token_run(tmp_path, Plan.of(batch_size=3, tokens=64), 8) as run:
        assert advice_for(run) == "a smaller network takes less, and so do smaller values of tokens and batch_size"


def test_a_run_without_a_size_is_never_cut(tmp_path: Path) -> None:
    with token_run(tmp_path, Plan.of(batch_size=4), 6, model=TokenModel(fits=1)) as run:
        train(run)
        records = heard(run).records
    assert records[0].ooms == 2
    assert records[-1].plan == Plan.of(batch_size=4, micro_batches=4)
    assert max(record.shape.extent for record in records) == max(LENGTHS)
