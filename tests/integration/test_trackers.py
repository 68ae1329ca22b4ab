"""Runs that tell experiment trackers: what the real packages hold afterwards, beside the run's own files.

They are extras: what is not installed is skipped. Nothing here leaves the machine.
"""

import csv
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import command, merged, run_directory, step_records, tiny_options, train, write_options
from tests.integration.finetune_runs import finetune_options, write_chats, write_model
from tests.integration.multitask_runs import multitask_options
from tests.integration.tracker_stores import (
    Curves,
    mlflow_run,
    trackio_curves,
    trackio_rows,
    wandb_config,
    wandb_curves,
    wandb_decisions,
    wandb_exit_code,
    wandb_records,
    wandb_summary,
)
from tests.unit.reporting.builders import a_progress, a_step, a_summary, a_validation
from tests.unit.reporting.trackers.listening import listening
from trainauto.core.decisions import PlanChange, RateFactor
from trainauto.core.plan import Plan
from trainauto.core.run_events import RunEnd
from trainauto.reporting.reporter import Reporter
from trainauto.reporting.trackers.mlflow_tracker import MlflowTracker
from trainauto.reporting.trackers.sink import Trackers
from trainauto.reporting.trackers.tracker import End, Event, Point, TrackedRun, Tracker
from trainauto.reporting.trackers.tracker_ids import TrackerIds
from trainauto.reporting.trackers.trackio_tracker import TrackioTracker
from trainauto.reporting.trackers.wandb_tracker import WandbTracker
from trainauto.storage.run_directory import RunDirectory

ROOT = Path(__file__).parents[2]
HOSTILE = "<script>alert(1)</script>]]>/../../\x1b[31m\u202eemoji\U0001f600\n" + "x" * 300


def needs(package: str) -> pytest.MarkDecorator:
    found = find_spec(package)
    return pytest.mark.skipif(found is None or found.origin is None, reason=f"{package} is not installed")


pytestmark = pytest.mark.filterwarnings("ignore")  # of packages that are not ours


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give trackers a home of their own."""
    for name, value in {
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CONFIG_DIR": str(tmp_path / "wandb-config"),
        "WANDB_CACHE_DIR": str(tmp_path / "wandb-cache"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "online",  # the file decides, and nothing else
        "TRACKIO_SPACE_ID": "somebody/elsewhere",
        "TRACKIO_WEBHOOK_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    if needs("trackio").args[0] is False:
        import trackio
        from trackio import bucket_storage, fragments, sqlite_storage, utils

        for module in (trackio, bucket_storage, sqlite_storage, utils):  # each has read the variable by now
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio", raising=False)
        assert fragments.utils is utils
    return tmp_path


def options_with(gt: Path, trackers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    steering = {"PlanSchedule": {"changes": [{"step": 4, "lq_size": 16, "batch_size": 2}]}}
    return tiny_options(gt, **merged({"logger": trackers, "training_automations": steering}, changes))


def trained_and_resumed(file: Path) -> tuple[Path, Path]:
    """Train 12 steps, resume for 12 more; return the folder of runs and the run's own."""
    first = train(file)
    assert first.returncode == 0, first.stderr
    assert "warning: wandb" not in first.stdout
    again = train(file, "--auto_resume", "--force_yml", "train:total_iter=24")
    assert again.returncode == 0, again.stderr
    for text in (first.stdout, again.stdout):
        assert "left out" not in text
        assert "tried again" not in text
    return file.parent / "experiments", run_directory(file)


def means(run: Path, name: str, every: int, *key: str) -> list[tuple[int, Any]]:
    """Return means over windows of steps, as the log of steps has them."""
    values: list[float] = []
    points = []
    for record in step_records(run):
        value: Any = record
        for part in key:
            value = value[part]
        values.append(value)
        if record["step"] % every == 0:
            points.append((record["step"], pytest.approx(sum(values) / len(values), rel=1e-5, abs=2e-6)))
            values = []
    assert points, name
    return points


def psnr(run: Path) -> list[tuple[int, Any]]:
    lines = [json.loads(line) for line in (run / "validation.jsonl").read_text().splitlines()]
    return [(line["step"], pytest.approx(line["metrics"]["psnr"], rel=1e-6)) for line in lines]


