"""A run whose batches memory lets grow until few steps are left is told so (B12)."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.language_models import causal_samples
from trainauto.core.plan import Plan
from trainauto.core.sharding import SINGLE_PROCESS
from trainauto.engine.few_steps import warn_of_few_steps
from trainauto.engine.training import Training
from trainauto.tasks.text.training.text_dataset import TextDataset

TEXTS = TextDataset("texts", causal_samples(np.full(200, 10)))


def said(caplog: pytest.LogCaptureFixture, tokens: int, given: int, epochs: int = 2) -> str:
    loader = SimpleNamespace(plan=Plan.of(tokens=tokens), dataset=TEXTS, sharding=SINGLE_PROCESS)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        run = cast(Training, cast(Any, SimpleNamespace(loader=loader)))
        warn_of_few_steps(run, epochs * 200, Plan.of(tokens=given), "max_tokens")
    return " ".join(caplog.messages)


def test_the_steps_that_are_left_are_told_with_the_option_that_bounds_them(caplog: pytest.LogCaptureFixture) -> None:
    text = said(caplog, tokens=1000, given=50)
    assert text.startswith("tokens 1000 leaves this run about 4 steps in all (tokens 50: 80)")
    assert "a smaller max_tokens leaves more steps" in text


def test_runs_of_many_steps_and_batches_that_were_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, tokens=1000, given=50, epochs=25) == ""
    assert said(caplog, tokens=1000, given=1000) == ""
