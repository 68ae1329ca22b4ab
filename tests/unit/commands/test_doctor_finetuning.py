"""What doctor says of a fine-tuning's packages, model and data, without loading any of it."""

import json
from pathlib import Path

import pytest

from trainauto.commands.doctor_checks.finetuning import data_finding, model_finding, packages_finding
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.reporting.finding import BROKEN, LOOK, OK


def options_of(**model: object) -> FinetuneOptions:
    return FinetuneOptions.model_validate(
        {"model": {"name": "m", **model}, "lora": {"r": 8, "lora_alpha": 16}, "dataset": {"path": "d"}, "training": {}}
    )


def test_packages_are_those_that_the_file_asks_for() -> None:
    assert packages_finding(options_of(), lambda package: package != "bitsandbytes").state == OK
    packed = packages_finding(options_of(load_in_4bit=True), lambda package: package != "bitsandbytes")
    assert (packed.state, packed.fact) == (BROKEN, "bitsandbytes is not installed")
    assert "trainauto[quantization]" in packed.advice
    assert "load_in_4bit: false" in packed.advice
    none = packages_finding(options_of(load_in_4bit=True), lambda _package: False)
    assert "trainauto[finetune,quantization]" in none.advice


def test_a_model_is_a_folder_with_parts_or_a_name_on_the_hub(tmp_path: Path) -> None:
    assert model_finding(str(tmp_path / "not_there")).state == BROKEN
    hub = model_finding("Qwen/Qwen3-VL-2B-Instruct")
    assert hub.state == LOOK
    assert "asks the hub" in hub.fact
    assert model_finding(str(tmp_path)).state == BROKEN  # an empty folder
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    alone = model_finding(str(tmp_path))
    assert alone.state == LOOK
    assert "without weights, a processor of pictures, a tokenizer" in alone.fact
    for name in ("model.safetensors", "preprocessor_config.json", "tokenizer.json"):
        (tmp_path / name).touch()
    assert model_finding(str(tmp_path)).state == OK


def test_data_have_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    missing = data_finding(options_of())
    assert (missing.state, missing.fact) == (BROKEN, "there is no folder 'd'")
    (tmp_path / "d").mkdir()
    assert data_finding(options_of()).state == OK
