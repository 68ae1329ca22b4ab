"""Automations that go by what a run comes to, in runs of option files: decided, kept, resumed, replayed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import (
    command,
    gan_options,
    latest_weights,
    run_directory,
    step_records,
    tiny_options,
    train,
    write_options,
)
from trainauto.automations.stop_file import STOP_FILE

Write = Callable[..., Path]

TOUCHES = f"""
from pathlib import Path
from trainauto.automations import AUTOMATIONS, Automation
@AUTOMATIONS.register("TouchesFile")
class TouchesFile(Automation):
    priority = 1
    def on_run_start(self, facts):
        self.folder = Path(facts.folder)
    def on_step_end(self, record):
        if record.step == 7:
            (self.folder / "{STOP_FILE}").touch()
"""


def decisions_of(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_each_optimizer_of_a_gan_is_clipped_at_its_own_norms_through_resume_and_replay(
    tmp_path: Path, write_images: Write
) -> None:
    clipping = {"AdaptiveGradientClipping": {"warmup_steps": 4, "percentile": 50.0}}
    still = {"val": {"val_enabled": False, "metrics": {}}, "training_automations": clipping}
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 3), **gan_options(**still)))
    assert train(file).returncode == 0
    whole = run_directory(file)
    lines = decisions_of(whole, "clip_at")
    assert [(line["step"], line["pass_name"]) for line in lines] == [(4, "g"), (5, "d")]
    assert lines[0]["max_norm"] != lines[1]["max_norm"]
    unclipped = write_options(
        tmp_path / "other.yml", tiny_options(tmp_path / "gt", name="other", **gan_options(**still))
    )
    assert train(unclipped, "--force_yml", "training_automations={}").returncode == 0
    losses = [[record["losses"] for record in step_records(run)] for run in (whole, run_directory(unclipped, "other"))]
    assert losses[0][:4] == losses[1][:4]
    assert losses[0][-1] != losses[1][-1], "what was decided changes what is learned"

    halves = ["name=halves", "train:total_iter=6"]
    assert train(file, "--force_yml", *halves).returncode == 0
    assert train(file, "--auto_resume", "--force_yml", "name=halves").returncode == 0
    assert latest_weights(run_directory(file, "halves")) == latest_weights(whole)
    assert command("replay", str(whole), cwd=tmp_path).returncode == 0
    assert latest_weights(run_directory(file, "tiny_replay")) == latest_weights(whole)


def test_a_stop_file_ends_a_run_and_a_resume_goes_on(tmp_path: Path, write_images: Write) -> None:
    (tmp_path / "touches.py").write_text(TOUCHES)
    stops = {"plugins": ["touches"], "training_automations": {"TouchesFile": {}, "StopFile": {}}}
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 3), **stops))
    stopped = train(file)
    assert stopped.returncode == 0, stopped.stderr
    assert "STOP_TRAINING requested it after step 7" in " ".join(stopped.stdout.split())
    run = run_directory(file)
    assert len(step_records(run)) == 7
    assert not (run / STOP_FILE).exists()
    (line,) = decisions_of(run, "stop")
    assert (line["step"], line["termination"]) == (7, "user_stop")
    assert train(file, "--auto_resume").returncode == 0
    assert len(step_records(run)) == 12
    assert command("replay", str(run), cwd=tmp_path).returncode == 0
    assert latest_weights(run_directory(file, "tiny_replay")) == latest_weights(run)


def test_a_run_that_gets_no_better_ends_and_its_page_says_why(tmp_path: Path, write_images: Write) -> None:
    """A rate of nothing: no validation is better than the first."""
    stopping = {"IntelligentEarlyStopping": {"monitor_metric": "val/psnr", "patience": 2}}
    options = tiny_options(
        write_images("gt", 3),
        train={"optim_g": {"type": "SGD", "lr": 1e-30}},
        val={"val_freq": 2},
        training_automations=stopping,
    )
    file = write_options(tmp_path / "run.yml", options)
    assert train(file).returncode == 0
    run = run_directory(file)
    (line,) = decisions_of(run, "stop")
    assert (line["step"], line["termination"]) == (6, "auto_no_improvement")
    assert line["reason"].startswith("val/psnr has not improved in 2 validations: best ")
    assert "after step 2, now" in line["reason"]
    assert train(file, "--auto_resume").returncode == 0
    assert len(step_records(run)) == 6
    longer = "training_automations:IntelligentEarlyStopping:patience=4"
    assert train(file, "--auto_resume", "--force_yml", longer).returncode == 0
    assert len(step_records(run)) == 10, "it goes on counting"
    assert command("report", str(run), "--html", cwd=tmp_path).returncode == 0
    assert "val/psnr has not improved in 4 validations" in (run / "dashboard.html").read_text()


QUARTERS = """
from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import ClipAt, RateFactor
@AUTOMATIONS.register("Quarters")
class Quarters(Automation):
    def on_step_end(self, record):
        return {2: RateFactor(0.25, "less"), 3: ClipAt(1e-3, "spikes", pass_name="g")}.get(record.step)
"""


def test_what_an_automation_decided_ends_with_it_and_a_replay_follows(tmp_path: Path, write_images: Write) -> None:
    (tmp_path / "quarters.py").write_text(QUARTERS)
    options = tiny_options(
        write_images("gt", 3), plugins=["quarters"], training_automations={"Quarters": {}}, val={"val_enabled": False}
    )
    file = write_options(tmp_path / "run.yml", options)
    assert train(file, "--force_yml", "train:total_iter=6").returncode == 0
    resumed = train(file, "--auto_resume", "--force_yml", "training_automations={}")
    assert resumed.returncode == 0, resumed.stderr
    assert "Quarters is no longer among the automations, so its decisions are undone" in " ".join(
        (resumed.stdout + resumed.stderr).split()
    )
    run = run_directory(file)
    rates = {record["step"]: record["lr"]["g"] for record in step_records(run)}
    assert rates[6] == pytest.approx(rates[1] / 4)
    assert rates[7] == pytest.approx(rates[1])
    ended = [(line["step"], line["early"], line["factor"]) for line in decisions_of(run, "rate_factor")]
    assert ended == [(2, False, 0.25), (7, True, 1.0)]
    (clipped, unclipped) = decisions_of(run, "clip_at")
    assert (clipped["by"], clipped["max_norm"]) == ("Quarters", 1e-3)
    assert (unclipped["step"], unclipped["pass_name"], "by" in unclipped) == (7, "g", False)
    assert command("replay", str(run), cwd=tmp_path).returncode == 0
    assert latest_weights(run_directory(file, "tiny_replay")) == latest_weights(run)


@pytest.mark.parametrize(
    ("arguments", "val", "words"),
    [
        ({"monitor_metric": "val/pnsr"}, {}, "no validation measures 'val/pnsr'"),
        ({}, {"val_enabled": False, "metrics": {}}, "needs validations, and this run makes none"),
        ({"patience": 0}, {}, "patience must be 1 validation or more, got 0"),
    ],
)
def test_what_cannot_be_is_found_before_the_run(
    tmp_path: Path, write_images: Write, arguments: Any, val: Any, words: str
) -> None:
    wrong = {"val": val, "training_automations": {"IntelligentEarlyStopping": arguments}}
    file = write_options(tmp_path / "run.yml", tiny_options(write_images("gt", 2), **wrong))
    refused = train(file)
    assert refused.returncode == 2
    assert words in " ".join(refused.stderr.split())
    assert not (tmp_path / "experiments").exists()
