import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.reporting.builders import GIB, a_picture, a_progress, a_step, a_summary, a_validation
from trainauto.core.records import PeakReading
from trainauto.core.reports import Picture, RunEnd
from trainauto.reporting.tensorboard import TensorBoard, side_by_side

END = RunEnd("completed", "done", a_progress(3))


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()


def points(events: Any, tag: str) -> list[tuple[int, float]]:
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(tag)]


def test_every_step_is_on_every_curve(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    for step in (1, 2):
        sink.step(a_step(step, losses={"l1": 0.5 / step, "gan": 1.0}), (), a_progress(step))
    sink.end(END)
    sink.close()
    sink.close()
    events = read(tmp_path)
    assert sorted(events.Tags()["scalars"]) == [
        "grad_norm/g",
        "loss/gan",
        "loss/l1",
        "loss/total",
        "lr/g",
        "memory/allocated_gib",
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


def test_a_process_without_a_caching_allocator_and_steps_without_a_reading(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.start(a_summary())
    sink.step(a_step(1, peak=None), (), a_progress(1))
    sink.step(a_step(2, peak=PeakReading(3 * GIB)), (), a_progress(2))
    sink.close()
    events = read(tmp_path)
    assert points(events, "memory/process_gib") == [(2, 3.0)]
    assert "memory/reserved_gib" not in events.Tags()["scalars"]


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
    sink.validation(a_validation(20, bicubic={}), (), ())
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
    steps = [(step, round(event.value)) for event in read(tmp_path).Scalars("loss/l1") for step in [event.step]]
    assert steps == [(step, 1 if step < begin else 2) for step in range(1, 8)]


def test_nothing_is_written_before_the_start(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.step(a_step(), (), a_progress(1))
    sink.validation(a_validation(), (), ())
    sink.end(END)
    sink.close()
    assert list(tmp_path.iterdir()) == []


def test_importing_the_room_imports_neither_torch_nor_tensorboard() -> None:
    code = "import sys, trainauto.reporting.standard; sys.exit('torch' in sys.modules or 'tensorboard' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pictures_stand_beside_each_other() -> None:
    strip = side_by_side(a_picture(20, 30))
    assert strip.shape == (20, 90, 3)
    assert strip[0, ::30, 0].tolist() == [50, 100, 200]
    alone = Picture("x", output=np.zeros((900, 10, 1), np.uint8))
    assert side_by_side(alone).shape == (768, 10, 1)


def test_large_pictures_are_cut_to_their_middle() -> None:
    ramp = np.repeat(np.arange(1000, dtype=np.uint16)[None, :, None] // 4, 1100, axis=0).astype(np.uint8)
    strip = side_by_side(Picture("x", output=ramp, bicubic=ramp, reference=ramp))
    assert strip.shape == (768, 768, 1)
    assert strip[0, 0, 0] == (1000 - 256) // 2 // 4


def test_grey_beside_colour() -> None:
    grey = np.full((4, 4, 1), 7, np.uint8)
    strip = side_by_side(Picture("x", output=grey, reference=np.full((5, 6, 3), 9, np.uint8)))
    assert strip.shape == (4, 8, 3)
    assert strip[0, 0].tolist() == [7, 7, 7]
