"""docs/finetune.md: the newcomer's path from a folder of pictures to answers, as it stands on the page (issue 20)."""

import json
import re
import shlex
from pathlib import Path

import pytest
from peft import PeftModel
from transformers import AutoModelForImageTextToText

from scripts.tiny_vlm import make_model, make_pictures
from tests.integration.commands import Ended, command
from trainauto.tasks.finetune.conversation_lines import conversation_lines

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "finetune.md").read_text(encoding="utf-8")
BASE = "tiny_model"
HERE = ["--force_yml", f"model:name={BASE}", "device=cpu", "num_threads=1"]
"""The one thing that a newcomer has and this machine has not: a model of the hub, and a card."""


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[number]


def run(line: str, folder: Path) -> Ended:
    """Run a command line of the page; what begins a run also gets the model that is at hand."""
    words = shlex.split(line)
    entry = {"train.py": ["train"], "test.py": ["test"], "-m": []}[words[1]]
    arguments = [*entry, *words[3 if words[1] == "-m" else 2 :], *(HERE if "-opt" in words else [])]
    done = command(*arguments, cwd=folder)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by names that it is to drop
def test_the_newcomers_path(tmp_path: Path) -> None:
    make_model(0, tmp_path / BASE)
    shown = make_pictures(tmp_path / "with_table", 1, 24)
    (tmp_path / "pictures").mkdir()
    table = (tmp_path / "with_table" / "metadata.jsonl").read_text().splitlines()
    for entry in map(json.loads, table):  # each caption beside its picture, as the page says
        (tmp_path / "with_table" / entry["file_name"]).rename(tmp_path / "pictures" / entry["file_name"])
        (tmp_path / "pictures" / entry["file_name"]).with_suffix(".txt").write_text(entry["text"] + "\n")
    assert len(shown) == len(list((tmp_path / "pictures").glob("*.txt"))) == 24
    (tmp_path / "my_captions.yml").write_text(block("yaml"))
    validate, train, test, export, merge = block("bash").splitlines()
    tried = run(validate, tmp_path).stdout
    assert "22 conversations, 22 pictures" in tried
    assert "can be trained; nothing of this was saved" in tried
    assert not (tmp_path / "training_output").exists()
    trained = run(train, tmp_path).stdout
    assert "training finished" in trained
    answered = run(test, tmp_path).stdout
    assert re.search(r"\d of 2 answers exact", answered)
    assert "asked     What does it show?" in answered
    answers = (tmp_path / "results" / "finetune" / "answers.jsonl").read_text().splitlines()
    assert {json.loads(line)["expected"] for line in answers} <= {entry["text"] for entry in map(json.loads, table)}
    run(export, tmp_path)
    run(merge, tmp_path)
    base = AutoModelForImageTextToText.from_pretrained(tmp_path / BASE)
    adapted = PeftModel.from_pretrained(base, tmp_path / "my_adapters")
    whole = AutoModelForImageTextToText.from_pretrained(tmp_path / "my_model")
    name = next(name for name, _ in whole.named_parameters() if name.endswith("q_proj.weight") and "visual" not in name)
    merged_weights = dict(adapted.merge_and_unload().named_parameters())
    assert (dict(whole.named_parameters())[name] - merged_weights[name]).abs().max() < 1e-6


def test_the_line_of_chats_is_read(tmp_path: Path) -> None:
    (tmp_path / "shots").mkdir()
    make_pictures(tmp_path / "made", 1, 1)[0].file.rename(tmp_path / "shots" / "1.png")
    (conversation,) = conversation_lines(tmp_path / "chats.jsonl", block("json"))
    assert [turn.text for turn in conversation.turns] == ["Which button?", "The red one."]
    assert len(conversation.images) == 1
