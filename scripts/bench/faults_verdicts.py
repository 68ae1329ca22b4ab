"""What a fault is, and how what became of a run is judged."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from faults_forks import Ended, run
from faults_tasks import Outcome, copied, trained

SURVIVED, BLOCK, TRACEBACK, HANG, WRONG = "survived", "one clear block", "traceback", "hang", "silently wrong"
NOT_MET = "not met"
"""The run ended before the place of the fault: it says nothing."""

OUTCOMES = (SURVIVED, BLOCK, TRACEBACK, HANG, WRONG)
SHOWN = 160
"""Letters of a message that a table shows."""

STOPPED = {129, 130, 143}
"""Exit codes of runs that a signal stopped."""

NEAR = 0.02
"""Share of the largest weight by which weights may differ where a step ran in pieces, or an optimizer one by one."""

OF_LIBRARIES = re.compile(
    r"(?:^|(?<=\r))[^\r\n]{0,80}?\d+%\|[^\r\n]*[\r\n]*|^libpng (?:error|warning): [^\n]*\n", re.MULTILINE
)
"""Lines on stderr that are no blocks: transformers' bar while it saves a model, and what libpng writes by itself."""

MET = ".met"
"""A file that says that the fault has come to pass."""


@dataclass(frozen=True)
class Verdict:
    """What became of a run that a fault was injected into.

    Attributes:
        outcome: one of :data:`OUTCOMES`, or :data:`NOT_MET`.
        message: what it said.
        why: what is wrong with it.
    """

    outcome: str
    message: str = ""
    why: str = ""


@dataclass(frozen=True)
class Bench:
    """Where a fault is met.

    Attributes:
        base: folders that are prepared, and those of undisturbed runs.
        folder: of this fault; nothing else is in it.
    """

    base: Path
    folder: Path

    def begin(self, task: str, *, trained_before: bool = False) -> Path:
        """Copy what a task needs, or what an undisturbed run has left; return the folder."""
        return copied(self.base / (f"{task}.trained" if trained_before else task), self.folder / "run")

    def undisturbed(self, task: str) -> Outcome:
        """Return what a run without faults leaves."""
        return Outcome.of(self.base / f"{task}.trained")

    @cached_property
    def place(self) -> Path:
        """Return the folder of the run."""
        return self.folder / "run"


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, once and in one way.

    Attributes:
        kind: row of the table.
        name: tells it from all others.
        meet: has it happen, and judges.
    """

    kind: str
    name: str
    meet: Callable[[Bench], Verdict]


def shown(text: str) -> str:
    """Return the beginning of a message on one line."""
    words = " ".join(text.split())
    return words if len(words) <= SHOWN else words[: SHOWN - 4].rstrip() + " ..."


def plainly_bad(ended: Ended) -> Verdict | None:
    """Return the verdict on a hang, a traceback, or an end by a signal that the bench did not send."""
    if ended.hung:
        return Verdict(HANG, shown(ended.said[-SHOWN:]), "no end within 60 s")
    said = ended.said + ended.block
    if "Traceback (most recent call last)" in said:
        return Verdict(TRACEBACK, shown(said.strip().splitlines()[-1]), said[-3000:])
    if ended.code < 0:
        return Verdict(WRONG, shown(said[-SHOWN:]), f"ended by signal {-ended.code}")
    return None


def block_of(ended: Ended) -> tuple[str, str]:
    """Return the block of a run that failed, and what is wrong with it; empty where nothing is."""
    said = OF_LIBRARIES.sub("", ended.block)
    blocks = [block for block in re.split(r"\n\s*\n", said.strip()) if block.strip()]
    if not blocks:
        return "", "no block"
    if len(blocks) > 1:
        return ended.block, f"{len(blocks)} blocks"
    is_advised = len(re.findall(r"[.:;?!](?:\s|$)", blocks[0])) > 1 or len(blocks[0].splitlines()) > 1
    return blocks[0], "" if is_advised else "no remedy"


def refused(ended: Ended, words: str = "") -> Verdict:
    """Judge a command that has to refuse what it was given, in one block that may have to hold some words."""
    bad = plainly_bad(ended)
    if bad is not None:
        return bad
    if not ended.code:
        return Verdict(WRONG, shown(ended.said[-SHOWN:]), "was accepted")
    block, flaw = block_of(ended)
    if not flaw and words and not re.search(words, " ".join(block.split())):
        flaw = f"does not say: {words}"
    return Verdict(WRONG if flaw else BLOCK, shown(block), flaw)


def difference(outcome: Outcome, undisturbed: Outcome, is_told: bool) -> str:
    """Say how a run differs from an undisturbed one more than it has told; empty where it does not."""
    if outcome.weights == undisturbed.weights:
        kept = (outcome.steps, outcome.lines, outcome.pictures)
        expected = (undisturbed.steps, undisturbed.lines, undisturbed.pictures)
        return "" if is_told or kept == expected else f"equal weights; kept {kept}, not {expected}"
    if not outcome.weights:
        return "no weights"
    distance = outcome.distance(undisturbed)
    if not is_told:
        return f"other weights by {distance:.2g} of the largest, and nothing is told"
    if outcome.samples == undisturbed.samples and distance > NEAR:
        return f"the same samples, and weights differ by {distance:.2g} of the largest"
    return ""


def judged_training(
    bench: Bench,
    task: str,
    disturbed: Callable[[], int],
    told: str,
    *,
    resumed: Callable[[], int] | None = None,
    may_be_killed: bool = False,
) -> Verdict:
    """Judge a disturbed run by what it leaves, and by what a resume without faults makes of that.

    Args:
        bench: where; :meth:`Bench.begin` was called.
        task: which.
        disturbed: the run with the fault.
        told: a pattern of words by which a run says that something was not as planned.
        resumed: resumes it; as the command does where nothing is given.
        may_be_killed: whether the fault ends the process.
    """
    first = run(disturbed, bench.place, "first")
    was_met = (bench.place / MET).exists()
    if may_be_killed and first.code < 0 and not first.hung:
        message = f"killed ({first.code})"
    elif (bad := plainly_bad(first)) is not None:
        return bad
    elif first.code in STOPPED:
        message = shown(first.said[-SHOWN:])
    elif first.code:
        message, flaw = block_of(first)
        if flaw:
            return Verdict(WRONG, shown(message or first.words[-SHOWN:]), flaw)
    else:
        message = ""
    words = first.words
    if first.code:
        again = run(resumed or (lambda: trained(task)), bench.place, "again")
        if (bad := plainly_bad(again)) is not None:
            return Verdict(bad.outcome, bad.message, f"after «{shown(message)}», the resume: {bad.why}")
        if again.code:
            return Verdict(WRONG, shown(again.block), f"after «{shown(message)}» it does not resume")
        words += again.words
    match = re.search(told, words)
    differs = difference(Outcome.of(bench.place), bench.undisturbed(task), match is not None)
    if differs:
        return Verdict(WRONG, shown(message), differs)
    if not was_met:
        return Verdict(NOT_MET)
    if first.code > 0 and first.code not in STOPPED:
        return Verdict(BLOCK, shown(message))
    said = sentence_around(words, match) if match is not None else message
    return Verdict(SURVIVED, shown(said))


def sentence_around(words: str, match: re.Match[str]) -> str:
    """Return what a run has told, from a little before the words that were found."""
    return words[max(0, match.start() - 20) :]