def check_curves(curves: Curves, run: Path) -> None:
    assert curves["loss/l1loss"] == means(run, "loss", 4, "losses", "l1loss")
    assert curves["loss/total"] == means(run, "loss", 4, "losses", "l1loss")
    assert curves["speed/step_s"] == means(run, "time", 4, "step_s")
    assert curves["lr/g"] == [(step, pytest.approx(1e-3)) for step in range(4, 25, 4)]
    assert curves["plan/batch_size"][0] == (4, 4)
    assert curves["plan/batch_size"][-1] == (24, 2)
    assert curves["events/ooms"] == [(step, 0) for step in range(4, 25, 4)]
    assert [step for step, value in curves["events/adjustment"] if value] == [4]
    assert curves["progress/samples"][-1][1] == sum(record["samples"] for record in step_records(run))
    assert curves["validation/val/psnr"] == psnr(run)
    assert len(curves["validation/val/psnr_gain_over_bicubic"]) == 4
    peaks = [record["peak"]["allocated"] / 2**20 for record in step_records(run)]
    unit = "mib" if "memory/peak_mib" in curves else "gib"
    scale = 1 if unit == "mib" else 1024
    best = [max(peaks[start : start + 4]) / scale for start in range(0, 24, 4)]
    assert [value for _, value in curves[f"memory/peak_{unit}"]] == pytest.approx(best, rel=1e-6)


