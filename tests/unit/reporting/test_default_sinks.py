import io
import json
import logging
from pathlib import Path

from tests.unit.reporting.builders import a_picture, a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import Stop
from trainauto.core.run_events import RunEnd
from trainauto.reporting.default_sinks import default_sinks
from trainauto.reporting.reporter import Reporter
from trainauto.storage.run_directory import RunDirectory


def test_a_run_from_start_to_end_leaves_its_files(tmp_path: Path) -> None:
    run, stream = RunDirectory.create(tmp_path, "demo"), io.StringIO()
    with Reporter(default_sinks(run, 2, stream=stream)) as reporter:
        logging.getLogger("trainauto.build").info("reading options")
        reporter.start(a_summary())
        for step in range(1, 5):
            reporter.step(a_step(step), [Stop("loss is low")] if step == 4 else (), a_progress(step))
        reporter.validation(a_validation(4), [a_picture()])
        reporter.end(RunEnd("stopped", "loss is low", a_progress(4)))
    assert len(run.records.read_text().splitlines()) == 4
    assert json.loads(run.decisions.read_text())["reason"] == "loss is low"
    assert json.loads(run.validations.read_text())["step"] == 4
    assert json.loads(run.log_object.read_text())["status"] == "stopped"
    assert list(run.tensorboard.glob("events.out.tfevents.*"))
    bare = [line[24:] for line in run.log.read_text().splitlines()]
    assert bare == stream.getvalue().splitlines()
    assert bare[0] == "reading options"


def test_curves_can_be_left_out(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    with Reporter(default_sinks(run, 1, tensorboard=False, stream=io.StringIO())) as reporter:
        reporter.start(a_summary())
    assert not run.tensorboard.exists()


def test_tensorboard_finds_each_run_once_and_earlier_ones_where_they_are(tmp_path: Path) -> None:
    """It follows links, so that what lay within a run was shown under ``current``, too."""
    from tensorboard.backend.event_processing.io_wrapper import GetLogdirSubdirectories

    run = RunDirectory.create(tmp_path, "demo")
    with Reporter(default_sinks(run, 1, stream=io.StringIO())) as reporter:
        reporter.start(a_summary())
        reporter.step(a_step(1), (), a_progress(1))
    assert run.tensorboard == run.path.parent / "tb" / run.path.name
    assert list(GetLogdirSubdirectories(str(tmp_path))) == [str(run.tensorboard)]
    earlier = RunDirectory.create(tmp_path, "earlier")
    (earlier.path / "tb").mkdir()
    assert earlier.tensorboard == earlier.path / "tb"
