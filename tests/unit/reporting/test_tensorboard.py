import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.reporting.builders import GIB, a_picture, a_progress, a_step, a_summary, a_validation
from trainauto.core.decisions import PlanChange, RateFactor
from trainauto.core.plan import Plan
from trainauto.core.records import PeakReading
from trainauto.core.run_events import Picture, RunEnd
from trainauto.core.units import MIB
from trainauto.reporting.event_file import EventFile
from trainauto.reporting.tensorboard import TensorBoard, side_by_side

END = RunEnd("completed", "done", a_progress(3))


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0}).Reload()


def points(events: Any, tag: str) -> list[tuple[int, float]]:
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(tag)]


def words(events: Any, tag: str) -> list[tuple[int, str]]:
    tensors = events.Tensors(f"{tag}/text_summary")
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in tensors]


def curves_of_charts(events: Any) -> dict[str, set[str]]:
    """The curves in each chart, chosen as TensorBoard's plugin does: by ``re.match`` of each pattern."""
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata

    event = events.Tensors(metadata.CONFIG_SUMMARY_TAG)[0]  # of several it takes that of the first start
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    tags = events.Tags()["scalars"]
    return {
        chart.title: {tag for pattern in chart.multiline.tag for tag in tags if re.match(pattern, tag)}
        for category in layout.category
        for chart in category.chart
    }


def test_every_step_is_on_every_curve(tmp_path: Path) -> None:
    """Fault 20: curves of batch and crop never reached TensorBoard."""
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    for step in (1, 2):
        sink.step(a_step(step, losses={"l1": 0.5 / step, "gan": 1.0}), (), a_progress(step))
    sink.end(END)
    sink.close()
    sink.close()
    events = read(tmp_path)
    assert sorted(events.Tags()["scalars"]) == [
        "events/adjustment",
        "events/oom",
        "grad_norm/g",
        "loss/gan",
        "loss/l1",
        "loss/total",
        "lr/g",
        "memory/current_gib",
        "memory/limit_gib",
        "memory/peak_gib",
        "memory/reserved_gib",
        "plan/batch_size",
        "plan/lq_size",
        "plan/micro_batches",
        "speed/data_s",
        "speed/iterations_per_s",
        "speed/samples_per_s",
        "speed/step_s",
    ]
    assert points(events, "loss/l1") == [(1, 0.5), (2, 0.25)]
    assert points(events, "loss/total") == [(1, 1.5), (2, 1.25)]
    assert points(events, "lr/g") == [(1, 2e-4), (2, 2e-4)]
    assert points(events, "plan/lq_size") == [(1, 48), (2, 48)]
    assert points(events, "memory/reserved_gib") == [(1, 2.0), (2, 2.0)]
    assert points(events, "speed/samples_per_s") == [(1, 20.0), (2, 20.0)]


def test_memory_beside_its_target_and_limit(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary(memory_target_bytes=3 * GIB, memory_limit_bytes=5 * GIB))
    sink.step(a_step(1), (), a_progress(1))
    sink.step(a_step(2, peak=None), (), a_progress(2))
    sink.close()
    events = read(tmp_path)
    expected = {"current": [0.5], "peak": [1.0], "reserved": [2.0], "target": [3.0, 3.0], "limit": [4.0, 5.0]}
    for name, values in expected.items():
        assert [value for _, value in points(events, f"memory/{name}_gib")] == values, name


def test_a_run_of_less_than_a_gib_is_shown_in_mib(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary(memory_target_bytes=48 * MIB, memory_limit_bytes=64 * MIB))
    sink.step(a_step(1, peak=PeakReading(40 * MIB, limit=64 * MIB)), (), a_progress(1))
    sink.close()
    events = read(tmp_path)
    for name, value in {"peak": 40.0, "target": 48.0, "limit": 64.0}.items():
        assert points(events, f"memory/{name}_mib") == [(1, value)]
    assert curves_of_charts(events)["Peak in MiB: predicted, measured (peak)"] == {"memory/peak_mib"}
    assert not [tag for tag in events.Tags()["scalars"] if tag.endswith("_gib")]


def test_a_small_network_on_a_large_card_is_shown_in_mib(tmp_path: Path) -> None:
    """Fault: the unit followed the limit, and every peak was 0.05 GiB."""
    sink = TensorBoard(tmp_path)
    sink.start(a_summary(memory_limit_bytes=80 * GIB))
    sink.step(a_step(1, peak=None), (), a_progress(1))
    sink.step(a_step(2, peak=PeakReading(50 * MIB, limit=80 * GIB)), (), a_progress(2))
    sink.validation(a_validation(2, peak=PeakReading(3 * GIB)), (), ())
    sink.close()
    events = read(tmp_path)
    assert points(events, "memory/peak_mib") == [(2, 50.0)]
    assert points(events, "memory/validation_peak_mib") == [(2, 3072.0)]
    assert len(curves_of_charts(events)) == 7
    assert not [tag for tag in events.Tags()["scalars"] if tag.endswith("_gib")]


