"""What a run is warned of when it begins is said once: its resumes and its replay do not repeat it."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from tests.integration.commands import Ended, command, run_directory, tiny_options, train, write_options

SHORT_AVERAGE = "ema_decay 0.999 averages weights over about 1000 steps"
DEEP = "16 bits are reduced to 8: 1 of the images in "


def warnings_in(ended: Ended) -> list[str]:
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stdout.split())
    return [one for one in (SHORT_AVERAGE, DEEP) for _ in range(said.count(one))]


def test_warnings_of_a_start_are_given_once(
    tmp_path: Path, write_images: Callable[..., Path], photograph: np.ndarray
) -> None:
    gt = write_images("gt", 2)
    cv2.imwrite(str(gt / "deep.png"), photograph[:64, :80].astype(np.uint16) * 257)
    options = tiny_options(gt, train={"total_iter": 4}, val={"val_freq": 4}, logger={"save_checkpoint_freq": 2})
    file = write_options(tmp_path / "run.yml", options)
    assert warnings_in(train(file)) == [SHORT_AVERAGE, DEEP]
    run = run_directory(file)
    # The log has them of each start; what has changed is news.
    resumed = train(file, "--auto_resume", "--force_yml", "train:total_iter=6")
    assert warnings_in(resumed) == [SHORT_AVERAGE]
    assert "this run has 6" in " ".join(resumed.stdout.split())
    again = train(file, "--auto_resume", "--force_yml", "train:total_iter=6", "manual_seed=3", "logger:print_freq=1")
    assert warnings_in(again) == []
    log = (run / "training.log").read_text()
    assert log.count(SHORT_AVERAGE) == log.count(DEEP) == 3
    replayed = command("replay", str(run), cwd=tmp_path)
    assert warnings_in(replayed) == []
    of_replay = (run_directory(file, "tiny_replay") / "training.log").read_text()
    assert of_replay.count(SHORT_AVERAGE) >= 2, "it has parts, of which each is a start"
    # Somebody else's run of the same images is warned again.
    assert warnings_in(train(file)) == [SHORT_AVERAGE, DEEP]
