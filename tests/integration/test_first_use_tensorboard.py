"""What TensorBoard shows of a folder of runs, read as TensorBoard reads it."""

import os
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import pytest

from tests.conftest import PHOTOGRAPHS
from tests.integration.commands import Ended, run_directory, step_records, tiny_options, train, write_options

NAMES = ("early", "late")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, of 3 and of 5 steps; the second was resumed after its third."""
    folder = tmp_path_factory.mktemp("project")
    photograph = cv2.imread(str(PHOTOGRAPHS / "coffee.png"))
    (folder / "gt").mkdir()
    for number in range(2):
        cv2.imwrite(str(folder / "gt" / f"image_{number:03d}.png"), photograph[30 * number : 30 * number + 64, :80])
    with mock.patch.dict(os.environ, {"TRAINAUTO_CACHE": str(folder / "cache")}):
        for name in NAMES:
            trained(folder, name, 3)
        trained(folder, "late", 5, "--auto_resume")
    return folder


def trained(folder: Path, name: str, steps: int, *arguments: str) -> Ended:
    options = tiny_options(
        folder / "gt", train={"total_iter": steps}, val={"val_freq": 3}, logger={"use_tb_logger": True}
    )
    done = train(write_options(folder / f"{name}.yml", options | {"name": name}), *arguments)
    assert done.returncode == 0, done.stderr
    return done


def curves_of(folder: Path) -> str:
    """Return what TensorBoard calls the run of an experiment below ``experiments``."""
    run = run_directory(folder, folder.stem)
    return f"{folder.stem}/tb/{run.name}"


def runs_in(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    return EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0}).AddRunsFromDirectory(str(folder)).Reload()


def test_each_run_is_shown_once_with_or_without_links(project: Path) -> None:
    from tensorboard.backend.event_processing.io_wrapper import GetLogdirSubdirectories

    experiments = project / "experiments"
    wanted = sorted(curves_of(project / f"{name}.yml") for name in NAMES)
    assert (experiments / "late" / "current").is_symlink(), "else there would be no link to follow"
    for follows in (False, True):
        walked = os.walk(experiments, followlinks=follows)
        found = [Path(folder) for folder, _, files in walked if any("tfevents" in file for file in files)]
        assert sorted(folder.relative_to(experiments).as_posix() for folder in found) == wanted, follows
        assert set(Counter(folder.resolve() for folder in found).values()) == {1}
    by_tensorboard = GetLogdirSubdirectories(str(experiments))
    assert sorted(Path(folder).relative_to(experiments).as_posix() for folder in by_tensorboard) == wanted
    assert sorted(runs_in(experiments).Runs()) == wanted


def test_a_resume_goes_on_with_the_curves_of_its_run(project: Path) -> None:
    shown = runs_in(project / "experiments")
    for name, steps in (("early", 3), ("late", 5)):
        curves = curves_of(project / f"{name}.yml")
        records = step_records(run_directory(project / f"{name}.yml", name))
        losses = {event.step: event.value for event in shown.Scalars(curves, "loss/total")}
        assert sorted(event.step for event in shown.Scalars(curves, "loss/total")) == list(range(1, steps + 1))
        assert losses == {record["step"]: pytest.approx(sum(record["losses"].values())) for record in records}


def test_the_page_says_units_lines_and_that_nothing_is_to_be_smoothed(project: Path) -> None:
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata

    shown, curves = runs_in(project / "experiments"), curves_of(project / "late.yml")
    text = shown.Tensors(curves, "about/custom_scalars/text_summary")[-1].tensor_proto.string_val[0].decode()
    said = " ".join(text.split())
    assert (
        "TensorBoard smooths curves unless `Smoothing` at the left is set to 0: do that for plans and events." in said
    )
    layout = layout_pb2.Layout.FromString(
        shown.Tensors(curves, metadata.CONFIG_SUMMARY_TAG)[0].tensor_proto.string_val[0]
    )
    charts = {chart.title: list(chart.multiline.tag) for category in layout.category for chart in category.chart}
    # A network of some MiB: in GiB it would be a line at 0.00.
    memory = next(tags for title, tags in charts.items() if title.startswith("Memory in MiB: limit, target, "))
    assert "memory/validation_peak_mib$" in memory
    # Numbers of another order of size have axes of their own, and so have marks.
    assert [tags for tags in charts.values() if "plan/lq_size$" in tags] == [["plan/lq_size$"]]
    assert [tags for tags in charts.values() if "plan/batch_size$" in tags] == [["plan/batch_size$"]]
    tags = {pattern.rstrip("$") for patterns in charts.values() for pattern in patterns} - {"loss/"}
    assert [tag for tag in sorted(tags) if f"`{tag}`" not in text] == []
    shown_tags = set(shown.GetAccumulator(curves).Tags()["scalars"])
    assert {"memory/peak_mib", "memory/validation_peak_mib", "events/adjustment", "events/oom"} <= shown_tags
    marks = {event.value for tag in ("events/adjustment", "events/oom") for event in shown.Scalars(curves, tag)}
    assert marks == {0.0}, "nothing happened in this run"
