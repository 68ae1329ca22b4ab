"""What comes from a folder or from the hub of Hugging Face, and what is wrong where it does not."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from trainauto.core.errors import InputError, Problem, TrainautoError
from trainauto.memory.monitor.oom import is_out_of_memory

PACKAGES = ("transformers", "tokenizers")


def is_local(source: str | Path) -> bool:
    """Say whether a source is a path, so that the network is never asked for it.

    A name on the hub is ``name`` or ``owner/name``; what exists here, or begins as paths do, or with a folder that
    exists here, is none.
    """
    text = str(source)
    if "/" in text and Path(text).parent.is_dir():
        return True
    is_path = text.startswith((".", "/", "~")) or "\\" in text or text.count("/") > 1
    return isinstance(source, Path) or is_path or Path(text).exists()


def as_written_for_hub(source: str | Path) -> str:
    """Return a source as transformers takes it; it expands no ``~``."""
    return str(Path(source).expanduser()) if is_local(source) else str(source)


def require_transformers() -> None:
    """Refuse to go on without the extra ``huggingface``.

    Raises:
        InputError: a package of it is missing; it names the extra.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        advice = 'Install the extra: pip install "trainauto[huggingface]".'
        raise InputError(Problem(f"language models need the package {missing[0]}", advice=advice))


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Have transformers draw none: a run's own lines say what takes long."""
    from transformers.utils import logging

    were_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_enabled:
            logging.enable_progress_bar()


NOISE = {
    "transformers.trainer_utils": "mtime may not be reliable",
    "transformers.trainer": "There seems not to be a single sample",
}
"""How messages of transformers' loggers begin that say nothing of a run: of checkpoints within a second, and of a
resume with nothing left to train, which the end of a run says itself."""


@contextmanager
def without_library_noise() -> Iterator[None]:
    """Have transformers draw no bars, and keep quiet about what cannot be acted upon.

    By which names its parts will call each other one day, and :data:`NOISE`.
    """

    def says_something(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(NOISE[record.name])

    with without_progress_bars(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        loggers = [logging.getLogger(name) for name in NOISE]
        for logger in loggers:
            logger.addFilter(says_something)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(says_something)


def check_there(source: str | Path, what: str, argument: str = "") -> None:
    """Refuse a path that does not exist; a name on the hub is let pass.

    Args:
        source: path, or name on the hub.
        what: it is, for messages.
        argument: what errors blame.

    Raises:
        InputError: says where it was looked for.
    """
    if is_local(source) and not Path(source).expanduser().exists():
        advice = f"Looked for {Path(source).expanduser().resolve()}."
        raise InputError(Problem(f"there is no {what} {source}", advice=advice, argument=argument))


@contextmanager
def hub_errors(source: str | Path, what: str, argument: str) -> Iterator[None]:
    """Say what is wrong with a source in one line: libraries raise what they like, in many lines.

    Raises:
        InputError: what is asked for cannot be loaded.
    """
    require_transformers()
    check_there(source, what, argument)
    try:
        with without_progress_bars():
            yield
    except TrainautoError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        lines = str(error).strip().splitlines()
        where = "It was asked of that folder."
        if not is_local(source):
            where = f"There is no folder {source}, so it was asked of the hub by that name."
        raise InputError(
            Problem(
                f"cannot load the {what} {source}: {lines[0] if lines else type(error).__name__}",
                advice=where,
                argument=argument,
            )
        ) from error
