"""Schedules of the rate: those of torch mean the same here, or are written as one that does."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch.optim import lr_scheduler

from trainauto.conversion.answers import ITS_NAME, Left, Nothing
from trainauto.conversion.draft import Draft
from trainauto.conversion.known import near_argument
from trainauto.conversion.warmup import steps_of_warmup
from trainauto.options.source_locations import KeyPath

PATH: KeyPath = ("train", "scheduler")
NAMES = {"multisteprestartlr": "MultiStepLR", "cosineannealing": "CosineAnnealingLR", "reducelronplateau": ""}
"""Schedules of theirs, in lower case, that have another name here; empty for a name that means something else here."""

NEAR = {
    "cycliclr": "CosineAnnealingWarmRestarts, or OneCycleLR for one cycle",
    "chainedscheduler": "WarmupStableDecayLR, or train.warmup_steps beside one schedule",
    "sequentiallr": "WarmupStableDecayLR, or train.warmup_steps beside one schedule",
}
"""The nearest schedule here to one that is not, by its name in lower case."""

_OTHERWISE = "MultiStepLR, CosineAnnealingLR, StepLR and others: docs/options.md, Schedules"
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "multisteplr": {"gamma": 0.1},
    "steplr": {"gamma": 0.1},
    "polynomiallr": {"total_iters": 5},
}
"""Defaults of theirs that differ from those here, by the name here in lower case."""

_NOT_NEEDED = {
    "last_epoch": (-1, "a resumed run goes on where it was"),
    "verbose": (False, "the rate of every step is recorded"),
    "num_cycles": (0.5, "the cosine is half a cycle here"),
    "cycle_momentum": (False, "nothing but the rate changes here"),
}
"""Arguments of theirs that are not here, with the value that means the same, and why it does."""

_OF_ONE_CYCLE = ("cycle_momentum", "base_momentum", "max_momentum")
_THIRD = 1 / 3


class Written:
    """A schedule as it is written here, in place of one whose name means something else here.

    Args:
        name: here.
        arguments: here.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        self.name = name
        self.arguments = arguments


Rewritten = Written | Left | str
"""What becomes of such a schedule; text says why it has no equal, and that it has to be changed."""


def answer_schedule(draft: Draft) -> None:
    """Answer ``train.scheduler``."""
    given = draft.get(*PATH, "type")
    if not isinstance(given, str):
        return
    name = NAMES.get(given.lower(), given)
    rewrite = _REWRITTEN.get(name.lower())
    if rewrite is not None:
        _answer_rewritten(draft, given, rewrite(draft, draft.section(*PATH)))
    elif not name or not draft.known.has("schedule", name):
        _miss(draft, f"there is no schedule {given} here", NEAR.get(given.lower(), _OTHERWISE))
    else:
        draft.write((*PATH, "type"), name, [(*PATH, "type")], ITS_NAME)
        _answer_arguments(draft, name)


def _miss(draft: Draft, why: str, near: str) -> None:
    draft.miss((*PATH, "type"), (*PATH, "type"), why, near)
    for other in draft.unanswered(*PATH):
        draft.keep(other)


def _answer_arguments(draft: Draft, name: str) -> None:
    taken = draft.known.takes("schedule", name)
    if name.lower() == "onecyclelr":
        _answer_one_cycle(draft)
    for leaf in draft.unanswered(*PATH):
        argument, value = str(leaf[2]), draft.get(*leaf)
        same, why = _NOT_NEEDED.get(argument, (None, ""))
        if argument in taken:
            draft.write(leaf, value, [leaf])
        elif why and value == same:
            draft.need_not(leaf, (*PATH, "type"), why)
        elif why or argument in _arguments_in_torch(name):
            draft.leave(leaf, f"{name} has no such argument here")
        else:
            draft.unknown_argument(leaf, name, near_argument(argument, taken.keys() - {"total"}))
    for argument, default in _DEFAULTS.get(name.lower(), {}).items():
        if draft.written(*PATH, argument) is None:
            draft.add((*PATH, argument), default, f"{draft.project}'s default")
    rate, other = (draft.get("train", key, "lr") for key in ("optim_g", "optim_d"))
    if (
        name.lower() == "kneelr"
        and "peak_lr" not in draft.written(*PATH)
        and None not in (rate, other)
        and rate != other
    ):
        draft.add((*PATH, "peak_lr"), rate, f"{draft.project} takes the rate of optim_g for both optimizers")


def _arguments_in_torch(name: str) -> set[str]:
    kinds = {key.lower(): kind for key, kind in vars(lr_scheduler).items() if isinstance(kind, type)}
    kind = kinds.get(name.lower())
    return set() if kind is None else inspect.signature(kind).parameters.keys() - {"optimizer"}


