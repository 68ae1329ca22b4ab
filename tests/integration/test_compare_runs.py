"""``report A B``: runs that were really trained, compared by the command."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import command, run_directory, tiny_options, train, write_options

Write = Callable[..., Path]

BOTH = ("report", "experiments/slow", "experiments/fast")


@pytest.fixture
def here(tmp_path: Path, write_images: Write) -> Path:
    """A folder with two runs that differ in one option."""
    gt = write_images("gt", 2)
    for name, rate in (("slow", 1e-4), ("fast", 1e-2)):
        changes = {"name": name, "train": {"optim_g": {"type": "Adam", "lr": rate}, "ema_decay": 0.5}}
        done = train(write_options(tmp_path / f"{name}.yml", tiny_options(gt, **changes)))
        assert done.returncode == 0, done.stderr
    return tmp_path


def validations(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run) / "validation.jsonl").read_text().splitlines()]


def test_two_runs_that_differ_in_one_option(here: Path) -> None:
    done, as_json = command(*BOTH, cwd=here), command(*BOTH, "--json", cwd=here)
    assert (done.returncode, as_json.returncode) == (0, 0), done.stderr + as_json.stderr
    found = json.loads(as_json.stdout)
    assert found["options"] == {"train.optim_g.lr": [1e-4, 1e-2]}
    paths = [run["path"] for run in found["runs"]]
    assert paths == [str(run_directory(here / "slow.yml", name)) for name in ("slow", "fast")]
    (metric,) = found["metrics"]
    scores = [[line["metrics"]["psnr"] for line in validations(path)] for path in paths]
    assert [one["value"] for one in metric["last"]] == [logged[-1] for logged in scores]
    assert [one["value"] for one in metric["best"]] == [max(logged) for logged in scores]
    better = int(scores[1][-1] > scores[0][-1])
    assert metric["best_last"] == [("slow", "fast")[better]]

    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    head, options, course, validation = ([line.split() for line in one.splitlines()] for one in blocks(done.stdout))
    assert re.fullmatch(r"slow experiments/slow/\d{8}_\d{6}", " ".join(head[1]))
    assert options[1:] == [["slow", "fast"], ["train.optim_g.lr", "0.0001", "0.01"]]
    for line in ("status completed completed", "of its length 100% 100%", "steps 12 12", "samples trained 48 48"):
        assert line.split() in course
    values = [f"{'* ' if number == better else ''}{logged[-1]:.4f}" for number, logged in enumerate(scores)]
    assert " ".join(validation[2]) == f"val psnr, higher is better {' '.join(values)}"


def blocks(text: str) -> list[str]:
    return text.rstrip("\n").split("\n\n")


def test_what_cannot_be_compared_is_refused(here: Path) -> None:
    latest = run_directory(here / "slow.yml", "slow")
    twice = command(*BOTH, str(latest), cwd=here)
    assert twice.returncode == 2
    assert f"experiments/slow and {latest} are the same run" in twice.stderr
    missing = command(*BOTH, "experiments/lost", cwd=here)
    assert missing.returncode == 2
    assert "experiments/lost does not exist" in missing.stderr
    alone = command("report", "experiments/slow", cwd=here)
    assert alone.returncode == 0, alone.stderr
    assert blocks(alone.stdout)[1].startswith("training, by plan")


def test_all_runs_of_a_folder(here: Path) -> None:
    done, as_json = command("report", "experiments", cwd=here), command("report", "experiments", "--json", cwd=here)
    assert (done.returncode, as_json.returncode) == (0, 0), done.stderr + as_json.stderr
    runs = json.loads(as_json.stdout)["runs"]
    latest = {name: run_directory(here / f"{name}.yml", name) for name in ("fast", "slow")}
    assert [run["path"] for run in runs] == [str(path.relative_to(here)) for path in latest.values()]
    for run, path in zip(runs, latest.values(), strict=True):
        assert (run["status"], run["steps"], run["samples"]) == ("completed", 12, 48)
        assert run["metrics"][0]["best"]["value"] == max(line["metrics"]["psnr"] for line in validations(str(path)))
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == f"    python -m trainauto report {runs[0]['path']}"
    assert [line.split()[1:5] for line in lines if line.startswith("  2")] == [["completed", "12", "100%", "psnr"]] * 2
