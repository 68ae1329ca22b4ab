"""Plans of language models: what grows, and what a step on fake tensors takes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainauto.commands.plan_table import table
from trainauto.core.plan import Plan
from trainauto.forecast.code_plans import plan_traced
from trainauto.forecast.text_plans import kept_plan, most_tokens, notes_on, planned_axes
from trainauto.forecast.traced_run import fake_run
from trainauto.memory.cost.memory_forecast import PlanBytes
from trainauto.memory.tracing.libraries import CUBLAS_BYTES, LARGE_CARD, Hardware
from trainauto.memory.tracing.trace import Trace
from trainauto.options.cards import card_of_memory
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.run_options import RunOptions
from trainauto.options.text_options import TextOptions

CONFIG = {"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 2, "n_positions": 128}


def loaded_texts(folder: Path, **changes: Any) -> LoadedOptions[RunOptions]:
    """Return the options of a file whose texts are not there."""
    options: dict[str, Any] = {
        "name": "planned",
        "task": "text",
        "device": "cpu",
        "model": {"config": CONFIG},
        "tokenizer": {"train": {"vocab_size": 300}},
        "datasets": {"train": {"path": "none", "max_length": 128}},
        "train": {"total_epochs": 1, "optim": {"type": "AdamW"}},
    }
    for section, keys in changes.items():
        options[section] = {**options.get(section, {}), **keys}
    file = folder / "planned.yml"
    file.write_text(yaml.safe_dump(options))
    return load_options(file)


class FakeTracer:
    """Traces in this process, as on a card."""

    def __init__(self, loaded: LoadedOptions[RunOptions]) -> None:
        self._run = fake_run(loaded)

    def aim(self, hardware: Hardware) -> None:
        assert hardware == LARGE_CARD  # what a card without a name is taken for

    def trace(self, plan: Plan) -> PlanBytes:
        return PlanBytes.of(self._run.trace(plan), 0.0, segments="expandable")


def traced(loaded: LoadedOptions[RunOptions], **values: int) -> Trace:
    return fake_run(loaded).trace(Plan.of(**values))


@pytest.mark.parametrize(
    ("train", "lengths"),
    [({}, [64, 128]), ({"packed": True}, [128]), ({"packed": True, "row_length": 256}, [256])],
)
def test_rows_grow_to_the_longest_then_their_number(tmp_path: Path, train: dict[str, Any], lengths: list[int]) -> None:
    options = loaded_texts(tmp_path, train=train).options
    assert isinstance(options, TextOptions)
    length, rows = planned_axes(options)
    assert list(length.values) == lengths
    assert rows.is_count


def test_a_budget_of_tokens_is_so_many_rows_of_the_longest(tmp_path: Path) -> None:
    """A run's plan and a planned one of as many rows take the same."""
    loaded = loaded_texts(tmp_path)
    budget, rows = traced(loaded, tokens=1024), traced(loaded, batch_size=8, length=128)
    assert budget.peak_bytes == rows.peak_bytes
    assert traced(loaded, tokens=2048).peak_bytes > 1.3 * budget.peak_bytes


def test_adapters_and_checkpointing_are_the_file_s(tmp_path: Path) -> None:
    plain = traced(loaded_texts(tmp_path), tokens=4096)
    adapted = traced(loaded_texts(tmp_path, model={"lora": {"r": 2}}), tokens=4096)
    checkpointed = traced(loaded_texts(tmp_path, memory={"gradient_checkpointing": True}), tokens=4096)
    # Adam's state is that of the adapters alone; blocks run again keep what goes into them.
    assert adapted.held_bytes < 0.6 * plain.held_bytes
    assert checkpointed.peak_bytes < 0.7 * plain.peak_bytes
    assert checkpointed.held_bytes == plain.held_bytes


def test_what_texts_came_to_is_taken_as_known(tmp_path: Path) -> None:
    """Vocabulary and longest samples of the run, not those of its options."""
    loaded = loaded_texts(tmp_path)
    known = {"vocabulary": {"size": 280, "pad": 0, "end": 1, "begin": None}, "longest": {"source": 50, "target": 50}}
    smaller = fake_run(loaded, known=known).trace(Plan.of(tokens=500))
    assert smaller.held_bytes < traced(loaded, tokens=512).held_bytes


@pytest.mark.parametrize(
    ("controller", "most"), [({"max_tokens": 1000}, 1000), ({}, 16 * 896), (None, None)], ids=["file", "default", "off"]
)
def test_a_run_s_bound_of_tokens_is_heeded(tmp_path: Path, controller: dict[str, int] | None, most: int | None) -> None:
    """B12: 1000 tokens to begin with are seven rows of 128."""
    switched = {} if controller is None else {"DynamicBatchSizeOptimizer": controller}
    loaded = loaded_texts(tmp_path, train={"tokens_per_batch": 1000}, training_automations=switched)
    options = loaded.options
    assert isinstance(options, TextOptions)
    assert most_tokens(options) == most
    if controller is None:
        assert "a run stays at 896 tokens" in notes_on(options, CUBLAS_BYTES)[1]
        assert kept_plan(options) == Plan.of(length=128, batch_size=7)
    answer = plan_traced(
        "planned",
        "gpt2",
        FakeTracer(loaded),
        planned_axes(options),
        [card_of_memory(8 * 1024**3)],
        most_tokens=most,
        kept=kept_plan(options),
    )
    (card,) = answer.cards
    assert (card.kept is None) == (controller is not None)
    assert card.plan is not None
    assert card.plan.size == 128
    tokens = [plan.batch_size * plan.size for plan in (card.plan, *card.frontier)]
    if most is None:
        assert max(tokens) > 16 * 896
    else:
        assert [(plan.size, plan.batch_size) for plan in (card.plan, *card.frontier)] == [
            (128, most // 128),
            *((plan.size, most // plan.size) for plan in card.frontier),
        ]
        assert f"* bounded by max_tokens, {most}, not by memory" in table(answer)


def test_what_is_held_is_explained_beside_what_a_run_on_a_cpu_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B12: workspaces of cuBLAS, and a vocabulary that texts may not fill."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    options = loaded_texts(tmp_path).options
    assert isinstance(options, TextOptions)
    unread, held = notes_on(options, CUBLAS_BYTES)[2:]
    assert "300 tokens (vocab_size)" in unread
    assert "counts 16.2 MiB in that cuBLAS keeps" in held
