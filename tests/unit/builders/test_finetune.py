"""Runs of fine-tuning as they are built: rates, adapters, what is refused before anything is written."""

import json
import re
import shutil
from math import cos, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Linear, Module

from tests.four_bits import needs_bitsandbytes
from tests.integration.commands import merged, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from trainauto.builders.automations import build_automations
from trainauto.builders.finetune import FinetuneParts, four_bits_of, schedule_of, weights_dtype
from trainauto.builders.finetune_automations import settings_of_controller
from trainauto.builders.finetune_data import FinetuneData
from trainauto.builders.task_parts import PartsRequest
from trainauto.core.decisions import RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.options.finetune_options import FinetuneOptions, FinetuneTraining
from trainauto.options.load import LoadedOptions, load_options
from trainauto.tasks.finetune import four_bits, models

EPOCHS, SAMPLES, STEP = 6, 20, 4
TOTAL, STEPS = EPOCHS * SAMPLES, EPOCHS * SAMPLES // STEP
NAMES = ("linear", "cosine", "constant", "none", "multistep", "cosine_with_restarts")


def training(name: str, **changes: Any) -> FinetuneTraining:
    """A fifth of the run, or five steps, of warm-up; milestones at a third and three quarters; three cycles."""
    arguments = {"cosine_with_restarts": {"num_cycles": 3}, "multistep": {"milestones": [2.0, 4.5], "gamma": 0.1}}
    given = {
        "num_train_epochs": float(EPOCHS),
        "lr_scheduler_type": name,
        "lr_scheduler_kwargs": arguments.get(name, {}),
        **changes,
    }
    return FinetuneTraining.model_validate(given)


def by_hand(name: str, done: float, total: float, warmup: float, step: float) -> float:
    """The factor of a step before which so much is done."""
    warm = min(1.0, (done + step) / warmup) if warmup else 1.0
    down = max(0.0, done - warmup) / (total - warmup)
    if name == "linear":
        return warm * (1 - down)
    if name == "cosine":
        return warm * (1 + cos(pi * down)) / 2
    if name == "cosine_with_restarts":
        return warm * (1 + cos(pi * (3 * down - int(3 * down + 1e-9)))) / 2
    if name == "multistep":
        return warm * 0.1 ** ((done >= total / 3) + (done >= total * 3 / 4))
    return warm


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warmup", [{"warmup_ratio": 0.2}, {"warmup_steps": 6}, {"warmup_ratio": 0.0}, {}])
def test_rates_in_samples(name: str, warmup: dict[str, Any]) -> None:
    """D09 to D12, D14, D33: a step counts four samples; the last of an epoch may have fewer."""
    schedule = schedule_of(training(name, **warmup), SAMPLES, TOTAL, "samples", STEP)
    length = 0.2 * TOTAL if warmup.get("warmup_ratio", 0.2) and warmup else 0.0
    if not warmup and name not in ("constant", "none"):
        length = 0.03 * TOTAL
    for done in (*range(0, TOTAL, STEP), 3, 41, 119):
        assert schedule.factor_at(done) == pytest.approx(by_hand(name, done, TOTAL, length, STEP), abs=1e-10), done


@pytest.mark.parametrize("name", NAMES)
def test_rates_in_steps(name: str) -> None:
    """D10, D14: with max_steps nothing counts but steps; milestones are steps, too."""
    steps = {"max_steps": STEPS, "warmup_steps": 6, "num_train_epochs": 2.0}
    if name == "multistep":
        steps["lr_scheduler_kwargs"] = {"milestones": [STEPS / 3, STEPS * 3 / 4], "gamma": 0.1}
    schedule = schedule_of(training(name, **steps), SAMPLES, STEPS, "steps", STEP)
    for done in range(STEPS):
        assert schedule.factor_at(done) == pytest.approx(by_hand(name, done, STEPS, 6, 1), abs=1e-10), done
    by_ratio = schedule_of(training(name, **{**steps, "warmup_steps": 0, "warmup_ratio": 0.2}), 7, STEPS, "steps", STEP)
    assert [by_ratio.factor_at(done) for done in range(STEPS)] == [schedule.factor_at(done) for done in range(STEPS)]


