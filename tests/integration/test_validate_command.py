"""A rehearsal of a run: what it says of good and of bad input, and that nothing of it stays."""

from collections.abc import Callable
from pathlib import Path

import cv2
import pytest

from tests.integration.commands import tiny_options, write_options
from trainauto.cli import main
from trainauto.commands.dry_run import DryRun
from trainauto.core.errors import InputError
from trainauto.options.load import load_options
from trainauto.options.schema import Options

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of 80 columns, and a folder for temporary files of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def files_below(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if not file.is_dir()}


def test_a_good_file_is_trained_and_nothing_stays(
    here: Path, write_images: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainauto.commands.run_validate.TELL_EVERY_S", 0.05)
    controller = {"DynamicBatchSizeOptimizer": {"min_lq_size": 16, "max_batch_size": 8, "target_vram_usage": 0.8}}
    val = write_images("val", 2)
    large = str(val / "image_001.png")
    cv2.imwrite(large, cv2.resize(cv2.imread(large), (200, 180)))
    options = tiny_options(
        write_images("gt", 3),
        datasets={"train": {"num_worker_per_gpu": 2}, "val": {"dataroot_gt": str(val)}},
        memory={"budget": "200MiB"},
        training_automations=controller,
    )
    file = write_options(here / "run.yml", options)
    before = files_below(here)
    assert main(["validate", "-opt", "run.yml", "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    assert files_below(here) == before
    assert not list((here / "temporary").iterdir())
    assert not (here / "experiments").exists()
    assert file.exists()
    assert max(len(line) for line in printed.splitlines()) <= 80
    flat = " ".join(printed.split())
    for words in (
        "the run is being built, for ",
        "running 2 steps, then",
        "validation are running, for ",
        "train 3, val 2",
        "image of 32 px",
        "compact x2",
        "gradient norm",
        "of 200.0 MiB; predicted",
    ):
        assert words in flat, printed
    for beginning in (
        "step 1 ",
        "step 2 ",
        "validation  val/image_001 in",  # the largest
        "checkpoint ",
        "controller  step 1: plan ->",
    ):
        assert f"\n{beginning}" in printed
    assert "step 3" not in printed


def test_a_budget_that_nothing_fits_into_says_what_to_do(
    here: Path, write_images: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    network = {"type": "rrdbnet", "num_block": 2}
    write_options(here / "run.yml", tiny_options(write_images("gt", 2), memory={"budget": "1MiB"}, network_g=network))
    assert main(["validate", "-opt", "run.yml"]) == 1
    printed = capsys.readouterr()
    # What fails first, forward or the optimizer's step, is a matter of what the process held before.
    assert "does not fit" in printed.err or "ran out of memory in its step" in printed.err
    assert "a smaller network" in printed.err
    assert "can be trained" not in printed.out
    assert not list((here / "temporary").iterdir())


def test_an_image_whose_header_alone_is_whole(here: Path, write_images: Write) -> None:
    gt = write_images("gt", 1)
    whole = (gt / "image_000.png").read_bytes()
    (gt / "image_000.png").write_bytes(whole[:200] + bytes(60) + whole[260:])
    rehearsal = DryRun(
        load_options(write_options(here / "run.yml", tiny_options(gt, val={"val_enabled": False}))).of(Options),
        here / "a",
    )
    with pytest.raises(InputError, match=r"cannot decode image .*image_000\.png"):
        rehearsal.train(1)


def test_what_building_finds_is_found(here: Path, write_images: Write) -> None:
    gt = write_images("gt", 2)
    (gt / "image_001.png").write_bytes(b"no image")
    file = write_options(here / "run.yml", tiny_options(gt))
    with pytest.raises(InputError, match=r"image_001\.png"):
        DryRun(load_options(file).of(Options), here / "elsewhere")
    with pytest.raises(InputError, match="enlarges none"):
        DryRun(load_options(file, ["network_g:type=unetdiscriminatorsn"]).of(Options), here / "elsewhere")
    assert not (here / "elsewhere").exists()


def test_a_place_for_runs_that_is_a_file(here: Path, write_images: Write, capsys: pytest.CaptureFixture[str]) -> None:
    options = tiny_options(write_images("gt", 2), path={"experiments_root": "run.yml"})
    write_options(here / "run.yml", options)
    assert main(["validate", "-opt", "run.yml"]) == 2
    assert "cannot be made" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--steps", "0"], ["--force_yml", "train:total_itr=3"]])
def test_broken_input(here: Path, write_images: Write, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_options(here / "run.yml", tiny_options(write_images("gt", 1)))
    assert main(["validate", "-opt", "run.yml", *words]) == 2
    assert words[1].split("=")[0].split(":")[-1] in capsys.readouterr().err
