"""What fits of a fine-tuning, said before anything is downloaded: the bytes that a run of the same file foresees."""

import json
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.acceptance import only_in_acceptance
from tests.four_bits import needs_bitsandbytes
from tests.integration.commands import command, merged, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from trainauto.builders.finetune import SAMPLE, FinetuneParts, finetuned_model
from trainauto.builders.finetune_automations import settings_of_controller
from trainauto.builders.finetune_data import build_finetune_data, processor_of
from trainauto.builders.finetune_networks import Loaded
from trainauto.builders.precision import choose_precision
from trainauto.builders.task_parts import PartsRequest
from trainauto.commands.plan_table import table
from trainauto.commands.recipes_table import recipes_json, recipes_table
from trainauto.commands.run_plan import as_json
from trainauto.core.plan import Plan
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.traced_training import FakeTraining
from trainauto.forecast.card_plan import chosen_cards
from trainauto.forecast.finetune_plans import (
    conversations_axis,
    largest_conversation,
    most_of_a_pass,
    note_on_format,
)
from trainauto.forecast.finetune_recipes import plan_recipes
from trainauto.forecast.option_plans import plan_for_cards
from trainauto.forecast.traced_run import fake_run
from trainauto.integrations.loop_forecast import largest_batch, told_by
from trainauto.integrations.plain_leaves import leaves_from_plain
from trainauto.memory.tracing.fake_tensors import fake_copy
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import load_options
from trainauto.tasks.finetune.largest_conversation import WORDS

sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))
import finetune_plans as bench

pytest.importorskip("peft", reason="fine-tuning needs it")
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]
"""What transformers and peft say of each other."""

LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}
PACKED_BFLOAT16 = {"load_in_4bit": True, "dtype": "bfloat16"}


