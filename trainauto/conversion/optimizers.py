"""Optimizers, the average of weights, and the limit of gradients."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainauto.conversion.answers import ITS_NAME, NOTHING, Left, Nothing
from trainauto.conversion.draft import Draft
from trainauto.conversion.known import near_argument
from trainauto.conversion.warmup import steps_of_warmup
from trainauto.options.foreign_files import Project
from trainauto.options.run_options import is_schedule_free
from trainauto.options.source_locations import KeyPath


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of theirs as it is written here.

    Attributes:
        name: here.
        defaults: arguments that are written out where theirs leaves them out, since defaults here may differ.
        fixed: arguments here that make it the same algorithm.
        left: arguments of theirs that are not here, and why.
        plain: what it is with ``schedule_free: false``.
    """

    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    plain: str = ""


_DECOUPLED = {"weight_decouple": True}
_FREE = {"warmup_steps": 0, "r": 0.0, "weight_lr_power": 2.0}
_ADAN = {"betas": [0.98, 0.92, 0.99], "eps": 1e-8}
_ONE_LOOP = {"foreach": "weights are updated together where that is faster"}
_NORM = {"max_grad_norm": "gradients are limited outside of the optimizer"}
_ONE_WARMUP = "warmup_iter warms the rate of this optimizer up as well, as train.warmup_steps"
_OF_FREE = dict.fromkeys(("warmup_steps", "r", "weight_lr_power"), "only the schedule-free one has it")

TORCH = {"adam": Optimizer("Adam"), "adamw": Optimizer("AdamW"), "nadam": Optimizer("NAdam"), "sgd": Optimizer("SGD")}
"""The classes of torch, in every project and here: their defaults are the same."""

