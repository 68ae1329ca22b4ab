"""Whole runs of texts through the engine's own loop, without option files: nothing here knows of images."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.token_workloads import TokenBudget, TokenModel, TokenTexts
from trainauto.core.automation import Automation
from trainauto.core.decisions import Decision, PlanChange, Rollback
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.records import Progress, StepRecord, ValidationRecord
from trainauto.core.run_events import Picture, RunEnd, RunSummary
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.distributed.communicator import SINGLE_PROCESS as ALONE
from trainauto.distributed.communicator import Communicator
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.controls import Controls
from trainauto.engine.epochs import Epochs
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.run import Frequencies, Run
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.optim.schedules import RateSchedule, constant

TOKENS, SAMPLES = Axis("tokens", "tokens", 4, 4096), Axis(BATCH_SIZE, "samples", 1, 64)
LENGTHS = tuple(5 + 7 * number % 31 for number in range(23))
"""Texts of 5 to 35 tokens, each length once or twice."""


class PlansAtSteps(Automation):
    """Asks for given plans after given steps."""

    def __init__(self, plans: Mapping[int, Plan]) -> None:
        self._plans = plans

    def on_step_end(self, record: StepRecord) -> Decision | None:
        plan = self._plans.get(record.step)
        return None if plan is None else PlanChange(plan, f"planned for step {record.step}")


@dataclass
class Heard:
    """What a run told its reporter."""

    records: list[StepRecord] = field(default_factory=list)
    decisions: dict[int, Sequence[Decision]] = field(default_factory=dict)
    ends: list[RunEnd] = field(default_factory=list)

    def start(self, summary: RunSummary) -> None:
        pass

    def step(self, record: StepRecord, decisions: Sequence[Decision], progress: Progress) -> None:
        self.records.append(record)
        if decisions:
            self.decisions[record.step] = decisions

    def validation(
        self, record: ValidationRecord, pictures: Sequence[Picture], decisions: Sequence[Decision] = ()
    ) -> None:
        raise AssertionError("texts are not validated")

    def sync(self) -> None:
        pass

    def rolled_back(self, summary: RunSummary, rollback: Rollback) -> None:
        pass

    def end(self, summary: RunEnd) -> None:
        self.ends.append(summary)


@contextmanager
def token_run(
    folder: Path,
    plan: Plan,
    steps: int,
    *,
    texts: TokenTexts | None = None,
    model: TokenModel | None = None,
    plans: Mapping[int, Plan] | None = None,
    ranks: Communicator = ALONE,
    **parts: Any,
) -> Iterator[Run]:
    """Yield a run of texts; where its plan counts no samples, draws hold as many as its tokens allow.

    Args:
        folder: for checkpoints.
        plan: the first one.
        steps: length of the run.
        texts: what it is trained on.
        model: what is trained.
        plans: further plans, by the step after which they are asked for.
        ranks: who trains it together.
        parts: further attributes of the run.
    """
    texts, model = texts or TokenTexts(LENGTHS), model or TokenModel()
    sharding = SampleSharding.equal(ranks.world_size) if ranks.world_size > 1 else SINGLE_PROCESS
    axes = tuple(axis for axis in (TOKENS, SAMPLES) if axis.name in plan)
    budget = {} if BATCH_SIZE in plan else {"new_batcher": partial(TokenBudget, texts.lengths)}
    loader = DynamicDataLoader(texts, plan, seed=3, lookahead=2, sharding=sharding, rank=ranks.rank, **budget)
    for optimizer in model.optimizers.values():
        RateSchedule.remember_rates(optimizer)
    device = torch.device("cpu")
    with loader:
        yield Run(
            summary=RunSummary("texts", str(folder), "cpu", "embedding", len(model.weights()), plan, steps),
            model=model,
            loader=loader,
            axes=axes,
            schedule=RateSchedule(constant(), steps),
            journal=DecisionJournal(Controls(loader, None), [PlansAtSteps(plans or {})], ranks),
            validators=(),
            checkpoints=Checkpoints(folder, keep=9 if ranks.is_first else 0),
            reporter=Heard(),
            meter=MemoryMeter(device),
            frequencies=Frequencies(0, 0),
            first_plan=plan,
            epochs=Epochs(len(texts)),
            ranks=ranks,
            **parts,
        )


def heard(run: Run) -> Heard:
    assert isinstance(run.reporter, Heard)
    return run.reporter


def ledger(records: Sequence[StepRecord]) -> list[int]:
    """Return the positions of the stream that were trained, in order."""
    return [record.first_sample + place for record in records for place in range(record.shape.samples)]
