"""``convert``: the file it writes, what it says, what it refuses, and the table of a folder."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from tests.foreign_files import FOLDER
from tests.integration.commands import Ended, command
from trainauto.options.load import load_options, load_test_options

GAN, NEOSR, MISSING = "redux_gan.yml", "neosr_paired.toml", "basicsr_msrresnet.yml"


def convert(folder: Path, *words: str) -> Ended:
    return command("convert", *words, cwd=folder)


def test_a_file_is_written_into_this_folder_checked_and_never_replaced_unasked(tmp_path: Path) -> None:
    done = convert(tmp_path, str(FOLDER / NEOSR), "--check")
    assert done.returncode == 0, done.stderr
    written = tmp_path / "neosr_paired_trainauto.yml"
    first = written.read_text()
    assert load_options(written).options.name == "compact_2x_ferns"
    assert "an option file of neosr; wrote neosr_paired_trainauto.yml" in " ".join(done.stdout.split())
    assert "validate -opt neosr_paired_trainauto.yml" in done.stdout
    assert "Not checked: folders" in done.stdout
    written.write_text("mine")
    refused = convert(tmp_path, str(FOLDER / NEOSR))
    assert refused.returncode == 2
    assert "is there already" in refused.stderr
    assert written.read_text() == "mine"
    assert convert(tmp_path, str(FOLDER / NEOSR), "--overwrite").returncode == 0
    assert written.read_text() == first
    assert convert(tmp_path, str(FOLDER / NEOSR), "--output", "none/a.yml").returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["neosr_paired_trainauto.yml"]


def test_what_cannot_be_written_is_said_and_theirs_is_never_replaced(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.toml"
    shutil.copy(FOLDER / NEOSR, theirs)
    refused = convert(tmp_path, "theirs.toml", "--output", "./theirs.toml", "--overwrite")
    assert "is the file to convert" in refused.stderr
    assert theirs.read_bytes() == (FOLDER / NEOSR).read_bytes()
    with mock.patch("trainauto.commands.run_convert.write_text_atomically", side_effect=PermissionError(13, "denied")):
        failed = convert(tmp_path, "theirs.toml")
    assert failed.returncode == 2
    assert "cannot write theirs_trainauto.yml: denied" in failed.stderr


def test_a_network_that_is_not_here_ends_with_another_code_and_leaves_the_file(tmp_path: Path) -> None:
    theirs = (FOLDER / MISSING).read_text().replace("MSRResNet\n", "NoSuchNet\n")
    (tmp_path / "theirs.yml").write_text(theirs)
    done = convert(tmp_path, "theirs.yml", "--output", "a.yml", "--check")
    assert done.returncode == 2
    assert "network_g.type: NoSuchNet" in done.stdout
    assert "there is no network NoSuchNet here" in done.stdout
    assert yaml.safe_load((tmp_path / "a.yml").read_text())["network_g"]["type"] == "NoSuchNet"
    assert "checked:" not in done.stdout


def test_a_check_finds_what_a_table_cannot_know(tmp_path: Path) -> None:
    text = (FOLDER / NEOSR).read_text().replace("num_conv = 4", 'num_conv = "four"')
    (tmp_path / "theirs.toml").write_text(text)
    done = convert(tmp_path, "theirs.toml", "--check", "--output", "a.yml")
    assert done.returncode == 2
    assert "a.yml:" in done.stderr
    assert "num_conv" in done.stderr


def test_every_kind_of_check_passes_on_files_with_all_components(tmp_path: Path) -> None:
    for name in (GAN, "redux_fidelity.yml", "basicsr_realesrgan.yml"):
        assert convert(tmp_path, str(FOLDER / name), "--check", "--output", f"{name}.yml").returncode == 0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yml", "name: x\ndatasets: {}\nnetwork_g: {type: span}\n", "nothing in it says which"),
        ("a.yml", "name: x\nmemory: {budget: 1GiB}\n", "this is an option file of trainauto already"),
        ("a.yml", "x: 1\n", "this is no option file of traiNNer-redux, BasicSR, neosr"),
        ("a.yml", "- x\n", "this is no option file"),
        ("a.toml", "x = \n", "a.toml:1:5: this is not TOML"),
        ("a.json", "{", "a.json:1:2: this is not JSON"),
    ],
)
def test_files_of_nobody_known_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    done = convert(tmp_path, name)
    assert done.returncode == 2
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_whose_file_it_is_can_be_said(tmp_path: Path) -> None:
    sets = {"train": {"type": "PairedImageDataset", "dataroot_gt": "a", "dataroot_lq": "b", "gt_size": 64}}
    train = {"total_iter": 5, "optim_g": {"type": "Adam", "lr": 1e-3}, "pixel_opt": {"type": "L1Loss"}}
    theirs = {"name": "x", "scale": 2, "network_g": {"type": "RRDBNet"}, "datasets": sets, "train": train}
    (tmp_path / "a.json").write_text(json.dumps(theirs))
    assert convert(tmp_path, "a.json").returncode == 2
    done = convert(tmp_path, "a.json", "--from", "basicsr")
    assert done.returncode == 0, done.stderr
    options: Any = load_options(tmp_path / "a_trainauto.yml").options
    assert (options.datasets.train.lq_size, options.train.ema_decay) == (32, 0)


def test_a_file_that_looks_like_one_of_another_project_is_named(tmp_path: Path) -> None:
    done = convert(tmp_path, str(FOLDER / NEOSR), "--from", "redux", "--output", "a.yml")
    assert "It looks like an option file of neosr" in done.stdout
    assert "It looks like" not in convert(tmp_path, str(FOLDER / NEOSR), "--from", "neosr", "--output", "b.yml").stdout


def test_a_sum_of_unknown_length_ends_with_another_code(tmp_path: Path) -> None:
    text = (
        (FOLDER / NEOSR)
        .read_text()
        .replace("[logger]", '[train.more_opt]\ntype = "L1Loss"\nreduction = "sum"\n\n[logger]')
    )
    (tmp_path / "theirs.toml").write_text(re.sub(r"(?m)^batch_size = .*\n", "", text))
    done = convert(tmp_path, "theirs.toml", "--output", "a.yml")
    assert done.returncode == 2, done.stdout
    assert "the file does not say how many values a batch has" in " ".join(done.stdout.split())


def test_words_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    assert "nothing is named" in convert(tmp_path).stderr
    assert "FILE and --stats are given" in convert(tmp_path, "a.yml", "--stats", ".").stderr
    assert "there is no folder" in convert(tmp_path, "--stats", "none").stderr


def test_a_file_that_measures_becomes_a_test_file(tmp_path: Path) -> None:
    sets = {
        "test_1": {"name": "set+1", "type": "PairedImageDataset", "dataroot_gt": "a", "dataroot_lq": "b"},
        "test_2": {"name": "one", "type": "SingleImageDataset", "dataroot_lq": "c", "io_backend": {"type": "disk"}},
    }
    theirs = {
        "name": "measure",
        "model_type": "SRModel",
        "scale": 4,
        "num_gpu": 1,
        "manual_seed": 0,
        "datasets": sets,
        "network_g": {"type": "RRDBNet", "num_in_ch": 3, "num_out_ch": 3},
        "path": {"pretrain_network_g": "a.pth", "strict_load_g": True},
        "val": {"save_img": True, "suffix": None, "metrics": {"psnr": {"type": "calculate_psnr", "crop_border": 4}}},
    }
    (tmp_path / "theirs.yml").write_text(yaml.safe_dump(theirs))
    done = convert(tmp_path, "theirs.yml", "--check", "--from", "basicsr")
    assert done.returncode == 0, done.stderr
    test = load_test_options(tmp_path / "theirs_trainauto.yml").test
    assert {key: one.name for key, one in test.datasets.sets.items()} == {"test_1": "set_1"}
    assert test.path.param_key_g == "params"
    assert "test -opt theirs_trainauto.yml" in done.stdout
    assert "a test does not train" in done.stdout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"onnx": {"opset": 20}}, "export --weights a.pth network.onnx --format onnx"),
        ({"datasets": {"val": {"name": "v", "type": "singleimagedataset", "dataroot_lq": ["my lr"]}}}, "upscale"),
        ({}, "There is no equal of it here"),
    ],
)
def test_files_that_neither_train_nor_measure_are_answered_with_a_command(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    theirs = {"name": "x", "scale": 4, "num_gpu": 1, "network_g": {"type": "span"}, **changes}
    theirs["path"] = {"pretrain_network_g": "a.pth"}
    (tmp_path / "theirs.yml").write_text(yaml.safe_dump(theirs))
    done = convert(tmp_path, "theirs.yml", "--from", "redux")
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.yml"]


def test_a_folder_without_option_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = convert(tmp_path, "--stats", ".")
    assert done.returncode == 0
    assert done.stdout.strip() == "no option files in .: names of theirs end in .yml, .yaml, .toml, .json"


def test_the_table_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in (GAN, NEOSR, "basicsr_swinir.yml"):
        shutil.copy(FOLDER / name, tmp_path / "below" / name)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.yaml").write_text("x: 1\n")
    (tmp_path / "notes.txt").write_text("x")
    missing = (FOLDER / MISSING).read_text().replace("MSRResNet\n", "NoSuchNet\n")
    (tmp_path / "missing.yml").write_text(missing)
    done = convert(tmp_path, "--stats", ".")
    assert done.returncode == 0
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in done.stdout.splitlines() if line}
    assert lines["below/redux_gan.yml"] == "traiNNer-redux losses or metrics left out: contextualloss"
    assert lines["below/neosr_paired.toml"] == "neosr losses or metrics left out: topiq"
    assert lines["below/basicsr_swinir.yml"] == "BasicSR whole"
    assert lines["missing.yml"] == "BasicSR not here: NoSuchNet"
    assert lines["broken.json"].startswith("- cannot be read: this is not JSON")
    assert lines["other.yaml"] == "- not recognised"
    assert lines["6"].startswith("files: 2 losses or metrics left out")
    assert len(list(tmp_path.rglob("*"))) == 8


def test_a_run_of_a_foreign_file_is_refused_with_the_command(tmp_path: Path) -> None:
    shutil.copy(FOLDER / NEOSR, tmp_path / "theirs.toml")
    for words in (("train",), ("validate",), ("plan",)):
        done = command(*words, "-opt", "theirs.toml", cwd=tmp_path)
        assert done.returncode == 2
        assert "this is an option file of neosr" in done.stderr
        assert "Convert it with: python -m trainauto convert theirs.toml" in done.stderr
