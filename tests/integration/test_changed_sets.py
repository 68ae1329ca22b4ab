"""Sets whose files have changed when a run resumes: it keeps what it began with, or takes the new ones when told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.integration.begun_runs import MORE, copied, trained_in, words_of
from tests.integration.commands import (
    Ended,
    command,
    latest_weights,
    run_directory,
    step_records,
    train,
    write_options,
)
from tests.integration.text_runs import text_options, write_texts

Write = Callable[..., Path]
IMAGES = 5


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, photograph: np.ndarray) -> Path:
    changes = {"datasets": {"val": {"dataroot_gt": "gt/image_002.png"}}, "val": {"val_freq": 100}}
    return trained_in(tmp_path_factory.mktemp("trained"), photograph, IMAGES, **changes)


@pytest.fixture
def begun(trained: Path, tmp_path: Path) -> Path:
    """Return the option file of a run of 12 steps, which is within the tenth epoch."""
    return copied(trained, tmp_path / "run")


def resumed(file: Path, *more: str) -> Ended:
    return train(file, "--auto_resume", *more, *MORE)


def test_a_new_image_is_left_out_until_it_is_accepted(begun: Path) -> None:
    as_it_was = copied(begun, begun.parent.parent / "as_it_was")
    gt = begun.parent / "gt"
    shutil.copy(gt / "image_000.png", gt / "image_000b.png")
    done = resumed(begun)
    assert done.returncode == 0, done.stderr
    assert "continues with the files that the run began with. 1 added: image_000b.png." in words_of(done)
    assert resumed(as_it_was).returncode == 0
    assert latest_weights(run_directory(begun)) == latest_weights(run_directory(as_it_was))
    kept = json.loads((run_directory(begun) / "samples.json").read_text())["train"]
    assert kept["names"] == [f"image_{number:03d}.png" for number in range(IMAGES)]
    assert kept["bytes"] == [(gt / name).stat().st_size for name in kept["names"]]


def test_a_renamed_image_is_refused_by_name_and_accepted_when_told(begun: Path) -> None:
    gt, run = begun.parent / "gt", run_directory(begun)
    (gt / "image_001.png").rename(gt / "a.png")
    refused = resumed(begun)
    assert refused.returncode == 2
    assert "1 renamed: image_001.png is now a.png" in refused.stderr
    assert "--accept_samples" in refused.stderr
    done = resumed(begun, "--accept_samples")
    assert done.returncode == 0, done.stderr
    assert "an epoch begins with them" in words_of(done)
    assert [step["first_sample"] for step in step_records(run)][11:14] == [44, 50, 54]  # epochs of five images
    assert "changed since this run was last started: dataset 'train': 1 renamed" in (run / "training.log").read_text()
    assert (
        train(begun, "--auto_resume", "--force_yml", "train:total_iter=16").returncode == 0
    )  # without saying it again
    assert [step["first_sample"] for step in step_records(run)][-1] == 50 + 3 * 4
    refused = command("replay", "experiments/tiny", cwd=begun.parent)
    assert refused.returncode == 2
    assert "from step 13 on the run was trained with other samples" in refused.stderr
    assert "--until 12" in refused.stderr
    shutil.copy(gt / "image_000.png", gt / "new.png")
    refused = command("replay", "experiments/tiny", "--until", "12", cwd=begun.parent)
    assert "1 renamed: image_001.png is now a.png" in refused.stderr
    assert "new.png" not in refused.stderr  # what is new has no part in steps of then


def test_a_checkpoint_from_before_new_samples_were_accepted_begins_an_epoch(begun: Path) -> None:
    """What is gone back to after a kill, or by a rollback, needs no further word."""
    gt, run = begun.parent / "gt", run_directory(begun)
    (gt / "image_001.png").unlink()
    assert "1 removed: image_001.png" in resumed(begun).stderr
    before = begun.parent / "before"
    shutil.copytree(run / "checkpoints", before)
    assert resumed(begun, "--accept_samples").returncode == 0
    shutil.rmtree(run / "checkpoints")
    before.rename(run / "checkpoints")
    done = resumed(begun)
    assert done.returncode == 0, done.stderr
    assert [step["first_sample"] for step in step_records(run)][12] == 48  # 12 epochs of four images


def test_a_run_of_before_keeps_what_its_version_read(begun: Path, write_images: Write) -> None:
    as_it_was = copied(begun, begun.parent.parent / "as_it_was")
    gt = begun.parent / "gt"
    (gt / "more").symlink_to(write_images("elsewhere", 1))
    shutil.copy(gt / "image_000.png", gt / "image_000.jfif")
    (run_directory(begun) / "samples.json").unlink()
    done = resumed(begun)
    assert done.returncode == 0, done.stderr
    assert "2 newly readable: image_000.jfif, more/image_000.png" in words_of(done)
    assert resumed(as_it_was).returncode == 0
    assert latest_weights(run_directory(begun)) == latest_weights(run_directory(as_it_was))
    assert len(json.loads((run_directory(begun) / "samples.json").read_text())["train"]["names"]) == IMAGES


def test_a_run_of_before_whose_names_differ_says_so(begun: Path) -> None:
    gt, run = begun.parent / "gt", run_directory(begun)
    (run / "samples.json").unlink()
    shutil.copy(gt / "image_000.png", gt / "image_9.png")
    refused = resumed(begun)
    assert refused.returncode == 2
    assert "has 6 samples, the run began with 5" in words_of(refused)
    assert resumed(begun, "--accept_samples").returncode == 0


def test_a_replaced_image_is_named(begun: Path) -> None:
    gt = begun.parent / "gt"
    shutil.copy(gt / "image_001.png", gt / "image_000.png")
    done = resumed(begun)
    assert done.returncode == 0
    assert "1 of another size: image_000.png" in words_of(done)


def test_validation_images_that_are_gone_are_said(begun: Path, write_images: Write) -> None:
    val = write_images("val", 2)
    more = ("--force_yml", "train:total_iter=13", f"datasets:val:dataroot_gt={val}")
    assert train(begun, "--auto_resume", *more).returncode == 0
    (val / "image_000.png").unlink()
    more = ("--force_yml", "train:total_iter=14", f"datasets:val:dataroot_gt={val}")
    done = train(begun, "--auto_resume", *more)
    assert done.returncode == 0
    assert "scores before and after do not compare: 1 removed: image_000.png" in words_of(done)


def test_accepting_needs_a_resume(begun: Path) -> None:
    refused = train(begun, "--accept_samples")
    assert refused.returncode == 2
    assert "Add --auto_resume." in refused.stderr


def test_texts_that_have_changed_are_named_and_accepted(tmp_path: Path) -> None:
    texts = write_texts(tmp_path)
    file = write_options(tmp_path / "run.yml", text_options(texts, train={"total_epochs": 2}))
    assert train(file).returncode == 0
    last = step_records(run_directory(file))[-1]
    texts.write_text(texts.read_text() + "\nthe red dog ran home")
    more = ("--auto_resume", "--force_yml", "train:total_epochs=3")
    refused = train(file, *more)
    assert refused.returncode == 2
    assert "texts.txt" in refused.stderr
    assert "--accept_samples takes them as they are" in words_of(refused)
    done = train(file, "--accept_samples", *more)
    assert done.returncode == 0, done.stderr
    assert "an epoch begins with them" in words_of(done)
    first = next(step for step in step_records(run_directory(file)) if step["step"] == last["step"] + 1)
    assert first["first_sample"] == 2 * 73  # 72 texts twice lie behind, and 73 are an epoch