def _answer_one_cycle(draft: Draft) -> None:
    """Write the length of a cycle as one number, and say that momentum stays."""
    epochs, steps = (draft.get(*PATH, key) for key in ("epochs", "steps_per_epoch"))
    if "total_steps" not in draft.section(*PATH) and isinstance(epochs, int) and isinstance(steps, int):
        sources: list[KeyPath] = [(*PATH, "epochs"), (*PATH, "steps_per_epoch")]
        draft.write((*PATH, "total_steps"), epochs * steps, sources, "epochs x steps_per_epoch")
    if draft.get(*PATH, "cycle_momentum", default=True) is not False:
        draft.differ("OneCycleLR of torch also moves momentum, or the first of betas; here both stay as they are")
        for path in [leaf for leaf in draft.unanswered(*PATH) if leaf[2] in _OF_ONE_CYCLE]:
            draft.leave(path, "nothing but the rate changes here")


def _answer_rewritten(draft: Draft, given: str, found: Rewritten) -> None:
    if isinstance(found, str):
        _miss(draft, found, _OTHERWISE)
    elif isinstance(found, Left):
        draft.leave(PATH, found.why, found.near)
    else:
        why = f"the same as {given} there"
        path: KeyPath = (*PATH, "type")
        draft.write(path, found.name, [path], why)
        for leaf in draft.unanswered(*PATH):
            value = found.arguments.get(str(leaf[2]))
            if leaf[2] not in _arguments_in_torch(given):
                draft.unknown_argument(leaf, given, near_argument(str(leaf[2]), _arguments_in_torch(given)))
            elif value is None:
                draft.need_not(leaf, path, f"{found.name} says it")
            else:
                draft.write(leaf, value, [leaf])
        for argument, value in found.arguments.items():
            if argument not in draft.written(*PATH):
                draft.add((*PATH, argument), value, why)


def _linear(draft: Draft, chosen: Mapping[str, Any]) -> Rewritten:
    """Return what torch's line from ``start_factor`` to ``end_factor`` in ``total_iters`` steps is here."""
    first, last = chosen.get("start_factor", _THIRD), chosen.get("end_factor", 1.0)
    steps = chosen.get("total_iters", 5)
    if not all(isinstance(one, int | float) for one in (first, last, steps)):
        return "its arguments are no numbers"
    if first == last == 1:
        return Written("constant")
    if first == 1 and steps == draft.get("train", "total_iter"):
        return Written("linear", end_factor=last)
    if first == 1 and last == 0:
        return Written("PolynomialLR", power=1.0, total_iters=steps)
    words = f"the factor of the rate goes from {first:.3g} to {last:.3g} in {steps:g} steps there"
    return _beginning(draft, words, steps) if first < last == 1 else f"{words}; linear here falls over the whole run"


def _constant(draft: Draft, chosen: Mapping[str, Any]) -> Rewritten:
    """Return what torch's ``factor`` for ``total_iters`` steps is here."""
    factor, steps = chosen.get("factor", _THIRD), chosen.get("total_iters", 5)
    if not all(isinstance(one, int | float) for one in (factor, steps)):
        return "its arguments are no numbers"
    if factor == 1 or steps <= 0:
        return Written("constant")
    words = f"the factor of the rate is {factor:.3g} for {steps:g} steps there"
    return _beginning(draft, words, steps) if factor < 1 else f"{words}; constant here keeps it"


def _beginning(draft: Draft, words: str, steps: float) -> Rewritten:
    """Return what a run that begins at a lower rate is here: a constant rate, with a warm-up of its own."""
    total = draft.get("train", "total_iter")
    if not isinstance(total, int | float) or steps >= total:
        return f"{words}, which is the whole run"
    if not isinstance(steps_of_warmup(draft.get("train", "warmup_iter"), draft), Nothing):
        return Left(f"{words}; train.warmup_steps begins at a lower rate here")
    return Left(f"{words}; here it is constant", f"train.warmup_steps: {steps:g} begins at a lower rate, too")


def _exponential(draft: Draft, chosen: Mapping[str, Any]) -> Rewritten:
    del draft
    gamma = chosen.get("gamma")
    return "it names no gamma" if gamma is None else Written("StepLR", step_size=1, gamma=gamma)


_REWRITTEN: Mapping[str, Callable[[Draft, Mapping[str, Any]], Rewritten]] = {
    "linearlr": _linear,
    "constantlr": _constant,
    "exponentiallr": _exponential,
}
"""Schedules of torch whose names mean something else here, or are not here, in lower case."""
