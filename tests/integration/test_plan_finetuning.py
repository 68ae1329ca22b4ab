"""What fits of a fine-tuning, said before anything is downloaded: the bytes that a run of the same file foresees."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.commands import write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from trainauto.builders.finetune import FinetuneRun
from trainauto.builders.finetune_networks import SAMPLE
from trainauto.builders.model import choose_precision
from trainauto.builders.tasks import finetuning_of
from trainauto.core.plan import Plan
from trainauto.forecast.finetune_plans import largest_conversation
from trainauto.forecast.traced_run import fake_run
from trainauto.integrations.huggingface import start_up
from trainauto.integrations.loop_forecast import LoopTracer
from trainauto.options.load import load_options

pytest.importorskip("peft", reason="fine-tuning needs it")
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]
"""What transformers and peft say of each other."""

LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    write_model(folder / "model")
    write_chats(folder / "chats.jsonl")
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"use_amp": True, "lora": LORA},
        {"memory": {"gradient_checkpointing": True}, "training": {"weight_decay": 0.1}},
        {"model": {"dtype": "bfloat16"}, "lora": LORA, "use_amp": True, "memory": {"gradient_checkpointing": True}},
    ],
    ids=["adapters, casts", "all weights, checkpoints", "bfloat16, adapters, casts, checkpoints"],
)
def test_planned_bytes_are_those_that_a_run_foresees(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    options = {**finetune_options(made / "model", made / "chats.jsonl", **changes)}
    loaded = finetuning_of(load_options(write_options(tmp_path / "run.yml", options), ["memory:budget=1GiB"]))
    assert loaded is not None
    foreseen: list[int] = []
    plan = Plan.of(batch_size=3)

    def foresee(_controller: Any, model: Any, samples: Any, _axes: Any, *, clips: bool) -> bool:
        foreseen.append(LoopTracer(model, samples, clips=clips).trace(plan).peak_bytes)
        return True

    monkeypatch.setattr(start_up, "predict_from_traces", foresee)
    monkeypatch.setattr(start_up, "put_limit_in_force", lambda _run: None)  # it is this process's
    FinetuneRun(loaded, choose_precision(loaded)).try_steps(tmp_path, 1)
    known = {SAMPLE: largest_conversation(loaded).as_known()}
    planned = fake_run(loaded, known=known).trace(plan).peak_bytes
    assert [planned] == foreseen
    assert torch.is_grad_enabled()
