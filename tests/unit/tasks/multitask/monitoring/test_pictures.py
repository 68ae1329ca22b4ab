import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.tasks.multitask.monitoring.made_batches import a_batch, a_long_run
from trainauto.tasks.multitask.monitoring import pictures
from trainauto.tasks.multitask.monitoring.batch_metrics import BatchMetrics
from trainauto.tasks.multitask.monitoring.metrics_history import MetricsHistory


def history_of(batches: list[BatchMetrics], epochs: int = 1) -> MetricsHistory:
    history = MetricsHistory()
    for epoch in range(epochs):
        history.start()
        for batch in batches[epoch * len(batches) // epochs : (epoch + 1) * len(batches) // epochs]:
            history.add(batch)
        history.end(None, None, 1.0)
    return history


def drawn(folder: Path, history: MetricsHistory) -> list[np.ndarray[Any, Any]]:
    paths = [folder / "training_curves.png", folder / "task_comparison.png"]
    pictures.draw_training_curves(paths[0], history)
    pictures.draw_task_comparison(paths[1], history, None)
    assert sorted(folder.iterdir()) == sorted(paths)
    return [np.asarray(Image.open(path).convert("RGB")) for path in paths]


def test_pictures_of_a_run(tmp_path: Path) -> None:
    """A59, A63, A64: pixels of each colour that is drawn."""
    curves, comparison = drawn(tmp_path, history_of(a_long_run(300), epochs=3))
    assert curves.shape == (1700, 1400, 3)
    assert comparison.shape[1] == 1700
    for colour in ((31, 119, 180), (255, 127, 14), (44, 160, 44)):  # of T1, T2, T3
        for picture in (curves, comparison):
            assert (picture == colour).all(-1).sum() > 200
    assert (curves == (214, 39, 40)).all(-1).sum() > 20  # the mark where memory ran out


def test_a_rate_that_decays_does_not_read_zero() -> None:
    rates = [3e-3 * 0.02 ** (number / 29) for number in range(30)]  # down to 6e-5
    figure = pictures._training_curves(history_of([a_batch(n, learning_rate=rate) for n, rate in enumerate(rates)]))
    (panel,) = [axes for axes in figure.axes if axes.get_ylabel() == "learning rate (logarithmic)"]
    low, high = panel.get_ylim()
    labels = [text.get_text() for text in panel.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert {"0.0001", "0.001"} <= set(labels)
    assert not [label for label in labels if float(label) == 0]


ODD_NAMES = ["_hidden", "$x^{", "a" * 80, "größer", "多任务", "a b/c\\d", ""]


@pytest.mark.parametrize(
    "history",
    [
        history_of(
            [a_batch(0, memory_allocated_mb=None, memory_reserved_mb=None, gradient_norm=None, learning_rate=None)]
        ),
        history_of([a_batch(number, loss=math.nan, per_task_loss={"T1": math.inf}) for number in range(3)], epochs=3),
        history_of([BatchMetrics(0, 0.0, ODD_NAMES, 14, 0.5, dict.fromkeys(ODD_NAMES, 0.5))] * 3, epochs=3),
        history_of([BatchMetrics(0, 0.0, list(map(str, range(40))), 80, 0.5, {str(n): 0.5 for n in range(40)})] * 60),
    ],
    ids=["one batch, little measured", "not finite", "odd names", "many tasks"],
)
def test_whatever_a_run_held_can_be_drawn(tmp_path: Path, history: MetricsHistory) -> None:
    for picture in drawn(tmp_path, history):
        assert picture.std() > 5


def test_pictures_leave_the_figures_of_others_alone(tmp_path: Path) -> None:
    from matplotlib import pyplot

    figure = pyplot.figure()
    try:
        pictures.draw_task_comparison(tmp_path / "task_comparison.png", history_of([a_batch(0)]), None)
        assert pyplot.get_fignums() == [figure.number]
        assert pyplot.gcf() is figure
    finally:
        pyplot.close(figure)