def test_milestones_are_ends_of_epochs_in_a_run_that_ends_within_one() -> None:
    """Of 2.5 epochs of 9 the second ends after 18 samples; 23 are trained."""
    options = training("multistep", num_train_epochs=2.5, lr_scheduler_kwargs={"milestones": [2.0]}, warmup_steps=0)
    schedule = schedule_of(options.model_copy(update={"warmup_ratio": 0.0}), 9, 23, "samples", 4)
    assert [schedule.factor_at(done) for done in (17, 18)] == pytest.approx([1.0, 0.1])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and nine conversations."""
    folder = tmp_path_factory.mktemp("made")
    write_model(folder / "model")
    write_chats(folder / "chats.jsonl")
    return folder


@pytest.fixture
def file(made: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An option file with the changes of a test, in a folder that has nothing else."""
    monkeypatch.chdir(tmp_path)
    return written(made, tmp_path, getattr(request, "param", {}))


def written(made: Path, folder: Path, changes: dict[str, Any]) -> Path:
    options = finetune_options(made / "model", made / "chats.jsonl")
    return write_options(folder / "run.yml", merged(options, changes))


def loaded_from(file: Path) -> LoadedOptions[FinetuneOptions]:
    loaded = load_options(file)
    assert isinstance(loaded.options, FinetuneOptions)
    return loaded.with_options(loaded.options)


def built(file: Path, dtype: torch.dtype = torch.float32) -> FinetuneParts:
    request = PartsRequest(
        Precision(torch.device("cpu"), dtype), SINGLE_PROCESS, pretrained=True, check_samples=lambda _samples: None
    )
    parts = FinetuneParts(loaded_from(file), request)
    build_automations(parts.automations(), RunFacts(parts.axes(), parts.first_plan()), request.precision.device)
    return parts


def refused(file: Path) -> Problem:
    with pytest.raises(InputError) as caught:
        built(file)
    (problem,) = caught.value.problems
    assert [path.name for path in file.parent.iterdir()] == ["run.yml"]
    return problem


def changed(**changes: Any) -> Any:
    return pytest.mark.parametrize("file", [changes], indirect=True)


IN_4_BITS = {"model": {"load_in_4bit": True}, "lora": {"r": 4, "target_modules": ["q_proj", "v_proj"]}}


