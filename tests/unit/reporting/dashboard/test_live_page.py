"""The page of several runs, from their folders: it has the pictures of their own pages, and the newest of them."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.reporting.builders import a_picture, a_progress, a_step, a_summary, a_validation
from trainauto.core.run_events import RunEnd
from trainauto.reporting.dashboard.dashboard_sink import Dashboard
from trainauto.reporting.dashboard.live_page import LivePage
from trainauto.reporting.jsonl import JsonLines
from trainauto.reporting.reporter import Reporter
from trainauto.storage.run_directory import RunDirectory

NOT_SHARED = "No pictures are side by side: no two of these runs show the same crop with its reference."


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    made = [RunDirectory.create(tmp_path, name) for name in ("one", "two")]
    for run in made:
        run.write_config({"name": run.path.parent.name})
    train(made[0], 4)
    train(made[1], 6)
    return made


def train(run: RunDirectory, last: int) -> None:
    with Reporter([JsonLines(run), Dashboard(run)]) as reporter:
        reporter.start(a_summary())
        for step in range(1, last + 1):
            reporter.step(a_step(step), (), a_progress(step))
        reporter.validation(a_validation(last), [a_picture(96, 96)])
        reporter.end(RunEnd("completed", "done", a_progress(last)))


def compared(page: dict[str, Any]) -> dict[str, Any]:
    (block,) = [one for section in page["sections"] for one in section["blocks"] if one["type"] == "compared"]
    return dict(block)


def test_the_same_crop_of_both_runs_stands_in_one_row(runs: list[RunDirectory]) -> None:
    page, _ = LivePage(runs).page()
    (row,) = compared(page)["rows"]
    assert [view[0] for view in row] == ["bicubic", "one", "two", "reference"]
    assert [view[2].partition(",")[0] for view in row[1:3]] == ["step 4", "step 6"]
    assert all(view[1].startswith("data:image/webp;base64,") for view in row)


def test_pictures_of_a_run_that_goes_on_are_the_newest(
    runs: list[RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainauto.reporting.dashboard.live_page._SHORTEST_PAUSE_S", 0.0)
    live = LivePage(runs)
    _, before = live.page()
    assert live.page()[1] == before
    text = runs[1].dashboard.read_text()
    runs[1].dashboard.write_text(text.replace('"steps": [6]', '"steps": [7]'))
    page, after = live.page()
    assert after != before
    assert compared(page)["rows"][0][2][2].startswith("step 7")


def test_a_page_that_is_gone_is_told(runs: list[RunDirectory]) -> None:
    runs[0].dashboard.unlink()
    block = compared(LivePage(runs).page()[0])
    assert (block["rows"], block["note"]) == ([], NOT_SHARED)
