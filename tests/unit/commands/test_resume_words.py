"""The command that resumes a stopped run is one that can be pasted."""

import argparse
import shlex
import sys
from pathlib import Path

import pytest

from trainauto.cli import _parser
from trainauto.commands.run_train import _command_to_resume


@pytest.mark.parametrize(
    ("started_as", "words"),
    [
        (str(Path("env", "bin", "trainauto")), ["trainauto", "train"]),
        (str(Path("trainauto", "__main__.py")), ["-m", "trainauto", "train"]),
        ("train.py", ["train.py"]),
    ],
)
def test_every_way_to_start_is_resumed_by_the_same(
    monkeypatch: pytest.MonkeyPatch, started_as: str, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [started_as, "train"])
    given = argparse.Namespace(launcher="none", opt=Path("my run.yml"), force_yml=["name=a b"])
    command = shlex.split(_command_to_resume(given))
    begin = command if words[0] == "trainauto" else command[1:]
    assert begin == [*words, "-opt", "my run.yml", "--auto_resume", "--force_yml", "name=a b"]
    if words[-1] == "train":
        parsed = _parser().parse_args(begin[begin.index("train") :])
        assert (parsed.auto_resume, parsed.force_yml) == (True, ["name=a b"])
