"""A JPEG whose middle is damaged: named in the log of a run, refused where all images are decoded before."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.commands import run_directory, tiny_options, train, write_options
from tests.unit.tasks.sr.data.test_damaged_images import damage_middle
from trainauto.cli import main


@pytest.fixture
def options(tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    gt = write_images("gt", 3, (160, 200), suffix=".jpg")
    damage_middle(gt / "image_001.jpg")
    monkeypatch.chdir(tmp_path)
    workers = {"train": {"num_worker_per_gpu": 1}, "val": {"dataroot_gt": str(gt / "image_000.jpg")}}
    return write_options(tmp_path / "run.yml", tiny_options(gt, datasets=workers))


def test_it_is_named_in_the_log_of_the_run(options: Path) -> None:
    done = train(options)
    assert done.returncode == 0, done.stderr
    said = " ".join((run_directory(options) / "training.log").read_text().split())
    assert said.count("image_001.jpg is damaged, its pixels may be wrong from some row on (Corrupt JPEG data") == 1
    assert "Corrupt JPEG data" not in done.stderr


def test_it_is_refused_where_all_are_decoded(options: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-opt", options.name, "--decode"]) == 2
    assert "image_001.jpg is damaged: Corrupt JPEG data" in " ".join(capsys.readouterr().err.split())
    done = train(options, "--force_yml", "datasets:train:decode_all=true")
    assert done.returncode == 2
    assert "dataset 'train'" in done.stderr
    assert "image_001.jpg is damaged: Corrupt JPEG data" in " ".join(done.stderr.split())
    assert not (options.parent / "experiments").exists()