OPTIMIZERS: Mapping[Project, Mapping[str, Optimizer]] = {
    Project.BASICSR: TORCH,
    Project.REDUX: {
        **TORCH,
        "stableadamw": Optimizer("StableAdamW"),
        "soap": Optimizer("SOAP"),
        "adopt": Optimizer("ADOPT"),
        "adan": Optimizer("Adan", {**_ADAN, "weight_decay": 0.0}, _DECOUPLED),
        "adamwschedulefree": Optimizer(
            "AdamWScheduleFree", {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, **_FREE}
        ),
        "adanschedulefree": Optimizer(
            "AdanScheduleFree", {**_ADAN, "weight_decay": 0.0, **_FREE, "warmup_steps": 10000}, left=_NORM
        ),
    },
    Project.NEOSR: {
        **TORCH,
        "adan": Optimizer("Adan", {**_ADAN, "weight_decay": 0.02}, _DECOUPLED, {**_ONE_LOOP, **_OF_FREE}),
        "adamw_sf": Optimizer(
            "AdamWScheduleFree",
            {"betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.0, **_FREE},
            left=_ONE_LOOP,
        ),
        "adan_sf": Optimizer(
            "AdanScheduleFree",
            {**_ADAN, "weight_decay": 0.02, **_FREE},
            left={**_ONE_LOOP, **_NORM},
            plain="adan",
        ),
    },
}
"""By their name in lower case."""

NEAREST = {"warmup_steps": "train.warmup_steps warms the rate up", "max_grad_norm": "train.grad_clip"}
"""What there is here in place of an argument."""

NEAR = {"adamw_win": "AdamW", "soap_sf": "SOAP", "adamax": "NAdam", "rmsprop": "Adam", "asgd": "SGD", "rprop": "Adam"}


def answer_optimizer(draft: Draft, key: str) -> None:
    """Answer ``train.optim_g`` or ``train.optim_d``."""
    path: KeyPath = ("train", key)
    chosen = draft.section(*path)
    given = chosen.get("type")
    if not isinstance(given, str) or draft.is_answered(path):
        return
    known = OPTIMIZERS[draft.project]
    optimizer = known.get(given.lower())
    if optimizer is None:
        near = NEAR.get(given.lower(), "Adam, AdamW, NAdam, Adan, SOAP and others: docs/options.md, Optimizers")
        draft.miss((*path, "type"), (*path, "type"), f"there is no optimizer {given} here", near)
        for other in draft.unanswered(*path):
            draft.keep(other)
        return
    if optimizer.plain and chosen.get("schedule_free") is False:
        draft.leave((*path, "schedule_free"), f"false means the plain one, {optimizer.plain}")
        optimizer = known[optimizer.plain]
    elif "schedule_free" in chosen:
        is_free = chosen["schedule_free"] is not False
        why = "the name of the optimizer says it here" if is_free else f"{given} averages weights all the same"
        draft.need_not((*path, "schedule_free"), (*path, "type"), why)
    if key == "optim_g":
        _note_differences(draft, given, optimizer, chosen)
    if optimizer.name.lower() == given.lower():
        draft.keep((*path, "type"))
    else:
        draft.write((*path, "type"), optimizer.name, [(*path, "type")], ITS_NAME)
    taken = draft.known.takes("optimizer", optimizer.name)
    for leaf in draft.unanswered(*path):
        _answer_argument(draft, leaf, optimizer, taken)
    for argument, value in optimizer.defaults.items():
        if argument not in draft.written(*path):
            is_second = argument == "warmup_steps" and value and _warms_up(draft)
            draft.add(
                (*path, argument), 0 if is_second else value, _ONE_WARMUP if is_second else f"{draft.project}'s default"
            )
    for argument, value in optimizer.fixed.items():
        if draft.written(*path, "weight_decay") and argument not in draft.written(*path):
            draft.add((*path, argument), value, f"{draft.project} decays weights apart from the gradient")


def _answer_argument(draft: Draft, path: KeyPath, optimizer: Optimizer, taken: Mapping[str, Any]) -> None:
    argument, value = str(path[2]), draft.get(*path)
    if argument == "no_prox":
        draft.write((*path[:2], "weight_decouple"), bool(value), [path], ITS_NAME)
    elif argument == "max_grad_norm" and argument in optimizer.left and not value:
        draft.need_not(path, path, "0 is no limit, which is the default here")
    elif argument in optimizer.left:
        draft.leave(path, optimizer.left[argument], NEAREST.get(argument, ""))
    elif not taken or argument in taken:
        is_second = argument == "warmup_steps" and value and _warms_up(draft)
        draft.write(path, 0 if is_second else value, [path], _ONE_WARMUP if is_second else "")
    elif argument in _OF_FREE:
        draft.leave(path, _OF_FREE[argument], NEAREST.get(argument, ""))
    else:
        draft.unknown_argument(path, optimizer.name, near_argument(argument, taken))


def _warms_up(draft: Draft) -> bool:
    return not isinstance(steps_of_warmup(draft.get("train", "warmup_iter"), draft), Nothing)


def _note_differences(draft: Draft, given: str, optimizer: Optimizer, chosen: Mapping[str, Any]) -> None:
    name, steps = optimizer.name, chosen.get("warmup_steps", optimizer.defaults.get("warmup_steps"))
    if name == "AdanScheduleFree":
        draft.differ(f"{draft.project}'s {given} moves weights otherwise: results differ at the same rate")
        if steps and not _warms_up(draft):
            draft.differ(
                f"warmup_steps of {draft.project}'s {given} weighs only its average; here the rate rises in them"
            )
    if draft.project is Project.NEOSR and is_schedule_free(name) and chosen.get("schedule_free") is not True:
        why = f"{given} averages weights there, too, but neosr validates and saves those in training unless"
        draft.differ(f"{why} schedule_free is true; here their average is validated and saved")


def limit_of_gradients(value: Any, draft: Draft) -> Any:
    """Return the norm that gradients are limited to, where their file switches that on."""
    if value is not True:
        return NOTHING
    if draft.project is Project.NEOSR:
        return 1.0
    return _as_float(draft.get("train", "grad_clip_max_norm", default=100.0))


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value


def norm_of_gradients(value: Any, draft: Draft) -> Any:
    """Return what becomes of the norm, which stands in the switch here."""
    if draft.get("train", "grad_clip", default=False) is True:
        return _as_float(value)
    return Left("grad_clip is false, so that nothing reads it", "grad_clip: NUMBER")


def drop_average_beside_schedule_free(draft: Draft) -> None:
    """Switch the average of weights off where the optimizer keeps one itself."""
    if not is_schedule_free(str(draft.written("train", "optim_g", "type"))):
        return
    for key in ("ema_power", "ema_update_after_step", "ema_switch_iter"):
        if draft.written("train", key) is not None:
            draft.remove(("train", key), "the optimizer averages weights itself")
    why = "the schedule-free optimizer averages weights itself, and that average is validated and saved"
    to: KeyPath = ("train", "ema_decay")
    sources = [path for path in (("train", "ema"), to) if path[1] in draft.section("train")]
    for path in (*sources, to):
        draft.take_back(path)
    if sources:
        draft.write(to, 0, sources, why)
    else:
        draft.add(to, 0, why)