@needs("wandb")
def test_wandb_has_a_run_and_its_resume_under_one_id(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = options_with(write_images("gt", 3, (60, 60)), {"wandb": {"project": "demo"}})
    root, run = trained_and_resumed(write_options(tmp_path / "x.yml", options))
    folders = sorted((root / "wandb").glob("offline-run-*"))
    (run_id,) = {folder.name.rsplit("-", 1)[1] for folder in folders}
    assert len(folders) == 2
    assert json.loads((run / "trackers.json").read_text())["wandb"] == run_id
    curves: Curves = {}
    for folder in folders:
        for name, points in wandb_curves(folder).items():
            curves.setdefault(name, []).extend(points)
    check_curves(curves, run)
    for folder, length in zip(folders, (12, 24), strict=True):
        config = wandb_config(folder)
        assert config["train.total_iter"] == length
        assert config["train.losses.0.type"] == "l1loss"
        assert config["run.parameters"] > 1000
        assert wandb_summary(folder)["status"] == "completed"
        assert wandb_exit_code(folder) == 0
    (first, *_) = [record.run for record in wandb_records(folders[0]) if record.HasField("run")]
    assert (first.project, first.display_name) == ("demo", f"tiny {run.name}")
    decisions = wandb_decisions(folders[0])
    assert [row[:2] for row in decisions] == [[4, "plan"], [12, "end"]]
    assert "batch_size 2" in decisions[0][2]
    assert wandb_decisions(folders[1])[0] == [12, "resume", "resumed after step 12"]


@needs("mlflow")
def test_mlflow_goes_on_with_the_same_run(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = options_with(write_images("gt", 3, (60, 60)), {"mlflow": {"experiment": "demo"}})
    root, run = trained_and_resumed(write_options(tmp_path / "x.yml", options))
    kept = json.loads((run / "trackers.json").read_text())["mlflow"]
    found, curves = mlflow_run(root, kept["run_id"])
    check_curves(curves, run)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == f"tiny {run.name}"
    assert found.data.tags["reason"] == "training finished"
    assert found.data.params["train.losses.0.type"] == "l1loss"
    assert found.data.params["train.total_iter"] == "12"  # what a resume changes stands in its decisions
    assert len(found.data.params) > 50
    folder = root / "mlartifacts" / kept["run_id"] / "artifacts"
    first, second = (
        list(csv.reader((folder / name).read_text().splitlines()))
        for name in ("decisions.csv", "decisions_after_step_12.csv")
    )
    assert [row[:2] for row in first] == [["step", "kind"], ["4", "plan"], ["12", "end"]]
    assert ["12", "option", "train.total_iter: 12 -> 24"] in second
    assert ["12", "resume", "resumed after step 12"] in second
    assert not logging.getLogger("trainauto.builders").disabled
    assert "resumed" in (run / "training.log").read_text()


@needs("mlflow")
def test_a_run_that_was_deleted_in_mlflow_begins_anew_there(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    file = write_options(
        tmp_path / "x.yml", options_with(write_images("gt", 3, (60, 60)), {"mlflow": {"experiment": "demo"}})
    )
    assert train(file).returncode == 0
    run = run_directory(file)
    ids = json.loads((run / "trackers.json").read_text())
    ids["mlflow"]["run_id"] = "0" * 32
    (run / "trackers.json").write_text(json.dumps(ids))
    assert train(file, "--auto_resume", "--force_yml", "train:total_iter=24").returncode == 0
    kept = json.loads((run / "trackers.json").read_text())["mlflow"]["run_id"]
    found, curves = mlflow_run(file.parent / "experiments", kept)
    assert kept != "0" * 32
    assert found.data.params["train.total_iter"] == "24"
    assert [step for step, _ in curves["loss/total"]] == [16, 20, 24]


@needs("trackio")
def test_trackio_goes_on_with_the_same_run(tmp_path: Path, write_images: Callable[..., Path], at_home: Path) -> None:
    options = options_with(write_images("gt", 3, (60, 60)), {"trackio": {"project": "demo"}})
    file = write_options(tmp_path / "x.yml", options)
    _, run = trained_and_resumed(file)
    store = at_home / "trackio"
    check_curves(trackio_curves(store, "demo"), run)
    assert {row[0] for row in trackio_rows(store, "demo", "run_name", "metrics")} == {f"tiny {run.name}"}
    assert len({row[0] for row in trackio_rows(store, "demo", "run_id", "metrics")}) == 1
    (config,) = trackio_rows(store, "demo", "config", "configs")
    assert json.loads(config[0])["train.losses.0.type"] == "l1loss"
    alerts = trackio_rows(store, "demo", "step, title, text", "alerts")
    assert [alert[:2] for alert in alerts] == [(4, "plan"), (12, "end"), (12, "resume"), (24, "end")]
    assert "batch_size 2" in alerts[0][2]


@needs("trackio")
def test_what_trackio_says_stays_off_the_terminal(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    options = options_with(write_images("gt", 3, (60, 60)), {"trackio": {"project": "demo"}})
    ended = train(write_options(tmp_path / "x.yml", options))
    assert ended.returncode == 0
    assert "Trackio" not in ended.stdout + ended.stderr
    assert "trackio on this machine" in ended.stdout


@needs("trackio")
def test_a_replay_tells_nobody(tmp_path: Path, write_images: Callable[..., Path], at_home: Path) -> None:
    options = options_with(write_images("gt", 3, (60, 60)), {"trackio": {"project": "demo"}}, train={"total_iter": 4})
    file = write_options(tmp_path / "x.yml", options)
    assert train(file).returncode == 0
    ended = command("replay", "experiments/tiny", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "trackio" not in ended.stdout
    assert len({row[0] for row in trackio_rows(at_home / "trackio", "demo", "run_name", "metrics")}) == 1
    assert not RunDirectory.find(tmp_path / "experiments" / "tiny_replay").trackers.exists()


@needs("mlflow")
def test_a_fine_tuning_run_tells_its_trackers(tmp_path: Path) -> None:
    chats, model = write_chats(tmp_path / "chats.jsonl", 9), write_model(tmp_path / "model")
    options = finetune_options(model, chats, logger={"mlflow": {"experiment": "tuned"}})
    file = write_options(tmp_path / "x.yml", options)
    ended = train(file)
    assert ended.returncode == 0, ended.stderr
    run = RunDirectory.find(tmp_path / "training_output")
    kept = json.loads(run.trackers.read_text())["mlflow"]
    found, curves = mlflow_run(tmp_path / "training_output", kept["run_id"])
    assert found.data.params["training.learning_rate"] == "0.01"
    losses = [sum(record["losses"].values()) for record in step_records(run.path)]
    assert [value for _, value in curves["loss/total"]] == pytest.approx(losses, rel=1e-5)
    assert found.info.status == "FINISHED"


@needs("wandb")
def test_a_run_of_several_tasks_tells_its_trackers(tmp_path: Path) -> None:
    options = multitask_options(logger={"wandb": {"project": "tasks"}}, train={"total_epochs": 1})
    file = write_options(tmp_path / "x.yml", options)
    ended = train(file)
    assert ended.returncode == 0, ended.stderr
    run = run_directory(file)
    (folder,) = (tmp_path / "experiments" / "wandb").glob("offline-run-*")
    assert wandb_config(folder)["train.base_batch_size"] == 8
    assert wandb_curves(folder)["loss/total"][0][0] == 4
    assert json.loads((run / "trackers.json").read_text())["wandb"] in folder.name


def a_sink(tracker: Tracker, run: RunDirectory, ids: TrackerIds, longest_wait_s: float = 30.0) -> Trackers:
    return Trackers([tracker], run, ids, f"demo {run.path.name}", 1, longest_wait_s=longest_wait_s)


def a_hostile_run(make: Callable[[TrackerIds], Tracker], tmp_path: Path) -> tuple[RunDirectory, list[str]]:
    """Report a run whose every name and text is hostile; return its folder and what it was warned of."""
    run = RunDirectory.create(tmp_path / "runs", "demo")
    run.write_config({"name": HOSTILE, "plugin": {HOSTILE: HOSTILE, "address": "http://me:secret@host/x"}})
    ids = TrackerIds(run.trackers)
    with listening(logging.WARNING) as said, Reporter([a_sink(make(ids), run, ids)]) as reporter:
        reporter.start(a_summary(network=HOSTILE, samples={HOSTILE: 3}))
        losses = {HOSTILE: 1.0, "<script>": 2.0, "[script]": float("nan"), "": float("inf")}
        change = PlanChange(Plan.of(batch_size=2, lq_size=48), HOSTILE)
        reporter.step(a_step(1, losses=losses), [change, RateFactor(0.5, HOSTILE)], a_progress(1))
        reporter.validation(a_validation(1, dataset=HOSTILE, metrics={HOSTILE: 1.0}), [])
        reporter.end(RunEnd("failed", HOSTILE, a_progress(1)))
    return run, said


def all_below(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if "script" in file.name.lower()]


@needs("wandb")
def test_hostile_names_do_no_harm_in_wandb(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    _, said = a_hostile_run(lambda ids: WandbTracker("demo", root, ids, is_online=False), tmp_path)
    assert said == []
    (folder,) = (root / "wandb").glob("offline-run-*")
    assert wandb_exit_code(folder) == 1
    assert wandb_summary(folder)["status"] == "failed"
    curves = wandb_curves(folder)
    assert curves["loss/<script>"] == [(1, 2.0)]
    assert len([name for name in curves if name.startswith("loss/")]) >= 3
    config = wandb_config(folder)
    assert not [text for text in [*curves, *config, *map(str, config.values())] if "\x1b" in text or "\u202e" in text]
    assert config["plugin.address"] == "http://…@host/x"
    assert [row[1] for row in wandb_decisions(folder)] == ["plan", "rate", "end"]
    assert all_below(tmp_path) == []


@needs("wandb")
def test_wandb_drops_no_point_that_a_resume_trains_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that wandb has up to step 19 goes on after step 10, as on a server that was told more than was saved."""
    import wandb

    begin = wandb.init

    def going_on(**words: Any) -> Any:
        run = begin(**words)
        run.log({"loss/total": 9.0, "progress/step": 19}, step=19)
        run._starting_step = 20  # what a server says
        return run

    monkeypatch.setattr(wandb, "init", going_on)
    run = RunDirectory.create(tmp_path, "demo")
    ids = TrackerIds(run.trackers)
    tracker = WandbTracker("demo", tmp_path, ids, is_online=False)
    with listening(logging.WARNING) as said, Reporter([a_sink(tracker, run, ids)]) as reporter:
        reporter.start(a_summary(progress=a_progress(10)))
        for step in range(11, 31):
            reporter.step(a_step(step), (), a_progress(step))
        reporter.end(RunEnd("completed", "done", a_progress(30)))
    assert said == []
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    curves = wandb_curves(folder)
    losses = [value for _, value in curves["loss/total"]]
    assert losses == pytest.approx([9.0, *(0.5 / step for step in range(11, 31))])
    assert [value for _, value in curves["progress/step"]] == [19, *range(11, 31)]
    defined = [record.metric for record in wandb_records(folder) if record.HasField("metric")]
    assert [(one.glob_name, one.step_metric) for one in defined if one.glob_name] == [("*", "progress/step")]
    assert [row[1] for row in wandb_decisions(folder)] == ["resume", "end"]


def told_of_many_events(tracker: Tracker, run: RunDirectory) -> None:
    """Tell a tracker of 1,500 times out of memory, quickly."""
    tracker.start(TrackedRun("demo", {"name": run.path.name}))
    for step in range(1, 1501):
        tracker.event(Event(step, "oom", "it ran out"))
        if step % 100 == 0:
            tracker.log(Point(step, {"loss": 1.0}, 1e9 + step))
    tracker.finish(End("completed", "done"))


@needs("wandb")
def test_wandb_gets_one_table_of_many_events(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    told_of_many_events(WandbTracker("demo", tmp_path, TrackerIds(run.trackers), is_online=False), run)
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert len(list((folder / "files").rglob("*.table.json"))) == 1
    rows = wandb_decisions(folder)
    assert rows[0] == [501, "left out", "500 earlier ones; the run's own files have them"]
    assert [row[0] for row in rows[1:]] == list(range(501, 1501))


@needs("mlflow")
def test_mlflow_gets_one_file_of_many_events(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    told_of_many_events(MlflowTracker("demo", None, tmp_path, TrackerIds(run.trackers)), run)
    run_id = json.loads(run.trackers.read_text())["mlflow"]["run_id"]
    found, _ = mlflow_run(tmp_path, run_id)
    assert found.data.tags["last_event"] == "it ran out"
    file = tmp_path / "mlartifacts" / run_id / "artifacts" / "decisions.csv"
    rows = list(csv.reader(file.read_text().splitlines()))
    assert rows[1] == ["501", "left out", "500 earlier ones; the run's own files have them"]
    assert [int(row[0]) for row in rows[2:]] == list(range(501, 1501))


@needs("mlflow")
def test_hostile_names_are_made_acceptable_to_mlflow(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    run, said = a_hostile_run(lambda ids: MlflowTracker("demo <script>", None, root, ids), tmp_path)
    assert said == []
    found, curves = mlflow_run(root, json.loads(run.trackers.read_text())["mlflow"]["run_id"])
    assert found.info.status == "FAILED"
    losses = {name: points for name, points in curves.items() if name.startswith("loss/")}
    assert len(losses) == 5  # four terms and their total: none has taken another one's place
    assert 2.0 in [points[0][1] for points in losses.values()]
    assert found.data.params["plugin.address"] == "http://…@host/x"
    assert not [value for value in found.data.params.values() if "\x1b" in value or len(value) > 500]
    assert all_below(tmp_path) == []


@needs("trackio")
def test_hostile_names_do_no_harm_in_trackio(tmp_path: Path, at_home: Path) -> None:
    _, said = a_hostile_run(lambda ids: TrackioTracker("demo", None, ids), tmp_path)
    assert said == []
    curves = trackio_curves(at_home / "trackio", "demo")
    assert curves["loss/<script>"] == [(1, 2.0)]
    assert len([name for name in curves if name.startswith("loss/")]) == 5
    titles = [title for (title,) in trackio_rows(at_home / "trackio", "demo", "title", "alerts")]
    assert titles == ["plan", "rate", "end", "failed"]
    assert all_below(tmp_path) == []


@needs("wandb")
def test_a_run_goes_on_without_the_process_of_wandb(tmp_path: Path) -> None:
    """It is killed in the middle; whatever that breaks is broken in a process of its own."""
    words = [sys.executable, "-m", "tests.integration.tracker_worker", str(tmp_path)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout.splitlines()[-1])
    assert facts["killed"] > 0
    assert facts["longest_step_s"] < 0.1
    assert facts["end_s"] < 5.0
    assert len((RunDirectory.find(tmp_path / "demo").records).read_text().splitlines()) == 200
    assert any("wandb" in said for said in facts["said"])


@needs("wandb")
def test_nobody_is_asked_for_a_key(
    tmp_path: Path, write_images: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    options = options_with(write_images("gt", 3, (60, 60)), {"wandb": {"project": "demo", "mode": "online"}})
    file = write_options(tmp_path / "x.yml", options)
    for words in (("train", "-opt", file.name), ("validate", "-opt", file.name)):
        ended = command(*words, cwd=tmp_path)
        assert ended.returncode == 2
        assert "no user is logged in to wandb here" in ended.stderr
        assert "mode: offline" in ended.stderr
    assert not (tmp_path / "experiments").exists()
