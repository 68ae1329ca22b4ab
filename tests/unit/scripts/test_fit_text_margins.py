"""The constants of the relative cost are those that the recordings give, and hold on runs kept out (B08, B20)."""

import csv
import gzip
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import fit_text_margins as fit
from data_of_others import GENERATE_RUNS, missing

from trainauto.tasks.text.costs import FORMS

pytestmark = pytest.mark.skipif(bool(missing(GENERATE_RUNS)), reason=missing(GENERATE_RUNS))


def test_margins_are_those_of_the_recordings_and_hold_on_others() -> None:
    fitted, kept = fit.halves(fit.recordings())
    assert not {run.name for run in fitted} & {run.name for run in kept}
    assert not {run.first for run in fitted} & {run.first for run in kept}  # nor the same run measured twice
    assert {run.family for run in kept} == {"alma", "nllb", "nmt"}
    for probability, form in FORMS.items():
        assert fit.margin_for(fitted, form.tokens, form.power, probability) == pytest.approx(form.margin, abs=1e-3)
        judged = fit.outcome(kept, form.tokens, form.power, form.margin)
        assert judged.failed <= 1.2 * probability  # 11.5 % of the kept ones at 10 %, none at 1 and 2.5 %
        assert judged.admitted > 0.02


def test_tokens_alone_prove_nothing() -> None:
    judged = fit.outcome(fit.recordings(), 0, 1.0, 1.0)
    assert judged.failed > 0.1


def test_no_row_holds_weights() -> None:
    assert max(fit.least_mib(fit.recordings()).values()) < 140  # half of the smallest model in float16


def test_shares_above_the_first_peak_are_counted_from_the_recordings() -> None:
    """Counted again row by row; the others are those of a page that is made of them."""
    above, seen = [], set()
    with gzip.open(fit.DATA, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            shape = float(row["inference_batch_size"]), float(row["top_token_size"])
            first = float(row["first_batch_size"]), float(row["first_top_token_size"])
            is_later = row["run"] in seen
            seen.add(row["run"])
            if is_later and shape != first and shape[0] * shape[1] <= first[0] * first[1]:
                above.append(float(row["gpu_memory_mib"]) > float(row["first_gpu_memory_peak_mib"]))
    kinds = fit.later_batches()
    padded = kinds["no more padded tokens, not its shape"]
    assert (padded.number, padded.above) == (len(above), sum(above)) == (10_626, 1_560)
    assert kinds["exactly its shape"].number == 205
    page = (Path(__file__).parents[3] / "docs" / "benchmarks" / "text_margins.md").read_text(encoding="utf-8")
    assert all(line in page for line in fit.report_of_later_batches(kinds))
