"""Two commands that would train one run: the second is refused before it touches anything (kill -9 included)."""

import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.commands import run_directory, started, step_records, tiny_options, train, write_options
from tests.integration.test_elastic import wait_for_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a killed process is known by /proc")

SLOW = Path(__file__).parents[1] / "assets" / "plugins" / "slow.py"


def test_a_second_resume_is_refused_and_a_killed_one_is_no_obstacle(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    shutil.copy(SLOW, tmp_path)
    slow = {"plugins": ["slow"], "training_automations": {"Slow": {"seconds": 0.05}}}
    gt = write_images("gt", 3)
    options = write_options(tmp_path / "run.yml", tiny_options(gt, train={"total_iter": 5}, **slow))
    assert train(options).returncode == 0
    run = run_directory(options)

    longer = write_options(tmp_path / "longer.yml", tiny_options(gt, train={"total_iter": 2000}, **slow))
    first = started(longer, "--auto_resume")
    wait_for_steps(run / "training_log.jsonl", 12)
    before = {file: file.read_bytes() for file in (*run.glob("*.jsonl"), *run.glob("owner_*"))}
    second = train(longer, "--auto_resume")
    assert second.returncode == 2, second.stderr
    for words in (f"{run.name} is in use by process {first.pid} on ", ", since 20", "without --auto_resume"):
        assert words in second.stderr
    assert "Traceback" not in second.stderr
    assert len(before) >= 2
    for file, was in before.items():
        assert file.read_bytes().startswith(was), f"{file.name} was cut or written anew"

    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    done = train(options, "--auto_resume", "--force_yml", "train:total_iter=15")
    assert done.returncode == 0, done.stderr
    steps = [record["step"] for record in step_records(run)]
    assert steps == list(range(1, len(steps) + 1))
    assert train(options, "--auto_resume").returncode == 0, "given back at its end"