@pytest.mark.parametrize(("first", "then"), [(50 * MIB, 3 * GIB), (3 * GIB, 50 * MIB)])
def test_a_resumed_run_keeps_the_unit_it_began_with(tmp_path: Path, first: int, then: int) -> None:
    """Fault: a resume under another limit began other curves, and the page had only the later half."""
    for step, target in ((1, first), (2, then)):
        sink = TensorBoard(tmp_path)
        sink.start(a_summary(memory_target_bytes=target, progress=a_progress(step - 1)))
        sink.step(a_step(step, peak=PeakReading(target)), (), a_progress(step))
        sink.end(END)
        sink.close()
    events, unit = read(tmp_path), "mib" if first < GIB else "gib"
    assert [tag for tag in events.Tags()["scalars"] if tag.startswith("memory/peak")] == [f"memory/peak_{unit}"]
    assert sorted(step for step, _ in points(events, f"memory/peak_{unit}")) == [1, 2]
    assert any(f"memory/peak_{unit}" in tags for tags in curves_of_charts(events).values())


def test_what_was_predicted_stands_beside_what_was_measured(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    sink.step(a_step(1), (), a_progress(1))
    sink.step(a_step(2, predicted=GIB * 9 // 10), (), a_progress(2))
    sink.step(a_step(3, predicted=2 * GIB, ooms=1), (), a_progress(3))  # its peak is not the plan's
    sink.validation(a_validation(3, peak=PeakReading(6 * GIB)), (), ())
    sink.close()
    events = read(tmp_path)
    assert points(events, "memory/predicted_gib") == [(2, 0.9), (3, 2.0)]
    ((step, error),) = points(events, "memory/prediction_error_percent")
    assert (step, pytest.approx(-10, abs=1e-4)) == (2, error.expected)
    assert points(events, "memory/validation_peak_gib") == [(3, 6.0)]
    charts = curves_of_charts(events)
    assert charts["Peak in GiB: predicted, measured (peak)"] == {"memory/peak_gib", "memory/predicted_gib"}
    assert charts["Error of the prediction in % of the peak"] == {"memory/prediction_error_percent"}
    of_memory = charts["Memory in GiB: limit, target, predicted, peak, reserved, current, validation_peak"]
    assert {"memory/predicted_gib", "memory/validation_peak_gib"} <= of_memory


def test_adjustments_and_lack_of_memory_are_marks_with_words(tmp_path: Path) -> None:
    grow = PlanChange(Plan.of(batch_size=4, lq_size=56), "peak 61 % is below the band")
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    sink.step(a_step(1), [RateFactor(0.5, "half the batch")], a_progress(1))
    sink.step(a_step(2), [grow], a_progress(2))
    sink.step(a_step(3, ooms=2), (), a_progress(3))
    sink.validation(a_validation(3), (), [grow])
    sink.step(a_step(4), (), a_progress(4))
    sink.step(a_step(5), (), a_progress(5))
    sink.close()
    events = read(tmp_path)
    # What a validation asks for is marked at the next step, which is the first that it can act on.
    assert [value for _, value in points(events, "events/adjustment")] == [0, 1, 0, 1, 0]
    assert [value for _, value in points(events, "events/oom")] == [0, 0, 1, 0, 0]
    assert words(events, "events/adjustment") == [
        (2, "step 2: plan -> batch_size 4, lq_size 56: peak 61 % is below the band"),
        (3, "step 3: plan -> batch_size 4, lq_size 56: peak 61 % is below the band"),
    ]
    assert words(events, "events/oom") == [(3, "memory ran out 2 times under batch_size 4, lq_size 48")]


def test_a_mark_is_not_lost_between_points(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path, every=3)
    sink.start(a_summary())
    sink.step(a_step(1, ooms=1), [PlanChange(Plan.of(batch_size=2), "less")], a_progress(1))
    for step in range(2, 7):
        sink.step(a_step(step), (), a_progress(step))
    sink.close()
    events = read(tmp_path)
    assert points(events, "events/adjustment") == points(events, "events/oom") == [(3, 1.0), (6, 0.0)]


def test_every_chart_of_the_page_has_its_curves(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary(memory_target_bytes=3 * GIB))
    sink.step(a_step(predicted=GIB), (), a_progress(1))
    sink.close()
    charts = curves_of_charts(read(tmp_path))
    of_memory = "limit", "target", "predicted", "peak", "reserved", "current"
    assert list(charts.values()) == [
        {f"memory/{name}_gib" for name in of_memory},
        {"memory/predicted_gib", "memory/peak_gib"},
        {"memory/prediction_error_percent"},
        {"plan/lq_size"},
        {"plan/batch_size"},
        {"events/adjustment", "events/oom"},
        {"loss/l1", "loss/total"},
    ]
    titles = list(charts)
    assert titles[0] == f"Memory in GiB: {', '.join(of_memory)}, validation_peak"
    for title, unit in zip(titles, ("GiB", "GiB", "%", "px", "samples", "1 where", "total"), strict=True):
        assert unit in title
    ((step, text),) = words(read(tmp_path), "about/custom_scalars")
    assert step == a_summary().progress.steps
    for tag in {tag for tags in charts.values() for tag in tags if not tag.startswith("loss/")}:
        assert f"`{tag}`" in text, tag


def test_a_process_without_a_caching_allocator_and_steps_without_a_reading(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    sink.step(a_step(1, peak=None), (), a_progress(1))
    sink.step(a_step(2, peak=PeakReading(3 * GIB)), (), a_progress(2))
    sink.close()
    events = read(tmp_path)
    assert points(events, "memory/peak_gib") == [(2, 3.0)]
    assert [tag for tag in events.Tags()["scalars"] if tag.startswith("memory/")] == ["memory/peak_gib"]


def test_points_of_several_steps_are_their_means_and_the_rest_comes_at_the_end(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path, every=2)
    sink.start(a_summary())
    for step, loss in ((1, 1.0), (2, 3.0), (3, 7.0)):
        sink.step(a_step(step, losses={"l1": loss}), (), a_progress(step))
    sink.end(END)
    sink.close()
    assert points(read(tmp_path), "loss/l1") == [(2, 2.0), (3, 7.0)]


def test_validations_with_gains_and_pictures(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    sink.validation(a_validation(10), [a_picture() for _ in range(6)], ())
    sink.validation(a_validation(20, baseline={}), (), ())
    sink.close()
    events = read(tmp_path)
    assert points(events, "validation/val/psnr") == [(10, 28.5), (20, 28.5)]
    assert points(events, "validation/val/psnr_gain_over_bicubic") == [(10, 0.5)]
    assert points(events, "validation/val/lpips_gain_over_bicubic") == [(10, 0.05)]
    tags = events.Tags()["images"]
    assert tags == ["val/baby (bicubic, output, reference)"]
    images = events.Images(tags[0])
    assert len(images) == 4
    assert (images[0].width, images[0].height) == (90, 20)


@pytest.mark.parametrize("begin", [1, 5])
def test_a_resumed_run_hides_what_comes_after_its_checkpoint(tmp_path: Path, begin: int) -> None:
    for first, last, loss in ((1, 6, 1.0), (begin, 7, 2.0)):
        sink = TensorBoard(tmp_path)
        sink.start(a_summary(progress=a_progress(first - 1)))
        for step in range(first, last + 1):
            sink.step(a_step(step, losses={"l1": loss}), (), a_progress(step))
        sink.close()
        # Files are read in the order of their names, which begin with the second; both may be of the same one here.
        for file in tmp_path.glob("events.out.tfevents.1*"):
            file.rename(tmp_path / f"events.out.tfevents.{first + last:010d}.{file.name}")
    steps = [(step, round(event.value)) for event in read(tmp_path).Scalars("loss/l1") for step in [event.step]]
    assert steps == [(step, 1 if step < begin else 2) for step in range(1, 8)]


def test_a_folder_that_is_moved_is_reported_by_the_next_point_alone(tmp_path: Path) -> None:
    """TensorBoard's own thread would print its traceback, which pytest makes an error of."""
    events = EventFile(tmp_path / "tb")
    events.add_points({"loss": 1.0}, 1)
    events.writer.flush()
    (tmp_path / "tb").rename(tmp_path / "moved")

    def add_more() -> None:
        for step in range(2, 1000):
            events.add_points({"loss": 1.0}, step)
            events.writer.flush()

    with pytest.raises(FileNotFoundError):
        add_more()


def test_nothing_is_written_before_the_start(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.step(a_step(), (), a_progress(1))
    sink.validation(a_validation(), (), ())
    sink.end(END)
    sink.close()
    assert list(tmp_path.iterdir()) == []


def test_pictures_stand_beside_each_other() -> None:
    strip = side_by_side(a_picture(20, 30))
    assert strip.shape == (20, 90, 3)
    assert strip[0, ::30, 0].tolist() == [50, 100, 200]
    alone = Picture("x", output=np.zeros((900, 10, 1), np.uint8))
    assert side_by_side(alone).shape == (768, 10, 1)


def test_large_pictures_are_cut_to_their_middle() -> None:
    ramp = np.repeat(np.arange(1000, dtype=np.uint16)[None, :, None] // 4, 1100, axis=0).astype(np.uint8)
    strip = side_by_side(Picture("x", output=ramp, baseline=ramp, reference=ramp))
    assert strip.shape == (768, 768, 1)
    assert strip[0, 0, 0] == (1000 - 256) // 2 // 4


def test_grey_beside_colour() -> None:
    grey = np.full((4, 4, 1), 7, np.uint8)
    strip = side_by_side(Picture("x", output=grey, reference=np.full((5, 6, 3), 9, np.uint8)))
    assert strip.shape == (4, 8, 3)
    assert strip[0, 0].tolist() == [7, 7, 7]
