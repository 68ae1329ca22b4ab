"""Crops of several runs side by side: the same image, cut at the same place, or a sentence that there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.reporting.builders import a_validation
from trainauto.core.run_events import ImageArray, Picture
from trainauto.reporting.dashboard.pictures import MOST_PICTURES, Pictures
from trainauto.reporting.dashboard.shared_pictures import shared_pictures

Blocks = Sequence[Mapping[str, Any]]


def an_image(seed: int, side_px: int = 24) -> ImageArray:
    return np.random.default_rng(seed).integers(0, 256, (side_px, side_px, 3), dtype=np.uint8)


def a_page(
    images: Mapping[str, int], output: int = 0, baseline: int = 99, dataset: str = "val", steps: Sequence[int] = (5, 9)
) -> Blocks:
    """Return the blocks of a run whose validation images are drawn by their seeds."""
    pictures = Pictures()
    for step in steps:
        shown = [
            Picture(name, an_image(output + step), an_image(baseline), an_image(of)) for name, of in images.items()
        ]
        pictures.add(replace(a_validation(step), dataset=dataset), shown, {})
    return pictures.blocks()


def the_set(page: Blocks, number: int = 0) -> dict[str, Any]:
    return dict(page[0]["sets"][number])


def test_each_row_has_one_crop_of_all_runs_beside_bicubic_and_reference() -> None:
    pages = [a_page({"baby": 1, "bird": 2}, output=100), a_page({"bird": 2, "baby": 1}, output=200, steps=(5,))]
    (block,) = shared_pictures(pages, ["one", "two"])
    assert (block["type"], block["note"], block["names"]) == ("compared", "", ["val: baby", "val: bird"])
    baby = the_set(pages[0]), the_set(pages[1], 1)
    assert block["rows"][0] == [
        ["bicubic", baby[0]["baseline"], ""],
        ["one", baby[0]["images"][-1], "step 9, psnr 28.5000, lpips 0.2500"],
        ["two", baby[1]["images"][-1], "step 5, psnr 28.5000, lpips 0.2500"],
        ["reference", baby[0]["reference"], ""],
    ]
    assert baby[0]["images"][-1] != baby[1]["images"][-1]
    assert block["rows"][1][3][1] == the_set(pages[0], 1)["reference"]


def test_a_set_may_be_called_otherwise_and_another_image_the_same() -> None:
    """The pixels of the reference say what is the same crop, whatever it is called."""
    (block,) = shared_pictures([a_page({"baby": 1}), a_page({"child": 1}, dataset="set5")], ["one", "two"])
    assert block["names"] == ["val: baby"]
    (block,) = shared_pictures([a_page({"baby": 1}), a_page({"baby": 2})], ["one", "two"])
    assert block["rows"] == []
    assert block["note"] == "No pictures are side by side: no two of these runs show the same crop with its reference."


def test_bicubic_of_another_factor_is_shown_of_each_run() -> None:
    pages = [a_page({"baby": 1}, baseline=7), a_page({"baby": 1}, baseline=8)]
    (block,) = shared_pictures(pages, ["x2", "x4"])
    assert [view[0] for view in block["rows"][0]] == ["bicubic", "bicubic", "x2", "x4", "reference"]
    assert [view[2] for view in block["rows"][0][:2]] == ["x2", "x4"]
    assert [view[1] for view in block["rows"][0][:2]] == [the_set(page)["baseline"] for page in pages]


def test_of_several_inputs_of_one_reference_the_same_one_is_beside_it() -> None:
    clean, degraded = ({"baseline": value, "dataset": name} for value, name in ((7, "clean"), (8, "degraded")))
    pages = [
        [*a_page({"baby": 1}, **clean), *a_page({"baby": 1}, **degraded)],
        [*a_page({"baby": 1}, **degraded), *a_page({"baby": 1}, **clean)],
    ]
    (block,) = shared_pictures(pages, ["one", "two"])
    assert block["names"] == ["clean: baby", "degraded: baby"]
    assert [[view[0] for view in row] for row in block["rows"]] == [["bicubic", "one", "two", "reference"]] * 2


def test_runs_without_a_part_in_it_are_named() -> None:
    pages = [a_page({"baby": 1}), a_page({"baby": 1}), a_page({"bird": 2}), []]
    (block,) = shared_pictures(pages, ["a", "b", "c", "d"])
    assert [view[0] for view in block["rows"][0]] == ["bicubic", "a", "b", "reference"]
    assert block["note"] == "Without c, d, which shows none of these crops."
    (block,) = shared_pictures([a_page({"baby": 1}), []], ["one", "two"])
    assert block["note"] == "No pictures are side by side: no two of these runs show the same crop with its reference."
    assert shared_pictures([[], []], ["one", "two"]) == []


@pytest.mark.parametrize("runs", [2, 12, 40])
def test_many_runs_take_no_more_pictures_than_a_page_may_have(runs: int) -> None:
    page = a_page({f"image {number}": number for number in range(4)})
    (block,) = shared_pictures([page] * runs, [f"run {number}" for number in range(runs)])
    assert 0 < sum(len(row) for row in block["rows"]) <= MOST_PICTURES


@pytest.mark.parametrize("key", ["reference", "baseline"])
@pytest.mark.parametrize("value", [None, 5, {"a": 1}])
def test_pages_that_a_person_has_edited_end_nothing(key: str, value: object) -> None:
    page = a_page({"baby": 1})
    page[0]["sets"][0][key] = value
    (block,) = shared_pictures([page, page], ["one", "two"])
    views = [view[0] for row in block["rows"] for view in row]
    assert views == ([] if key == "reference" else ["one", "two", "reference"])