@changed(**IN_4_BITS)
def test_weights_in_4_bits_need_a_package(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D27: the line of the file is shown, and what installs it."""
    monkeypatch.setattr(four_bits, "find_spec", lambda _name: None)
    problem = refused(file)
    assert problem.message == "weights in 4 bits need the package bitsandbytes"
    assert "trainauto[quantization]" in problem.advice
    assert problem.place is not None
    assert "load_in_4bit: true" in problem.place.text


def as_one_of_several(parts: FinetuneParts) -> None:
    parts.build_model(parts._precision, pretrained=True, parallel=Parallel(lambda network, _averages, _leaves: network))


@changed(distributed={"fully_shard": True})
def test_sharded_weights_that_a_rank_would_leave_out_are_refused(file: Path) -> None:
    """Conversations with pictures and without beside a vision tower that is trained; adapters of blocks are fine."""
    parts = built(file)
    with pytest.raises(InputError) as caught:
        as_one_of_several(parts)
    (problem,) = caught.value.problems
    assert "of train have no picture" in problem.message
    assert problem.place is not None
    assert "fully_shard" in problem.place.text


@changed(distributed={"fully_shard": True}, lora={"r": 4, "target_modules": ["q_proj", "v_proj"]})
def test_adapters_of_the_language_model_may_be_sharded(file: Path) -> None:
    as_one_of_several(built(file))


@changed(model={"load_in_4bit": True})
def test_weights_in_4_bits_are_not_trained_themselves(file: Path) -> None:
    """When the file is read."""
    problem = refused(file)
    assert "weights in 4 bits do not learn" in problem.message
    assert "Add lora: {r: 8, lora_alpha: 16}" in problem.advice
    assert problem.place is not None
    assert "load_in_4bit: true" in problem.place.text


@pytest.mark.parametrize("wanted", [False, True])
def test_weights_that_were_saved_packed_are_refused(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """Adapters cannot be merged into them; what they were made from is packed as it is loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "check_four_bits", lambda _wanted: None)
    packed = shutil.copytree(made / "model", tmp_path / "packed")
    config = json.loads((packed / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (packed / "config.json").write_text(json.dumps(config))
    given = merged(IN_4_BITS, {"model": {"name": str(packed), "load_in_4bit": wanted}})
    with pytest.raises(InputError) as caught:
        built(written(made, tmp_path, given))
    (problem,) = caught.value.problems
    assert problem.message == f"the weights of {packed} were saved packed"
    assert problem.place is not None
    assert "name:" in problem.place.text


@needs_bitsandbytes
@changed(**IN_4_BITS)
def test_layers_in_4_bits_all_but_the_head(file: Path) -> None:
    """D27: the others are as they were saved, adapters are float32, and nothing but these learns."""
    run = built(file)
    model, _ = parts_of(run)
    packed = {name for name, weight in model.named_parameters() if weight.dtype == torch.uint8}
    linear = {name for name, module in model.named_modules() if isinstance(module, Linear) and "lora_" not in name}
    assert {name.removesuffix(".weight") for name in packed} == {name for name in linear if "lm_head" not in name}
    assert {weight.dtype for name, weight in model.named_parameters() if name not in packed} == {torch.float32}
    assert {"lora_" in name for name, weight in model.named_parameters() if weight.requires_grad} == {True}
    said = [value for label, value in run.facts() if not label]
    assert re.fullmatch(
        r"linear layers [\d.]+ MiB in 4 bits; [\d.]+ MiB beside: embeddings, head, norms, adapters", said[0]
    )
    assert re.search(r"(896|0\.9 K) of [\d.]+ K parameters learn", dict(run.facts())["model"])
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@changed(lora={"r": 4, "target_modules": ["q_prj"]})
def test_adapters_of_no_layer_name_the_layers_there_are(file: Path) -> None:
    """D31."""
    problem = refused(file)
    assert "no layer of the model is called 'q_prj'" in problem.message
    for name in ("q_proj", "v_proj", "gate_proj"):
        assert name in problem.advice
    assert problem.place is not None
    assert "target_modules" in problem.place.text


def parts_of(run: FinetuneParts) -> tuple[Module, FinetuneData]:
    return run.network, run._data


@changed(lora={"r": 4, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]})
def test_adapters_alone_learn(file: Path) -> None:
    """D29 to D31: two matrices of rank 4 beside each layer that is named, and nothing else."""
    model, _ = parts_of(built(file))
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert {name.split(".")[-4] for name in trained} == {"q_proj", "v_proj"}
    assert all("lora_" in name and 4 in weight.shape for name, weight in trained.items())
    assert model.peft_config["default"].lora_alpha == 32


@pytest.mark.parametrize(
    ("file", "words", "where"),
    [
        (
            {"training_automations": {"DynamicBatchSizeOptimiser": {}}},
            "Did you mean 'DynamicBatchSizeOptimizer'?",
            "DynamicBatchSizeOptimiser",
        ),
        (
            {"training_automations": {"IntelligentEarlyStopping": {"patience": 0}}},
            "patience must be 1 validation or more",
            "patience",
        ),
        (
            {"training": {"early_stop_loss": 0.5}, "training_automations": {"StopAtLowLoss": {"loss": 0.1}}},
            "given twice, as early_stop_loss and to StopAtLowLoss",
            "early_stop_loss",
        ),
        (
            {"training_automations": {"DynamicBatchSizeOptimizer": {"target_vram": 0.5}}},
            "Did you mean 'target_vram_usage'?",
            "DynamicBatchSizeOptimizer",
        ),
        (
            {"training_automations": {"DynamicBatchSizeOptimizer": {"max_batch_size": 8}}},
            "per_device_train_batch_size times gradient_accumulation_steps",
            "max_batch_size",
        ),
        (
            {"training_automations": {"DynamicBatchSizeOptimizer": {"target_may_grow": True}}},
            "fine-tuning has no target_may_grow",
            "target_may_grow",
        ),
        (
            {"training_automations": {"dynamic_batch_size_optimizer": {"target_vram_usage": 1.5}}},
            "target_vram_usage",
            "dynamic_batch_size_optimizer",
        ),
    ],
    indirect=["file"],
)
def test_automations_are_checked(file: Path, words: str, where: str) -> None:
    """Their names when the file is read, their settings before the model is loaded."""
    problem = refused(file)
    assert words in problem.message + problem.advice
    assert problem.place is not None
    assert where in problem.place.text or "target" in problem.place.text


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ({}, {}),
        ({"training_automations": {"enabled": False}}, None),
        ({"training_automations": {"DynamicBatchSizeOptimizer": {"enabled": False}}}, None),
        (
            {"training_automations": {"DynamicBatchSizeOptimizer": {"target_vram_usage": 0.5}}},
            {"target_vram_usage": 0.5},
        ),
    ],
    indirect=["file"],
)
def test_settings_of_the_controller(file: Path, settings: dict[str, Any] | None) -> None:
    assert settings_of_controller(loaded_from(file)) == settings


