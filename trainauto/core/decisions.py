"""What an automation may ask for, and the facts of a run that it gets; its events are in ``core/automation.py``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainauto.core.plan import Axis, Plan


@dataclass(frozen=True)
class PlanChange:
    """Draw under another plan from now on.

    Attributes:
        plan: the plan asked for.
        reason: why, in words and with figures.
        predicted: bytes the new plan is expected to peak at; ``None`` where nothing was predicted.
        measured: bytes the old plan was measured to peak at.
        predicted_before: bytes the old plan was expected to peak at when it was taken up.
        early: made before the step it is reported with: a batch did not fit, or the option file had changed.
        announced: the log had a line on it before that step; not kept in files, so that a replay reports it.
    """

    plan: Plan
    reason: str
    predicted: int | None = None
    measured: int | None = None
    predicted_before: int | None = None
    early: bool = False
    announced: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class KeepPlan:
    """Stay with this plan although a step under it ran out of memory: its batch ran in pieces, and that is enough."""

    plan: Plan
    reason: str
    early: bool = False


@dataclass(frozen=True)
class RateFactor:
    """Multiply every scheduled learning rate by ``factor`` from now on (absolute, not cumulative).

    Attributes:
        by: the automation that has decided it; what it decided ends with it. Empty if unknown.
    """

    factor: float
    reason: str
    early: bool = False
    by: str = field(default="", compare=False)


@dataclass(frozen=True)
class ClipAt:
    """Clip gradients at this norm from now on; ``None`` stops clipping.

    Attributes:
        pass_name: the pass whose gradients are meant; empty for those of all, whatever was decided of one before.
        by: the automation that has decided it, as in :class:`RateFactor`.
    """

    max_norm: float | None
    reason: str
    early: bool = False
    pass_name: str = ""
    by: str = field(default="", compare=False)


USER_STOP = "user_stop"
"""How a run ends that a person has asked to stop: nothing was found out about it."""


@dataclass(frozen=True)
class Stop:
    """End the run after this step, as a success.

    Attributes:
        termination: what ended it, in one word for programs. After :data:`USER_STOP` a resume continues; after any
            other it trains nothing until its options have changed.
    """

    reason: str
    early: bool = False
    termination: str = ""


@dataclass(frozen=True)
class GoBack:
    """Go back to a checkpoint, and train on from there with the samples in another order.

    Attributes:
        good_until: the last step after which the weights are thought to be good; no later checkpoint is taken.
    """

    good_until: int
    reason: str
    early: bool = False


@dataclass(frozen=True)
class GiveUp:
    """End the run with an error that saves nothing: the last good checkpoint stands.

    Attributes:
        good_until: the last step after which the weights are thought to be good; later checkpoints are removed.
    """

    good_until: int
    reason: str
    early: bool = False


@dataclass(frozen=True)
class Rollback:
    """What the engine has made of :class:`GoBack`: logged with the step that the run went back to.

    Attributes:
        from_step: the last step that is undone.
        to_step: the step of the checkpoint.
        order: number of the order of samples in force from here; 1 after the first rollback of a run.
        position: place in the stream of samples from which it holds (0-based).
    """

    from_step: int
    to_step: int
    order: int
    position: int
    reason: str
    early: bool = False


@dataclass(frozen=True)
class MissingSteps:
    """What the engine notes of a log that lacks steps which were trained: logged with the last of them.

    Attributes:
        first: the first step that is missing.
        last: the last one.
    """

    first: int
    last: int
    reason: str
    early: bool = False


Decision = PlanChange | KeepPlan | RateFactor | ClipAt | Stop | GoBack | GiveUp | Rollback | MissingSteps


_OF_ROLLBACKS = ("from_step", "to_step", "order", "position")


def decision_to_dict(step: int, decision: Decision) -> dict[str, Any]:
    """Return a decision as a line holds it; ``predicted``, ``measured`` and ``predicted_before`` in bytes or null.

    ``kind`` is ``plan_change``, ``keep_plan``, ``rate_factor``, ``clip_at``, ``stop``, ``go_back``, ``give_up``,
    ``rollback`` or ``missing_steps``; ``plan`` is null in all but the first two. ``pass_name``, ``by`` and
    ``termination`` are there where they say something.
    """
    unknown = dict.fromkeys(("plan", "predicted", "measured", "predicted_before"))
    entry: dict[str, Any] = {"step": step, **unknown, "reason": decision.reason, "early": decision.early}
    match decision:
        case PlanChange(plan=plan):
            entry |= {"kind": "plan_change", "plan": plan.to_dict()}
            entry |= {name: getattr(decision, name) for name in ("predicted", "measured", "predicted_before")}
        case KeepPlan(plan=plan):
            entry |= {"kind": "keep_plan", "plan": plan.to_dict()}
        case RateFactor(factor=factor):
            entry |= {"kind": "rate_factor", "factor": factor} | ({"by": decision.by} if decision.by else {})
        case ClipAt(max_norm=max_norm, pass_name=pass_name):
            entry |= {"kind": "clip_at", "max_norm": max_norm} | ({"pass_name": pass_name} if pass_name else {})
            entry |= {"by": decision.by} if decision.by else {}
        case Stop(termination=termination):
            entry |= {"kind": "stop"} | ({"termination": termination} if termination else {})
        case GoBack(good_until=good_until):
            entry |= {"kind": "go_back", "good_until": good_until}
        case GiveUp(good_until=good_until):
            entry |= {"kind": "give_up", "good_until": good_until}
        case Rollback():
            entry |= {"kind": "rollback"} | {name: getattr(decision, name) for name in _OF_ROLLBACKS}
        case MissingSteps(first=first, last=last):
            entry |= {"kind": "missing_steps", "first": first, "last": last}
    return entry


def decision_from_dict(line: Mapping[str, Any]) -> Decision:
    """Return the decision that :func:`decision_to_dict` wrote, to replay it.

    Raises:
        ValueError: it is of a kind that this version does not know.
    """
    reason, early = line["reason"], line.get("early", False)
    match line["kind"]:
        case "plan_change":
            figures: dict[str, Any] = {name: line.get(name) for name in ("predicted", "measured", "predicted_before")}
            return PlanChange(Plan.from_dict(line["plan"]), reason, **figures, early=early)
        case "keep_plan":
            return KeepPlan(Plan.from_dict(line["plan"]), reason, early)
        case "rate_factor":
            return RateFactor(float(line["factor"]), reason, early, str(line.get("by", "")))
        case "clip_at":
            max_norm = None if line["max_norm"] is None else float(line["max_norm"])
            return ClipAt(max_norm, reason, early, str(line.get("pass_name", "")), str(line.get("by", "")))
        case "stop":
            return Stop(reason, early, str(line.get("termination", "")))
        case "go_back":
            return GoBack(int(line["good_until"]), reason, early)
        case "give_up":
            return GiveUp(int(line["good_until"]), reason, early)
        case "rollback":
            return Rollback(**{name: int(line[name]) for name in _OF_ROLLBACKS}, reason=reason, early=early)
        case "missing_steps":
            return MissingSteps(int(line["first"]), int(line["last"]), reason, early)
        case kind:
            raise ValueError(f"'{kind}' is no kind of decision")


@dataclass(frozen=True)
class RunFacts:
    """What an automation gets to know before the first step.

    Attributes:
        axes: the knobs of this run with their bounds.
        plan: the plan the run starts (or resumes) with.
        world_size: processes that train it together; each trains a batch of the plan.
        steps: of the whole run; ``None`` where it is not counted in steps.
        folder: the run's own; empty while it is being built, and for a loop that writes nothing.
        max_norm: what gradients are clipped at where no automation says otherwise; ``None`` does not clip.
        metrics: what validations will measure, such as ``val/psnr``; ``None`` if unknown beforehand.
        rollbacks: the steps that the run has gone back to so far, in order.
        direction_of: says of a metric by its name, as people write it, whether higher is better; ``None`` where it does
            not know. ``None`` in its place where each metric says so itself, when it is measured.
        lacks_clipping: what there must be for gradients to be clipped at what is decided; empty where nothing lacks.
        rate_factor: factor on the scheduled learning rates that is in force when the run begins, or is resumed.
    """

    axes: tuple[Axis, ...]
    plan: Plan
    world_size: int = field(default=1, kw_only=True)
    steps: int | None = field(default=None, kw_only=True)
    folder: str = field(default="", kw_only=True)
    max_norm: float | None = field(default=None, kw_only=True)
    metrics: tuple[str, ...] | None = field(default=None, kw_only=True)
    rollbacks: tuple[int, ...] = field(default=(), kw_only=True)
    direction_of: Callable[[str], bool | None] | None = field(default=None, kw_only=True)
    lacks_clipping: str = field(default="", kw_only=True)
    rate_factor: float = field(default=1.0, kw_only=True)
