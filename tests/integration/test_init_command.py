"""``init``: what it writes loads and trains as it stands, with the controller switched on; what it refuses."""

import json
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.integration.commands import Ended, command, run_directory, step_records
from tests.integration.finetune_runs import write_chats, write_model
from tests.integration.text_runs import write_texts
from tests.unit.tasks.sr.data.test_databases import database_of
from trainauto.commands.first_files.machine import Machine
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import load_options
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.schema import Options
from trainauto.options.text_options import TextOptions

Write = Callable[..., Path]
CONTROLLER = "DynamicBatchSizeOptimizer"
CARDS = {"none": Machine(), "ampere": Machine("NVIDIA A100", True, 4), "turing": Machine("Tesla T4", False, 4)}


def init(folder: Path, *words: str, machine: Machine | None = None) -> Ended:
    with mock.patch("trainauto.commands.run_init.this_machine", return_value=machine or Machine()):
        return command("init", *words, cwd=folder)


def loaded(folder: Path, name: str = "mine") -> Any:
    with chdir(folder):
        return load_options(Path(f"{name}.yml")).options


def train(folder: Path, *overrides: str, name: str = "mine") -> list[dict[str, Any]]:
    """Train the file that was written, in a process of its own since it counts what it holds; return its steps."""
    done = command("train", "-opt", f"{name}.yml", "--force_yml", *overrides, cwd=folder, own_process=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return step_records(run_directory(folder / f"{name}.yml", name))


@pytest.fixture
def data(tmp_path: Path, write_images: Write) -> Path:
    """Images, texts, conversations, and what looks like a model."""
    write_images("photos", 12, (150, 160))
    write_images("photos/more", 2, (150, 160))
    write_texts(tmp_path)
    write_chats(tmp_path / "chats.jsonl", 6)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path


WORDS: dict[str, tuple[list[str], type[FileOptions]]] = {
    "sr": (["--images", "photos"], Options),
    "text": (["--texts", "texts.txt"], TextOptions),
    "finetune": (["--conversations", "chats.jsonl", "--model", "model"], FinetuneOptions),
    "multitask": ([], MultitaskOptions),
}


@pytest.mark.parametrize("machine", CARDS.values(), ids=list(CARDS))
@pytest.mark.parametrize("task", list(WORDS))
def test_what_is_written_loads_and_has_the_controller(data: Path, task: str, machine: Machine) -> None:
    words, kind = WORDS[task]
    done = init(data, task, "mine", *words, machine=machine)
    assert done.returncode == 0, done.stderr
    options = loaded(data)
    assert isinstance(options, kind)
    assert options.name == "mine"
    if task != "multitask":  # its runs have no other controller than that which is always on
        assert CONTROLLER in options.training_automations.active
        assert options.use_amp == machine.has_bfloat16
    assert options.memory.has_budget != bool(machine.card)
    if task == "sr":
        assert options.network_g.type == ("rrdbnet" if machine.card else "compact")
        assert options.datasets.train.lq_size == (36 if machine.card else 32)  # 64, but no image holds more than 37


@pytest.mark.parametrize("task", list(WORDS))
def test_editors_find_the_schema_and_people_the_next_commands(data: Path, task: str) -> None:
    done = init(data, task, "mine", *WORDS[task][0])
    lines = (data / "mine.yml").read_text().splitlines()
    schema = json.loads((data / lines[0].removeprefix("# yaml-language-server: $schema=")).read_text())
    assert "name" in schema["properties"]
    assert max(map(len, lines)) <= 120
    for name in ("doctor -opt mine.yml", "train -opt mine.yml", "report "):
        assert any(f"trainauto {name}" in line for line in lines if line.startswith("#"))
        assert f"trainauto {name}" in done.stdout


def test_sr_trains_as_it_stands_and_validates_on_what_is_set_aside(data: Path) -> None:
    done = init(data, "sr", "mine", "--images", "photos", "--scale", "2")
    assert "13 images of photos, validated on 1 other" in done.stdout
    options = loaded(data)
    listed = (data / "mine_train.txt").read_text().split()
    aside = [str(Path(path).relative_to("photos")) for path in options.datasets.val.dataroot_gt]
    everything = {str(path.relative_to(data / "photos")) for path in (data / "photos").rglob("*.png")}
    assert set(listed) | set(aside) == everything
    assert set(listed) & set(aside) == set()
    assert "more/image_000.png" in listed
    steps = train(data, "train:total_iter=3", "num_threads=1", "network_g:num_feat=8")
    assert len(steps) == 3
    validated = (run_directory(data / "mine.yml", "mine") / "validation.jsonl").read_text()
    assert "psnr_y" in validated


def test_sr_of_a_card_trains_as_it_stands(data: Path) -> None:
    init(data, "sr", "mine", "--images", "photos", machine=CARDS["ampere"])
    small = ["use_amp=false", "network_g:num_block=1", "network_g:num_feat=8", "datasets:train:lq_size=16"]
    small += ["datasets:train:batch_size_per_gpu=2", "datasets:train:num_worker_per_gpu=0", "num_threads=1"]
    short = ["train:total_iter=2", "train:scheduler:milestones=[1]"]
    assert len(train(data, *small, *short)) == 2


def test_sr_takes_a_folder_to_validate_on_and_photographs_that_ship(data: Path, write_images: Write) -> None:
    write_images("aside", 2)
    init(data, "sr", "mine", "--images", "photos", "--val", "aside")
    assert not (data / "mine_train.txt").exists()
    assert loaded(data).datasets.val.dataroot_gt == "aside"
    assert init(data, "sr", "shipped").returncode == 0
    sets = loaded(data, "shipped").datasets
    assert set(sets.train.dataroot_gt) & set(sets.val.dataroot_gt) == set()
    steps = train(data, "train:total_iter=1", "val:val_enabled=false", "num_threads=1", name="shipped")
    assert len(steps) == 1


def test_text_trains_as_it_stands(data: Path) -> None:
    init(data, "text", "mine", "--texts", "texts.txt")
    small = ["model:config:n_embd=16", "tokenizer:train:vocab_size=300", "num_threads=1", "train:warmup_ratio=0.0"]
    length = ["train:total_epochs=null", "train:total_iter=3"]
    assert len(train(data, *small, *length)) == 3


def test_text_takes_texts_to_validate_on_and_those_that_ship(data: Path) -> None:
    (data / "others.txt").write_text("others\n\nthan those\n")
    init(data, "text", "mine", "--texts", "texts.txt", "--val", "others.txt")
    assert (loaded(data).datasets.val.path, loaded(data).datasets.val.share) == ("others.txt", None)
    assert init(data, "text", "shipped").returncode == 0
    assert loaded(data, "shipped").datasets.train.format == "strings"
    init(data, "text", "of_a_card", machine=CARDS["ampere"])
    widths = [loaded(data, name).model.config["n_embd"] for name in ("shipped", "of_a_card")]
    assert widths == [128, 128], "few texts want a small model, whatever the machine"


def test_finetune_trains_as_it_stands(data: Path) -> None:
    write_model(data / "small")
    init(data, "finetune", "mine", "--conversations", "chats.jsonl", "--model", "small")
    short = ("training:max_steps=2", "num_threads=1")
    done = command("train", "-opt", "mine.yml", "--force_yml", *short, cwd=data, own_process=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "trainauto test training_output/mine" in done.stdout
    assert len(step_records((data / "training_output" / "mine" / "current").resolve())) == 2


def test_multitask_trains_as_it_stands(data: Path) -> None:
    init(data, "multitask", "mine")
    short = ["train:total_epochs=null", "train:total_iter=2", "num_threads=1"]
    short += ["datasets:train:samples=128", "datasets:val:samples=30"]
    done = command("train", "-opt", "mine.yml", "--force_yml", *short, cwd=data, own_process=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "trained     2 steps" in done.stdout


def test_few_samples_leave_one_to_validate_on(data: Path) -> None:
    (data / "two.txt").write_text("one text\n\nand another\n")
    init(data, "text", "mine", "--texts", "two.txt")
    assert loaded(data).datasets.val.share == 0.5


@pytest.mark.parametrize("name", ["my run", "on", "1e5", "2024", "null", "ün.1_a-b"])
def test_names_and_folders_are_read_back_as_they_were_written(data: Path, name: str) -> None:
    (data / "photos").rename(data / "my photos: #1, 'best'")
    done = init(data, "sr", name, "--images", "my photos: #1, 'best'")
    assert done.returncode == 0, done.stderr
    options = loaded(data, name)
    assert options.name == name
    assert options.datasets.train.dataroot_gt == "my photos: #1, 'best'"
    assert (data / options.datasets.train.meta_info).is_file()


REFUSED = {
    "a task": (["srr", "mine"], "there is no task 'srr'", "Did you mean 'sr'?"),
    "a path": (["sr", "a/b"], "'a/b' cannot be the name of a run", "Names begin with"),
    "too long": (["sr", "a" * 201], "cannot be the name of a run", "200 bytes"),
    "a file": (["sr", "mine.yml"], "'mine.yml' is the name of a file", "Write mine"),
    "no folder": (["sr", "mine", "--images", "photo"], "there is no photo", "Did you mean 'photos'?"),
    "no images": (["sr", "mine", "--images", "model"], "no images in model", "Images end in"),
    "too few": (["sr", "mine", "--images", "photos/image_000.png"], "has 1 image, and none to spare", "--val FOLDER"),
    "trained on, too": (
        ["sr", "mine", "--images", "photos", "--val", "photos/more"],
        "2 images of photos/more",
        "--val",
    ),
    "the same texts": (["text", "mine", "--texts", "texts.txt", "--val", "texts.txt"], "trained on, too", "--val out"),
    "no name": (["sr", "mine", "--images", ""], "--images names no folder", "Write . for this one"),
    "a database": (["sr", "mine", "--images", "set.lmdb"], "set.lmdb is a database", "--val FOLDER"),
    "broken": (["sr", "mine", "--images", "broken"], "2 images of broken cannot be read", "copy them again"),
    "another task's": (["text", "mine", "--images", "photos"], "--images is of sr, and not of text", "--texts, --val"),
    "nothing to take": (["multitask", "mine", "--val", "x"], "not of multitask", "a name alone"),
    "a scale": (["sr", "mine", "--scale", "5"], "--scale 5", "2, 3 or 4"),
    "no texts": (["text", "mine", "--texts", "photos"], "no texts in photos", ".jsonl"),
    "one text": (["text", "mine", "--texts", "one.txt"], "one.txt has 1 text, and none to spare", "--val PATH"),
    "no data": (["finetune", "mine", "--model", "model"], "finetune needs --conversations", "Qwen"),
    "no model": (
        ["finetune", "mine", "--conversations", "chats.jsonl", "--model", "photos/"],
        "there is no config.json in it",
        "a name on the hub",
    ),
    "no conversations": (
        ["finetune", "mine", "--conversations", "chat.jsonl", "--model", "model"],
        "there is no chat.jsonl",
        "Did you mean 'chats.jsonl'?",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_used_is_refused_and_nothing_is_written(data: Path, case: str) -> None:
    (data / "broken").mkdir()
    for number in range(2):
        (data / "broken" / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (data / "one.txt").write_text("one text")
    database_of(data / "photos" / "more").rename(data / "set.lmdb")
    words, fact, advice = REFUSED[case]
    before = set(data.rglob("*"))
    done = init(data, *words)
    assert done.returncode == 2
    assert fact in done.stderr
    assert advice in done.stderr
    assert set(data.rglob("*")) == before


@pytest.mark.parametrize("name", ["\x1b[31mred", "line\u2028end", "del\x7f"])
def test_what_a_folder_is_called_acts_on_neither_file_nor_terminal(data: Path, name: str) -> None:
    (data / "photos").rename(data / name)
    done = init(data, "sr", "mine", "--images", name)
    assert done.returncode == 0, done.stderr
    options = loaded(data)
    assert (options.name, options.datasets.train.dataroot_gt) == ("mine", name)
    assert "\x1b" not in done.stdout


def test_images_that_no_list_can_name_are_refused(data: Path, write_images: Write) -> None:
    (data / "photos" / "image_000.png").rename(data / "photos" / " lead.png")
    done = init(data, "sr", "mine", "--images", "photos")
    assert done.returncode == 2
    assert "cannot stand in a list of images" in done.stderr
    assert not (data / "mine.yml").exists()


def test_a_folder_that_cannot_be_written_to_is_said(data: Path) -> None:
    (data / ".trainauto").write_text("a file")
    done = init(data, "sr", "mine", "--images", "photos")
    assert done.returncode == 2
    assert "cannot write .trainauto" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["mine.yml", "mine_train.txt"])
def test_what_is_there_stays(data: Path, name: str) -> None:
    (data / name).write_text("mine: already\n")
    done = init(data, "sr", "mine", "--images", "photos")
    assert done.returncode == 2
    assert f"{name} is there already" in done.stderr
    assert (data / name).read_text() == "mine: already\n"
    assert not (data / "mine.yml").exists() or name == "mine.yml"


def test_what_a_task_lacks_is_said(data: Path) -> None:
    with mock.patch("trainauto.commands.run_init.find_spec", return_value=None):
        done = init(data, "text", "mine", "--texts", "texts.txt")
    assert "pip install 'trainauto[huggingface]'" in done.stdout
    assert "this task needs transformers, peft" in (data / "mine.yml").read_text()


def test_the_version_is_said(data: Path) -> None:
    done = command("--version", cwd=data)
    assert (done.returncode, done.stdout) == (0, "trainauto 0.1.0\n")
