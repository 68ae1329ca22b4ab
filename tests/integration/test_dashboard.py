"""The page of real runs: written while they train, read back by the commands, served live (D17, D23, D48)."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import (
    command,
    environment,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.reporting.dashboard.page_file import page_in
from trainauto.storage.run_directory import RunDirectory

Write = Callable[..., Path]

ROOT = Path(__file__).parents[2]


def blocks(page: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {block["id"]: block for section in page["sections"] for block in section["blocks"]}


def untimed(page: dict[str, Any]) -> dict[str, Any]:
    """Return a page without what logs have of less than a microsecond, and when it was written."""
    found = {ident: block for ident, block in blocks(page).items() if block.get("unit") not in ("rate", "seconds")}
    for event in found["events"]["items"] if "events" in found else ():
        event["time"] = None
    tiles = [{**tile, "value": None, "note": None} if tile["label"] == "speed" else tile for tile in page["tiles"]]
    return {**page, "written": 0.0, "tiles": tiles, "sections": [list(found), found]}


def samples_per_s(page: dict[str, Any]) -> float:
    (speed,) = (tile["value"] for tile in page["tiles"] if tile["label"] == "speed")
    return float(speed.removesuffix(" samples/s").replace(",", ""))


@pytest.fixture
def options(tmp_path: Path, write_images: Write) -> Path:
    return write_options(tmp_path / "tiny.yml", tiny_options(write_images("gt", 2)))


def test_the_page_of_a_run_says_what_its_logs_say(options: Path) -> None:
    assert train(options).returncode == 0
    run = run_directory(options)
    page = page_in(run / "dashboard.html")
    found, steps = blocks(page), step_records(run)
    assert page["status"]["word"] == "completed"
    assert page["grid"] == [record["step"] for record in steps]
    assert found["loss"]["series"][0]["y"] == [pytest.approx(sum(r["losses"].values()), rel=1e-5) for r in steps]
    assert found["rate"]["series"][0]["y"] == [pytest.approx(r["lr"]["g"], rel=1e-5) for r in steps]
    assert found["memory"]["series"][0]["y"] == [pytest.approx(r["peak"]["allocated"], rel=1e-5) for r in steps]
    assert ["scale", "2", "4"] in found["changed"]["rows"]
    assert {"torch", "Python", "processor"} <= {label for label, _ in found["environment"]["rows"]}
    shown = found["pictures"]["sets"][0]
    assert shown["steps"] == [6, 12]
    assert all((run / file).is_file() for file in shown["files"])
    assert shown["baseline"] is not None
    assert shown["reference"] is not None

    # What is made of the logs later is what the run itself has written, but for when.
    done = command("report", "experiments/tiny", "--html", "--out", "again.html", cwd=options.parent)
    assert (done.returncode, done.stdout) == (0, "again.html\n")
    again = page_in(options.parent / "again.html")
    assert untimed(again) == untimed(page)
    assert samples_per_s(again) == pytest.approx(samples_per_s(page), rel=0.01)


def test_a_resumed_run_has_one_page(options: Path) -> None:
    assert train(options, "--force_yml", "train:total_iter=8").returncode == 0
    assert train(options, "--auto_resume").returncode == 0
    page = page_in(run_directory(options) / "dashboard.html")
    found = blocks(page)
    assert page["grid"] == list(range(1, 13))
    assert found["pictures"]["sets"][0]["steps"] == [6, 8, 12]
    (resume,) = [item for item in found["events"]["items"] if item["kind"] == "resume"]
    assert (resume["step"], resume["text"]) == (8, "train.total_iter: 8 -> 12")


def test_two_runs_have_a_page_together(options: Path) -> None:
    for name in ("slow", "fast"):
        assert train(options, "--force_yml", f"name={name}").returncode == 0
    done = command("report", "experiments/slow", "experiments/fast", "--html", cwd=options.parent)
    assert (done.returncode, done.stdout) == (0, "comparison.html\n")
    page = page_in(options.parent / "comparison.html")
    assert page["title"] == "slow against fast"
    assert [one["name"] for one in blocks(page)["loss"]["series"]] == ["slow", "fast"]


def test_a_run_is_served_while_it_trains(options: Path) -> None:
    assert train(options, "--force_yml", "train:total_iter=6").returncode == 0
    run = run_directory(options)
    line = [sys.executable, "-m", "trainauto", "report", "experiments/tiny", "--serve", "--port", "0"]
    served = subprocess.Popen(
        line, cwd=options.parent, env={**environment(), "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert served.stdout is not None
        address = served.stdout.readline().split()[0]
        before = json.load(urllib.request.urlopen(f"{address}data.json"))
        assert before["grid"] == list(range(1, 7))
        assert before["status"]["word"] == "completed"
        line = json.loads((run / "training_log.jsonl").read_text().splitlines()[-1])
        with (run / "training_log.jsonl").open("a") as file:
            file.write(json.dumps({**line, "step": 7}) + "\n")
        written_s = time.monotonic()
        while json.load(urllib.request.urlopen(f"{address}data.json"))["grid"][-1] != 7:
            assert time.monotonic() - written_s < 2
            time.sleep(0.05)
        files = sorted(file.name for file in run.iterdir())
        served.send_signal(signal.SIGINT)
        said, errors = served.communicate(timeout=20)
    finally:
        served.kill()
    assert (served.returncode, errors) == (0, "")
    assert "the run is left as it is" in said
    assert sorted(file.name for file in run.iterdir()) == files


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none", "--html"], "does not exist"),
        (["none", "--serve"], "does not exist"),
        (["tiny", "--html", "--out", "nowhere/page.html"], "there is no folder nowhere Make it first"),
        (["tiny", "--html", "--out", "experiments"], "experiments is a folder Name a file in it"),
        (["tiny", "--html", "--out", "/dev/null"], "/dev/null is no file"),
        (["", "--serve"], "has several runs"),
        (["tiny", "--serve", "--port", "70000"], "port 70000 cannot be listened to"),
        (["tiny", "--port", "6010"], "add --serve"),
        (["tiny", "--out", "page.html"], "add --html"),
        (["tiny", "--open"], "add one of them"),
        (["tiny", "--html", "--list"], "--list prints a table"),
        (["tiny", "--html", "--json"], "not allowed with"),
    ],
)
def test_what_cannot_be_shown_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    run = RunDirectory.create(tmp_path / "experiments", "tiny")
    run.write_config({"name": "tiny"})
    done = command("report", f"experiments/{words[0]}", *words[1:], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


def test_a_folder_with_an_odd_name_is_told_as_text(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "exp\x1b[31m", "tiny")
    run.write_config({"name": "tiny"})
    done = command("report", "exp\x1b[31m/tiny", "--html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert r"exp\x1b[31m/tiny" in done.stdout
