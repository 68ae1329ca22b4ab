"""The constants of the relative cost are those that the recordings give, and hold on runs kept out (B08, B20)."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import fit_text_margins as fit

from trainauto.tasks.text.costs import FORMS


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
