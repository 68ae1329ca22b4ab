"""What ``gradients.py`` makes of a cell: whether its outcome is right, and why that one is."""

import io
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass

import torch
from gradients_cases import Cell, samples_of
from gradients_watch import Trained, Watch, trained_plainly, worst_error
from gradients_ways import MixtureKeptError, TouchedError, train

from trainauto.core.errors import TrainautoError

MOST_ERROR = 1e-6
EQUAL, SMALLER, PASSES, GIVEN_BACK, REFUSED, WRONG = (
    "equal",
    "equal, in smaller steps",
    "equal to its passes, which is said",
    "given back, nothing touched",
    "refused",
    "WRONG",
)
SAYINGS = ("minimises something else", "loss_weighing", "splittable", "coupled", "no mean over")
"""One of these is in a warning that says what parts do to a loss, the plainest first."""


@dataclass(frozen=True)
class Verdict:
    """What became of a cell.

    Attributes:
        key: its name.
        outcome: one of the words above.
        error: largest relative error of gradients, updates and buffers, against plain PyTorch.
        words: of an error or a warning, or what is wrong.
        seconds: of CPU.
    """

    key: str
    outcome: str
    error: float | None = None
    words: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON takes it."""
        return asdict(self)


def right_outcomes(cell: Cell) -> tuple[frozenset[str], str]:
    """Return the outcomes that are right for a cell, and why."""
    misuse = cell.misuse
    if misuse.fails_in_optimizer is not None and misuse.fails_in_optimizer[1]:
        right, why = {REFUSED}, "some weights have moved, and nothing can be repeated"
        return frozenset(right), why
    right, why = {EQUAL}, "parts weigh what the loss is a mean over"
    if misuse.fails_in_optimizer is not None:
        right, why = right | {REFUSED}, "no weight has moved: the update runs again, or the run ends in words"
    if misuse.from_step or misuse.name.startswith("the same by"):
        right, why = right | {REFUSED}, "what changes late, or behind torch, may be refused in words"
    if cell.couples:
        right, why = right | {SMALLER}, "parts are no way out: the same samples come as smaller steps"
        right |= {PASSES} if cell.way == "trainer" else {GIVEN_BACK} if cell.way == "engine" else set()
        if cell.model.needs_two and misuse.samples == 3:
            right, why = (
                right | {REFUSED},
                "one sample has no statistics: running ones are taken, which is said, or refused",
            )
    elif cell.way == "trainer" and cell.loss.weighs == "its own" and not misuse.declares:
        right |= {SMALLER, PASSES}
        why = "weights that are not declared are found, or the loss is not split without a word"
    return frozenset(right), why


def judge(cell: Cell) -> Verdict:
    """Train a cell, and the same by a plain loop."""
    start = time.process_time()
    torch.manual_seed(11)
    watch = Watch(cell)
    refusal, is_whole = "", True
    with _said() as said:
        try:
            is_whole = train(cell, watch)
        except TrainautoError as error:
            refusal = str(error)
        except (MixtureKeptError, TouchedError) as error:
            return Verdict(cell.key, WRONG, None, str(error), time.process_time() - start)
        except Exception as error:
            words = f"{type(error).__name__} reaches the user: {error}"
            return Verdict(cell.key, WRONG, None, words[:300], time.process_time() - start)
    outcome, error, words = _outcome(cell, watch.steps, refusal, said, is_whole=is_whole)
    if outcome != WRONG and outcome not in right_outcomes(cell)[0]:
        outcome, words = WRONG, f"{outcome}, where it should be {' or '.join(sorted(right_outcomes(cell)[0]))}: {words}"
    return Verdict(cell.key, outcome, error, words[:300], time.process_time() - start)


def _outcome(
    cell: Cell, steps: Sequence[Trained], refusal: str, said: Sequence[str], *, is_whole: bool
) -> tuple[str, float | None, str]:
    """Return what became of a run, how far it lies from a plain loop, and what there is to say of it."""
    numbers = sorted(number for step in steps for number in step.numbers)
    if any(not step.parts for step in steps):
        return WRONG, None, "a step that counts as trained had no gradients"
    if not refusal and is_whole and numbers != list(range(cell.misuse.total_samples)):
        times = f"{len(set(numbers))} of {cell.misuse.total_samples} samples, {len(numbers)} times in all"
        return WRONG, None, f"it trained {times}"
    is_single = cell.model.needs_two and any(len(part) == 1 for step in steps for part in step.parts)
    if is_single and not any("BatchNorm" in line for line in said):
        return WRONG, None, "batch norm trained one sample, without a word"
    error, outcome, words = worst_error(steps, trained_plainly(cell, steps)), EQUAL, ""
    if any(len(step.parts) > 1 for step in steps) and (cell.couples or error > MOST_ERROR):
        told = next((line for word in SAYINGS for line in said if word in line), "")
        ways = (samples_of, cell.loss.weigh)
        by_passes = min(worst_error(steps, trained_plainly(cell, steps, weigh)) for weigh in ways)
        if by_passes > MOST_ERROR or not told:
            return WRONG, error, f"it ran in parts {[len(part) for part in steps[0].parts]}, without a word"
        error, outcome, words = by_passes, PASSES, told
    if error > MOST_ERROR:
        return WRONG, error, "another update than that of plain PyTorch"
    if refusal:
        return REFUSED, error, " ".join(refusal.split())
    if not is_whole:
        return GIVEN_BACK, error, ""
    if any(len(step.numbers) != cell.misuse.samples for step in steps):
        return SMALLER, error, f"samples of steps: {[len(step.numbers) for step in steps]}"
    return outcome, error, words


@contextmanager
def _said() -> Iterator[list[str]]:
    """Collect what is warned of, in logs and by Python."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, logger = Kept(logging.WARNING), logging.getLogger("trainauto")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        quiet = io.StringIO()
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("always")
            yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        lines += [str(warning.message) for warning in caught]