def flat(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


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
        pytest.param({"model": {"load_in_4bit": True}, "lora": LORA}, marks=needs_bitsandbytes),
        pytest.param({"model": PACKED_BFLOAT16, "lora": LORA, "use_amp": True}, marks=needs_bitsandbytes),
    ],
    ids=[
        "adapters, casts",
        "all weights, checkpoints",
        "bfloat16, adapters, casts, checkpoints",
        "4 bits",
        "4 bits, bfloat16, casts",
    ],
)
def test_planned_bytes_are_those_that_a_run_foresees(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    options = {**finetune_options(made / "model", made / "chats.jsonl", **changes)}
    loaded = load_options(write_options(tmp_path / "run.yml", options), ["memory:budget=1GiB"]).of(FinetuneOptions)
    plan, precision = Plan.of(batch_size=3), choose_precision(loaded)
    parts = FinetuneParts(
        loaded, PartsRequest(precision, SINGLE_PROCESS, pretrained=True, check_samples=lambda _samples: None)
    )
    real = FakeTraining(  # the model that was loaded, and the batches of its data, without their numbers
        lambda mode: finetuned_model(fake_copy(parts.network, mode, {}), loaded, precision),
        lambda wanted: largest_batch(parts.train_set, wanted),
        clips=True,
        told=told_by(parts.train_set),
    )
    known = {SAMPLE: largest_conversation(loaded).as_known()}
    assert parts.trace_facts().keys() == known.keys()
    planned = fake_run(loaded, known=known).trace(plan).peak_bytes
    assert planned == real.trace(plan).peak_bytes
    assert torch.is_grad_enabled()


def configuration_alone(made: Path, folder: Path) -> Path:
    """Return a folder with the model's configuration, and nothing else of it."""
    folder.mkdir()
    shutil.copy(made / "model" / "config.json", folder)
    return folder


def options_without_data(folder: Path, /, **changes: Any) -> dict[str, Any]:
    """Return options of data that are not there, in steps of eight, for a card."""
    given = {"device": "auto", "model": {"max_pixels": 1024}, "training": {"gradient_accumulation_steps": 4}}
    return finetune_options(folder, Path("not_there.jsonl"), **merged(given, changes))


def read(file: Path, options: dict[str, Any]) -> Loaded:
    """Return options of fine-tuning, by their file."""
    return load_options(write_options(file, options)).of(FinetuneOptions)


def test_a_configuration_is_all_that_a_plan_needs(made: Path, tmp_path: Path) -> None:
    folder = configuration_alone(made, tmp_path / "alone")
    loaded = read(tmp_path / "run.yml", options_without_data(folder, lora=LORA, memory={"budget": "1GiB"}))
    answer = plan_for_cards(loaded, chosen_cards(["T4", "RTX 4090"], [2**20]))
    large, larger, small = answer.cards
    assert large.plan == larger.plan == Plan.of(batch_size=8)  # the conversations of a step, not more
    assert large.frontier[-1].batch_size > 8
    assert large.limit_bytes == larger.limit_bytes == 2**30
    assert small.plan is None
    said = table(answer)
    assert all(len(line) <= 80 for line in said.splitlines())
    said = flat(said)
    assert "* bounded by the 8 conversations of a step, not by memory" in said
    # 32 x 32 px are 4 patches of 16 px in each direction, merged by two; with their marks, and words that are assumed.
    assert f"the largest, {4 + 2 + WORDS} tokens, 1 picture: made up of one picture of 1024 pixels" in said
    assert "since there is no file 'not_there.jsonl'" in said
    card = json.loads(as_json(answer))["cards"][0]
    assert (card["max_batch_size"], card["plan"]) == (8, {"batch_size": 8, "micro_batches": 1})
    assert card["frontier"] == [{"batch_size": large.frontier[-1].batch_size, "micro_batches": 1}]


@pytest.mark.parametrize(
    ("changes", "most", "bound"),
    [
        ({}, 8, "the 8 conversations of a step"),
        ({"training": {"max_batch_size": 32}}, 32, "max_batch_size, 32"),
        ({"training_automations": {"enabled": False}}, 2, "per_device_train_batch_size, since nothing steers batches"),
    ],
)
def test_a_pass_holds_what_a_run_would_put_into_it(
    tmp_path: Path, changes: dict[str, Any], most: int, bound: str
) -> None:
    loaded = read(tmp_path / "run.yml", options_without_data(tmp_path, **changes))
    settings = settings_of_controller(loaded)
    assert most_of_a_pass(loaded.options, settings) == most
    assert conversations_axis(loaded.options, settings).capped_by == bound


def test_recipes_say_what_each_takes_and_costs(made: Path, tmp_path: Path) -> None:
    folder = configuration_alone(made, tmp_path / "alone")
    as_the_file_says = {"memory": {"gradient_checkpointing": True}, "device": "cpu"}
    loaded = read(tmp_path / "run.yml", options_without_data(folder, **as_the_file_says))
    cards = ["RTX 3060 12GB", "RTX 3090", "RTX 4090", "H200"]  # of equal kernels: each recipe is traced once for all
    answer = plan_recipes(loaded, chosen_cards(cards, []))
    assert len(answer.recipes) == 3 * 2  # all weights learn: none of them in 4 bits
    for kept, again in pairwise(answer.recipes):
        if again.recipe.checkpoints:
            assert again.expected_bytes(8) < kept.expected_bytes(8)
            assert again.multiplications > kept.multiplications
            assert again.cards[0].frontier[-1].batch_size >= kept.cards[0].frontier[-1].batch_size
    by_format = {found.recipe.format.name: found for found in answer.recipes if not found.recipe.checkpoints}
    assert by_format["bfloat16"].forecast.persistent_bytes < by_format["mixed"].forecast.persistent_bytes
    said = recipes_table(answer)
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "x 1.00" in said
    assert said.startswith(
        f"{loaded.options.name}: alone, all weights; 6 recipes"
    )  # formats are the rows', not the file's
    assert "device: cpu" not in said
    assert "512+: that many fit, and more were not looked at." in flat(said)
    assert len([line for line in said.splitlines() if line.startswith("format")]) == 3  # four cards in two tables
    recipes = json.loads(recipes_json(answer))["recipes"]
    assert [recipe["gradient_checkpointing"] for recipe in recipes] == [False, True] * 3
    assert set(recipes[0]["largest_batch"]) == set(answer.cards)


FLOAT32 = "no dtype: {} are taken to be kept as there, in float32"


def test_a_format_that_is_assumed_is_said_beside_a_plan(made: Path, tmp_path: Path) -> None:
    folder = configuration_alone(made, tmp_path / "alone")
    options = options_without_data(folder, device="cpu", lora=LORA, model={"load_in_4bit": True})
    notes = " ".join(plan_for_cards(read(tmp_path / "run.yml", options), chosen_cards(["T4"], [])).notes)
    assert FLOAT32.format("weights that are not in 4 bits") in notes


@pytest.mark.parametrize(
    ("device", "model", "said"),
    [("cpu", {}, FLOAT32.format("weights")), ("cpu", {"dtype": "bfloat16"}, None), ("auto", {}, None)],
)
def test_a_format_is_assumed_only_where_the_file_names_none(
    tmp_path: Path, device: str, model: dict[str, Any], said: str | None
) -> None:
    options = options_without_data(tmp_path, device=device, lora=LORA, model=model)
    notes = note_on_format(read(tmp_path / "run.yml", options).options)
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


def test_the_largest_conversation_is_that_of_the_data_where_they_are(made: Path, tmp_path: Path) -> None:
    of_data = read(tmp_path / "data.yml", finetune_options(made / "model", made / "chats.jsonl"))
    largest = largest_conversation(of_data)
    data = build_finetune_data(of_data, processor_of(of_data), None)
    assert largest.tokens == int(data.looked_through["train"].lengths.max())
    assert largest.pictures == 2
    assert largest.origin == "the longest of the 9 conversations of the data"
    smaller = read(
        tmp_path / "px.yml", finetune_options(made / "model", made / "chats.jsonl", model={"max_pixels": 256})
    )
    assert largest_conversation(smaller).tokens < largest.tokens


def test_a_made_up_conversation_is_as_long_as_the_file_allows(made: Path, tmp_path: Path) -> None:
    folder = configuration_alone(made, tmp_path / "alone")
    loaded = read(tmp_path / "run.yml", options_without_data(folder, dataset={"max_length": 100}))
    largest = largest_conversation(loaded)
    assert (largest.tokens, largest.pictures) == (100, 1)
    rebuilt = leaves_from_plain(json.loads(json.dumps(largest.as_known())))
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in rebuilt.items()} == {
        name: (leaf.shape, leaf.dtype) for name, leaf in largest.leaves.items()
    }
    assert torch.equal(rebuilt["input_ids"], largest.leaves["input_ids"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"name": "Qwen/Qwen3-VL-2B-Instruct"}}, r"is not on this machine.*plan downloads nothing"),
        ({"model": {"max_pixels": None}}, r"nothing says how large pictures may be.*preprocessor_config\.json"),
        ({"dataset": {"max_length": 5}}, r"a picture of 1024 pixels takes 6 tokens, where 5 are allowed"),
    ],
)
def test_what_a_plan_cannot_know_is_said_with_its_line(
    made: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    folder = configuration_alone(made, tmp_path / "alone")
    file = write_options(tmp_path / "run.yml", options_without_data(folder, **changes))
    refused = command("plan", "-opt", file.name, "--card", "T4", cwd=tmp_path)
    assert refused.returncode in (1, 2)
    assert re.search(said, flat(refused.stderr)), refused.stderr
    assert re.search(r"run\.yml:\d+:\d+: ", flat(refused.stderr))


def test_recipes_are_of_fine_tuning_and_no_picture(made: Path, tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", options_without_data(made / "model"))
    refused = command("plan", "-opt", file.name, "--recipes", "--png", "x.png", cwd=tmp_path)
    assert refused.returncode == 2
    assert "Leave out --png" in refused.stderr


@only_in_acceptance
def test_two_billion_weights_in_4_bits_are_planned_for_three_cards_within_a_minute_and_2_gb(tmp_path: Path) -> None:
    asked = bench.asked_for_cards(bench.write_configuration(tmp_path / "model"), "--json")
    assert asked.seconds <= bench.MOST_SECONDS
    assert 0 < asked.bytes <= bench.MOST_BYTES
    answer = json.loads(asked.said)
    assert answer["network"] == "model, LoRA r=8, 4 bits"
    # The published table has 6, 8, 12 and 20 GB for a batch of 1, 2, 4 and 8; what fits lies between its rows.
    assert [card["frontier"][-1]["batch_size"] for card in answer["cards"][:2]] == [
        pytest.approx(3, abs=1),
        pytest.approx(8, abs=1),
    ]
