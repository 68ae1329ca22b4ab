"""What a run hears of the libraries that load its model."""

import logging
import warnings

import pytest
import transformers

from trainauto.tasks.text.training.hub import NOISE, without_library_noise


def test_what_says_nothing_of_a_run_is_kept_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it trains; everything else is heard."""
    transformers.logging.get_logger()  # sets its loggers up
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with without_library_noise():
            for name, text in NOISE.items():
                logging.getLogger(name).warning("%s, whatever that means", text)
                logging.getLogger(name).warning("the disk is full")
            warnings.warn("another name one day", FutureWarning, stacklevel=1)
            warnings.warn("something is wrong", UserWarning, stacklevel=1)
        logging.getLogger("transformers.trainer").warning(NOISE["transformers.trainer"])
    assert [str(warning.message) for warning in caught] == ["something is wrong"]
    assert caplog.messages == ["the disk is full"] * len(NOISE) + [NOISE["transformers.trainer"]]
