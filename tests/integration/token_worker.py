"""One of two ranks that train texts, under a plan that counts samples and under a budget of tokens; then, on the first
rank alone, the same loop under a real memory budget.

python -m tests.integration.token_worker OUT FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.token_runs import heard, ledger, token_run
from tests.token_workloads import TokenModel, TokenTexts
from trainauto.core.plan import Plan
from trainauto.core.record_json import step_to_dict
from trainauto.distributed.communicator import Communicator, init_distributed
from trainauto.engine.loop import train

MIB = 1024**2
STEPS = 14
COUNTED = Plan.of(batch_size=2, tokens=16), {4: Plan.of(batch_size=4, tokens=36), 10: Plan.of(batch_size=1, tokens=20)}
BUDGETED = Plan.of(tokens=60), {4: Plan.of(tokens=160), 10: Plan.of(tokens=40)}

VOCABULARY = 4000
BUDGET_BYTES = 40 * MIB
SHORT, LONG = 64, 3000
"""Tokens of most texts, and of those of which not even one fits: its logits alone are 46 MiB."""


def on_two_ranks(folder: Path, ranks: Communicator) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, (plan, plans) in {"counted": COUNTED, "budgeted": BUDGETED}.items():
        with token_run(folder / name, plan, STEPS, plans=plans, ranks=ranks) as run:
            train(run)
            assert isinstance(run.model, TokenModel)
            records = [step_to_dict(record) for record in heard(run).records]
            seen[name] = {"weights": run.model.weights().tolist(), "records": records}
    return seen


def under_a_memory_budget(folder: Path) -> dict[str, Any]:
    """Grow into the budget and beyond it: batches that fit in pieces only, then texts that do not fit at all."""
    lengths = tuple(LONG if number % 6 == 5 else SHORT for number in range(96))
    texts, model = TokenTexts(lengths, vocabulary=VOCABULARY), TokenModel(vocabulary=VOCABULARY)
    plan, plans = Plan.of(batch_size=2, tokens=SHORT), {3: Plan.of(batch_size=32, tokens=SHORT)}
    plans[7] = Plan.of(batch_size=16, tokens=4096)
    with token_run(folder, plan, 24, texts=texts, model=model, plans=plans, budget_bytes=BUDGET_BYTES) as run:
        train(run)
        records = heard(run).records
    return {
        "records": [step_to_dict(record) for record in records],
        "ledger": ledger(records),
        "reasons": [getattr(d, "reason", "") for _, made in sorted(heard(run).decisions.items()) for d in made],
    }


def main(out: str, folder: str) -> None:
    torch.set_num_threads(1)
    with init_distributed("pytorch") as ranks:
        seen, is_first = on_two_ranks(Path(folder), ranks), ranks.is_first
    if is_first:
        seen["memory"] = under_a_memory_budget(Path(folder) / "memory")
    Path(out).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
