"""What happened in a run, each thing once, with its reason: plans, failures, resumes, the end."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainauto.core.decisions import (
    ClipAt,
    Decision,
    GiveUp,
    GoBack,
    KeepPlan,
    MissingSteps,
    PlanChange,
    RateFactor,
    Rollback,
    Stop,
)
from trainauto.core.records import StepRecord
from trainauto.core.units import size_text
from trainauto.core.words import counted, visible
from trainauto.reporting.formatting import missing_text, parts_text, plan_text
from trainauto.reporting.step_stats import error_text

FIRST_EVENTS, LAST_EVENTS = 100, 400
"""Events that a page shows of a run with more: how it began, and what it did of late."""

MOST_MARKS = 200
"""Lines in a chart that stand for events."""

LONGEST_REASON, LONGEST_MARK = 300, 120
"""Characters of a reason in the list, where that of a foreign error may be a page long, and of one in a curve."""


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        step: after which step, or at which.
        kind: ``plan``, ``oom``, ``resume``, ``rate``, ``rollback``, ``stop``, ``end``, ``fail`` or ``note``.
        title: what, in a few words.
        text: why.
        time: when, in seconds since 1970; ``None`` if it was not recorded.
    """

    step: int
    kind: str
    title: str
    text: str = ""
    time: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the event as the page has it; text from outside harms no reader."""
        shown = {"title": visible(self.title, LONGEST_REASON), "text": visible(self.text, LONGEST_REASON)}
        return {"step": self.step, "time": self.time, "kind": self.kind, **shown}

    def to_mark(self) -> dict[str, Any]:
        """Return the line that stands for it in curves."""
        text = f"{self.title}: {self.text}" if self.text else self.title
        return {"x": self.step, "kind": self.kind, "text": visible(text, LONGEST_MARK)}


class Events:
    """The events of a run in their order; of very many, the first and the last."""

    def __init__(self) -> None:
        self._first: list[Event] = []
        self._last: deque[Event] = deque(maxlen=LAST_EVENTS)
        self._counts: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Keep one more."""
        self._counts[event.kind] += 1
        if len(self._first) < FIRST_EVENTS:
            self._first.append(event)
        else:
            self._last.append(event)

    def __iter__(self) -> Iterator[Event]:
        yield from self._first
        yield from self._last

    @property
    def left_out(self) -> int:
        """How many are not kept."""
        return self._counts.total() - len(self._first) - len(self._last)

    def count(self, kind: str) -> int:
        """Return how many there were of a kind, those that are not kept included."""
        return self._counts[kind]


def event_of(step: int, decision: Decision, time: float | None) -> Event:
    """Return a decision as an event."""
    match decision:
        case PlanChange(plan=plan):
            figures = "; ".join(_expected(decision))
            return Event(step, "plan", f"plan → {plan}", f"{decision.reason}{f' ({figures})' if figures else ''}", time)
        case KeepPlan(plan=plan):
            return Event(step, "plan", f"plan stays {plan}", decision.reason, time)
        case RateFactor(factor=factor):
            return Event(step, "rate", f"learning rate → {factor:.4g} × schedule", decision.reason, time)
        case ClipAt(max_norm=max_norm, pass_name=pass_name):
            title = "clipping of gradients off" if max_norm is None else f"gradients clipped at norm {max_norm:.4g}"
            return Event(step, "rate", f"{title} in pass {pass_name}" if pass_name else title, decision.reason, time)
        case Stop():
            return Event(step, "stop", "asked to stop", decision.reason, time)
        case GoBack(good_until=good_until):
            title = f"asked to go back to a checkpoint of step {good_until} or before"
            return Event(step, "rollback", title, decision.reason, time)
        case GiveUp():
            return Event(step, "fail", "given up", decision.reason, time)
        case Rollback(from_step=from_step, to_step=to_step):
            undone = counted(from_step - to_step, "step")
            title = f"back from step {from_step} to {to_step} ({undone} undone), samples in another order"
            return Event(step, "rollback", title, decision.reason, time)
        case MissingSteps(first=first, last=last):
            return Event(step, "note", f"{missing_text(first, last)} missing in the log", decision.reason, time)


def shortage_of(record: StepRecord, time: float | None) -> Event:
    """Return the event of a step in which memory ran out."""
    ran = ", ".join(f"{name} in {parts_text(split, record.plan)}" for name, split in record.pieces.items())
    end = f"trained all the same: {ran}" if ran else "trained as a smaller batch"
    title = f"out of memory, {counted(record.ooms, 'time')}, under {plan_text(record.plan)}"
    return Event(record.step, "oom", title, end, time)


def marks_of(events: Events, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines in curves that stand for events of some kinds; of many, the first and the last."""
    marks = [event.to_mark() for event in events if event.kind in kinds]
    return marks if len(marks) <= MOST_MARKS else marks[: MOST_MARKS // 4] + marks[-3 * MOST_MARKS // 4 :]


def _expected(change: PlanChange) -> Iterator[str]:
    if change.predicted is not None:
        yield f"predicted {size_text(change.predicted)}"
    if change.measured is not None:
        yield f"the plan before measured {size_text(change.measured)}"
        if change.predicted_before is not None:
            yield f"its prediction was off by {error_text(change.predicted_before, change.measured)}"
