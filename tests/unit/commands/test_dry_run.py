"""What a dry run says of what it validated."""

import math

from trainauto.commands.dry_run import _validation
from trainauto.core.mean_scores import mean_scores
from trainauto.core.records import ImageScore, ValidationRecord


def test_the_image_of_a_rehearsal_has_its_own_values() -> None:
    """A blank page has an infinite PSNR by bicubic: the mean leaves it out, and would be NaN."""
    scores = (ImageScore("blank", {"psnr": 29.5}, {"psnr": math.inf}),)
    metrics, baseline, left_out = mean_scores(scores)
    record = ValidationRecord(1, "val", metrics, baseline, scores, 0.1, 0, {"psnr": True}, left_out=left_out)
    said = _validation(record)
    assert (said["metrics"], said["baseline"]) == ({"psnr": 29.5}, {"psnr": math.inf})