@pytest.mark.parametrize(
    ("file", "is_traced"),
    [
        ({"device": "cuda"}, True),
        ({"device": "cpu"}, False),
        ({"device": "cpu", "memory": {"budget": "1 GiB"}}, True),
        ({"device": "cuda", "training_automations": {"enabled": False}}, False),
        ({"device": "cuda", "training_automations": {"dynamic_batch_size_optimizer": {"enabled": False}}}, False),
        ({"device": "cuda", "training_automations": {"DynamicBatchSizeOptimizer": {"policy": "step"}}}, False),
        ({"device": "cuda", "training_automations": {"DynamicBatchSizeOptimizer": {"policy": "jump"}}}, True),
    ],
    indirect=["file"],
)
def test_only_what_a_controller_asks_for_is_traced(file: Path, is_traced: bool) -> None:
    assert loaded_from(file).options.is_traced == is_traced


def test_memory_of_a_step_goes_by_few_options(file: Path) -> None:
    """What was learned of it holds on at another rate, in another folder and for another length."""
    options = loaded_from(file).options.model_dump(mode="json")
    before = FinetuneOptions.model_validate(options).of_steps(1)
    options["training"] |= {"learning_rate": 0.5, "output_dir": "elsewhere", "num_train_epochs": 9.0}
    assert FinetuneOptions.model_validate(options).of_steps(1) == before
    options["training"]["per_device_train_batch_size"] += 1
    assert FinetuneOptions.model_validate(options).of_steps(1) != before


@changed(dataset={"max_length": 513})
def test_conversations_longer_than_the_model_takes(file: Path) -> None:
    problem = refused(file)
    assert problem.message == "conversations of 513 tokens are longer than the 512 that the model takes"
    assert problem.place is not None
    assert "max_length" in problem.place.text


@changed(dataset={"val_share": 0.3})
def test_what_is_set_aside_is_the_same_each_time(file: Path, made: Path) -> None:
    """manual_seed decides, nothing else; each conversation is in one of both."""

    def places(**changes: Any) -> tuple[list[str], list[str]]:
        data = parts_of(built(written(made, file.parent, {"dataset": {"val_share": 0.3}, **changes})))[1]
        assert data.val is not None
        return tuple([one.place for one in each.conversations] for each in (data.train, data.val))  # type: ignore[return-value]

    first = places()
    assert (len(first[0]), len(first[1])) == (6, 3)
    assert sorted(first[0] + first[1]) == sorted(f"{made / 'chats.jsonl'}:{line}" for line in range(1, 10))
    assert places() == first
    assert places(training={"learning_rate": 0.5}) == first
    assert places(manual_seed=4) != first


