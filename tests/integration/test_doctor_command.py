"""The doctor on this machine: what it prints, what it finds wrong with a run, and that it leaves nothing behind."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import tiny_options, write_options
from trainauto.cli import main

Write = Callable[..., Path]


def test_this_machine_in_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "run.yml").write_text("name: x\nscale: four\n")
    assert main(["doctor", "-opt", "run.yml"]) == 1
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    for name in (
        "Python",
        "packages",
        "torch build",
        "driver",
        "traces",
        "budget",
        "host name",
        "memory",
        "cores",
        "ulimit",
    ):
        assert f"  {name}" in printed
    assert "broken  options       run.yml" in printed
    assert "scale: four" in printed
    assert "Traceback" not in printed
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.yml"]


@only_in_acceptance
@pytest.mark.usefixtures("children_covered")
def test_a_run_with_a_damaged_image(
    tmp_path: Path, write_images: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gt = write_images("gt", 3)
    whole = (gt / "image_001.png").read_bytes()
    (gt / "image_001.png").write_bytes(whole[:200] + bytes(60) + whole[260:])
    write_options(
        tmp_path / "run.yml", tiny_options(gt, datasets={"train": {"num_worker_per_gpu": 2}}, train={"ema_decay": 0})
    )
    assert main(["doctor", "-opt", "run.yml", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    by_name = {finding["name"]: finding for finding in answer["findings"]}
    assert by_name["run"]["state"] == "ok"
    assert by_name["reading"]["state"] == "broken"
    assert "image_001.png" in by_name["reading"]["fact"]
    assert "5 batches under way" in by_name["/dev/shm"]["fact"]
    assert answer["counts"]["broken"] >= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gt", "run.yml"]
