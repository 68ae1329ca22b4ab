"""What a run hears of the libraries that load its model."""

import logging
import warnings
from collections.abc import Iterator

import pytest

from trainauto.tasks.text.training.hub import NOISE, without_library_noise


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What the loggers say that are looked at."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in NOISE]
    before = [(logger.level, logger.disabled) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)  # other tests may have silenced the library as a whole
        logger.disabled = False
    yield said
    for logger, (level, disabled) in zip(loggers, before, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.disabled = disabled


def test_what_says_nothing_of_a_run_is_kept_from_it(heard: list[str]) -> None:
    """While it trains; everything else is heard."""
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
    assert heard == ["the disk is full"] * len(NOISE) + [NOISE["transformers.trainer"]]