@changed(dataset={"val_share": 0.99})
def test_a_share_that_leaves_nothing(file: Path) -> None:
    problem = refused(file)
    assert problem.message == "a share of 0.99 of 9 leaves none to learn from"
    assert "(val)" in problem.advice


@changed(model={"chat_template": "mine.jinja"})
def test_a_template_lies_beside_the_option_file(
    file: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "mine.jinja" in refused(file).message
    template = (Path(loaded_from(file).options.model.name) / "chat_template.jinja").read_text()
    (file.parent / "mine.jinja").write_text(template.replace("<|im_end|>", "!<|im_end|>"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    data = parts_of(built(file))[1]
    plain = written(Path(loaded_from(file).options.model.name).parent, file.parent, {})
    turns = [sum(len(each.turns) for each in data.train.conversations)]
    longer = int(
        data.looked_through["train"].lengths.sum() - parts_of(built(plain))[1].looked_through["train"].lengths.sum()
    )
    assert turns == [longer]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            {"training": {"max_steps": 3, "lr_scheduler_type": "none"}},
            "0.01, constant, 3 steps; max_steps wins over num_train_epochs",
        ),
        ({"training": {"warmup_steps": 1}}, "0.01, linear, rising for 1 step, 2 epochs"),
        ({"training": {"lr_scheduler_type": "cosine"}}, "0.01, cosine, rising for 0.03 of the run, 2 epochs"),
        (
            {"training": {"warmup_steps": 1, "max_batch_size": 8, "lr_scaling": "sqrt"}},
            "0.01, linear, rising for 1 step, lr_scaling sqrt, 2 epochs",
        ),
    ],
    indirect=["file"],
)
def test_the_start_says_rates_and_length(file: Path, said: str) -> None:
    """D14, D32: of two lengths, that in steps counts."""
    assert dict(built(file).facts())["rates"] == said


@changed(model={"dtype": "bfloat16"}, lora={"r": 2})
def test_the_start_says_in_which_format_weights_are_kept(file: Path) -> None:
    assert dict(built(file).facts())["model"].endswith(" parameters learn, fp32, weights in bfloat16")


def test_formats_of_weights() -> None:
    """What is trained is float32, unless a file says otherwise; adapters on a card stand beside what was saved."""
    text = "model: {name: x%s}\ndataset: {path: x}\ntraining: {}\n%s"
    card, cpu = (Precision(torch.device(name)) for name in ("cuda", "cpu"))

    def chosen(precision: Precision, model: str = "", lora: str = "") -> torch.dtype | None:
        import yaml

        return weights_dtype(FinetuneOptions.model_validate(yaml.safe_load(text % (model, lora))), precision)

    assert chosen(cpu) == chosen(card) == chosen(cpu, lora="lora: {r: 4}") == torch.float32
    assert chosen(card, lora="lora: {r: 4}") is None
    assert chosen(cpu, model=", dtype: bfloat16") == torch.bfloat16


def test_formats_that_layers_in_4_bits_compute_in() -> None:
    """That of a step, else that of the weights beside; a card whose file names none has bfloat16."""
    text = "model: {name: x, load_in_4bit: %s%s}\nlora: {r: 4}\ndataset: {path: x}\ntraining: {}"

    def chosen(device: str, step: torch.dtype = torch.float32, model: str = "", wanted: str = "true") -> Any:
        import yaml

        options = FinetuneOptions.model_validate(yaml.safe_load(text % (wanted, model)))
        found = four_bits_of(options, Precision(torch.device(device), step))
        return found and (str(found.device), found.compute_dtype)

    assert chosen("cpu", wanted="false") is None
    assert chosen("cpu") == ("cpu", torch.float32)
    assert chosen("cpu", torch.bfloat16) == chosen("cpu", model=", dtype: bfloat16") == ("cpu", torch.bfloat16)
    assert chosen("cuda") == chosen("cuda", torch.bfloat16) == ("cuda", torch.bfloat16)
    assert chosen("cuda", model=", dtype: float32") == ("cuda", torch.float32)
    assert chosen("cuda", torch.float16) == ("cuda", torch.float16)
