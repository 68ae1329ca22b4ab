"""Pairs of wrong sizes: one cause is one block, with the advice that mends it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainauto.core.errors import InputError, Problem
from trainauto.data import PairedImageDataset
from trainauto.tasks.sr.data.geometry import to_tensor
from trainauto.tasks.sr.data.image_io import read_image

Write = Callable[..., Path]


def refused(gt: Path, lq: Path, scale: int = 2) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        PairedImageDataset(str(gt), str(lq), scale=scale).scan()
    return caught.value.problems


@pytest.mark.parametrize("large", [(64, 64), (64, 96)])
def test_exchanged_folders_are_said_once(write_images: Write, large: tuple[int, int]) -> None:
    small = (large[0] // 2, large[1] // 2)
    problems = refused(write_images("gt", 12, small), write_images("lq", 12, large))
    (problem,) = problems
    assert "So it is with 12 of 12 pairs: " in problem.message
    assert problem.message.rstrip(".").endswith("and 9 more")
    assert problem.advice.startswith("dataroot_gt and dataroot_lq seem to be exchanged")
    assert problem.argument == "dataroot_gt"


def test_another_scale_is_said_once(write_images: Write) -> None:
    (problem,) = refused(write_images("gt", 4, (60, 90)), write_images("lq", 4, (30, 45)), scale=3)
    assert "of 4 pairs" in problem.message
    assert problem.advice == "They are for `scale: 2`."


def test_square_pairs_do_not_lie_on_their_side_and_causes_are_told_apart(write_images: Write) -> None:
    gt, lq = write_images("gt", 3, (64, 64)), write_images("lq", 3, (32, 32))
    write_images("lq", 1, (30, 30))  # replaces the first
    (problem,) = refused(gt, lq)
    assert "of 3 pairs" not in problem.message
    assert problem.advice.startswith("Shrink the high-quality image again")
    write_images("gt", 2, (32, 32))
    problems = refused(gt, lq)
    assert [problem.advice.split()[0] for problem in problems] == ["Shrink", "This"]


def edges(write_images: Write, gt_px: tuple[int, int], **given: bool) -> PairedImageDataset:
    gt, lq = write_images("gt", 1, gt_px), write_images("lq", 1, (10, 8))
    return PairedImageDataset(str(gt), str(lq), scale=4, **given)


def test_outside_of_training_an_edge_too_many_is_left_out(
    write_images: Write, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = edges(write_images, (43, 32), crops_larger=True)
    pairs.scan()
    assert "gt images of 1 of 1 pairs are larger than scale x lq" in caplog.text
    assert "the most is 3 px" in caplog.text
    whole = pairs.full_sample(0)
    assert whole["gt"].shape == (3, 40, 32)
    assert torch.equal(whole["gt"], to_tensor(read_image(pairs.sample_name(0), 3))[:, :40])
    with pytest.raises(InputError, match="crop both to matching sizes"):
        edges(write_images, (43, 32)).scan()


@pytest.mark.parametrize(("gt_px", "words"), [((39, 32), "Shrink the high-quality"), ((80, 64), "`scale: 8`")])
def test_what_is_no_edge_is_refused_everywhere(write_images: Write, gt_px: tuple[int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        edges(write_images, gt_px, crops_larger=True).scan()
