"""A file of another project, as one of trainauto: every key of it is answered."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainauto.conversion.answers import Answer, Default, Kind
from trainauto.conversion.draft import Draft
from trainauto.conversion.known import Known
from trainauto.conversion.losses import answer_losses, has_gan, note_of_neosr_gan, weigh_sums
from trainauto.conversion.networks import answer_network
from trainauto.conversion.optimizers import answer_optimizer, drop_average_beside_schedule_free
from trainauto.conversion.projects import basicsr, neosr, redux
from trainauto.conversion.rules import Rules, answer_by_rules, key_path
from trainauto.conversion.schedules import answer_schedule
from trainauto.conversion.sets import (
    ALONE,
    answer_degradations,
    answer_sets,
    distinct_names,
    drop_degradations_of_files,
    enough_lookahead,
    kind_of_training,
    makes_low_quality,
)
from trainauto.conversion.validation import answer_metrics, validate_where_there_is_something
from trainauto.options.foreign_files import Project

RULES: dict[Project, Rules] = {
    Project.BASICSR: basicsr.RULES,
    Project.REDUX: redux.RULES,
    Project.NEOSR: neosr.RULES,
}
DEFAULTS: dict[Project, Sequence[Default]] = {
    Project.BASICSR: basicsr.DEFAULTS,
    Project.REDUX: redux.DEFAULTS,
    Project.NEOSR: neosr.DEFAULTS,
}


@dataclass(frozen=True)
class Conversion:
    """A file that has been translated.

    Attributes:
        project: whose file it was.
        theirs: its values.
        tree: values of the file here; empty where neither a run nor a test is left.
        answers: what became of its keys, in the order of their answers.
        is_test: it measures a trained network, and does not train.
        command: what does here what the file was for, after ``trainauto``; empty where a file is written.
    """

    project: Project
    theirs: dict[str, Any]
    tree: dict[str, Any]
    answers: tuple[Answer, ...]
    is_test: bool
    command: str = ""

    def of(self, kind: Kind) -> list[Answer]:
        """Return the answers of a kind."""
        return [answer for answer in self.answers if answer.kind is kind]

    @property
    def is_complete(self) -> bool:
        """Whether the file can be used as it is: nothing that it names is missing."""
        return not self.of(Kind.MISSING)


def convert(theirs: dict[str, Any], project: Project, known: Known | None = None) -> Conversion:
    """Translate the values of an option file.

    Args:
        theirs: values of the file.
        project: whose file it is.
        known: components that are registered here.
    """
    draft = Draft(theirs, project, known or Known())
    answer_sets(draft)
    _answer_model(draft)
    answer_network(draft, "network_g")
    _answer_training(draft)
    answer_metrics(draft)
    answer_degradations(draft, "degradations")
    answer_by_rules(draft, RULES[project])
    _add_defaults(draft)
    _settle(draft)
    tree = {} if _has_nothing_to_measure(draft) else draft.tree
    return Conversion(project, theirs, tree, tuple(draft.answers), draft.is_test, _command_of(draft))


def _answer_training(draft: Draft) -> None:
    if draft.is_test:
        return
    answer_losses(draft)
    _answer_opponent(draft)
    answer_optimizer(draft, "optim_g")
    answer_optimizer(draft, "optim_d")
    answer_schedule(draft)
    if draft.project is not Project.BASICSR:
        why = f"{draft.project} trains against network_d" if has_gan(draft) else "it has no discriminator"
        _write_model(draft, "SRGANModel" if has_gan(draft) else "SRModel", why)


def _answer_model(draft: Draft) -> None:
    """Answer ``model_type`` of BasicSR, which says how a network is trained."""
    given = draft.get("model_type")
    path = ("model_type",)
    if not isinstance(given, str) or (draft.project is not Project.BASICSR and not draft.is_test):
        return
    name = basicsr.MODELS.get(given.lower())
    if draft.is_test:
        draft.leave(path, "a test measures any network alike")
    elif name is None:
        draft.miss(path, path, f"there is no model {given} here", "SRModel, SRGANModel, ESRGANModel")
    else:
        draft.write(path, name, [path], "the training set makes low-quality images here")


def _write_model(draft: Draft, name: str, why: str) -> None:
    if draft.get("model_type") is not None:
        draft.write(("model_type",), name, [("model_type",)], why)
    else:
        draft.add(("model_type",), name, why)


def _answer_opponent(draft: Draft) -> None:
    """Answer the discriminator; without a loss against it, it has no effect, there as well."""
    if has_gan(draft) or draft.project is Project.BASICSR:
        answer_network(draft, "network_d")
        return
    for path in (("network_d",), ("train", "optim_d")):
        if draft.section(*path):
            draft.leave(path, "no loss weighs its judgement, so that it has no effect")


def _add_defaults(draft: Draft) -> None:
    for default in DEFAULTS[draft.project]:
        beside = [_here(draft, key) for key in default.beside]
        if draft.written(*key_path(default.to)) is not None or any(_there(draft, key) for key in default.unless):
            continue
        if (not default.beside or any(beside)) and default.fits(draft):
            draft.add(key_path(default.to), default.value, default.why)
    if draft.project is Project.REDUX and makes_low_quality(draft):
        why = "traiNNer-redux's defaults, where the file leaves keys out"
        draft.add(("degradation_preset",), "mild", why)
    is_either = draft.project is Project.REDUX and kind_of_training(draft) == "realesrganpaireddataset"
    if is_either and draft.written("dataroot_lq_prob") is None:
        draft.add(("datasets", "train", "dataroot_lq_prob"), 0, "traiNNer-redux's default")
    if (project := draft.written("logger", "wandb", "project")) is not None and project:
        draft.add(("logger", "wandb", "mode"), "online", f"{draft.project} uploads; offline keeps it on this machine")
    if draft.project is Project.NEOSR and not draft.is_test and draft.get("train", "clamp") is None:
        draft.leave(("train", "clamp"), neosr.CLAMP.why)


def _here(draft: Draft, key: str) -> bool:
    return draft.written(*key_path(key)) not in (None, False, 0)


def _there(draft: Draft, key: str) -> bool:
    return draft.get(*key_path(key)) is not None


def _settle(draft: Draft) -> None:
    """Settle what keys decide together."""
    if not draft.written("train", "ema_decay"):
        for key in ("ema_power", "ema_update_after_step", "ema_switch_iter"):
            if draft.written("train", key) is not None:
                draft.remove(("train", key), "there is no average to begin", "train.ema_decay")
    drop_average_beside_schedule_free(draft)
    if draft.project is Project.REDUX:
        redux.settle_half_precision(draft)
    drop_degradations_of_files(draft)
    enough_lookahead(draft)
    distinct_names(draft)
    validate_where_there_is_something(draft)
    note_of_neosr_gan(draft)
    weigh_sums(draft)
    if draft.project is Project.BASICSR and "network_d" not in draft.theirs and draft.written("train", "optim_d"):
        draft.remove(("train", "optim_d"), "there is no discriminator")


def _has_nothing_to_measure(draft: Draft) -> bool:
    return draft.is_test and not draft.written("datasets")


def _command_of(draft: Draft) -> str:
    """Return the command that does what a file is for that neither trains nor measures; empty for others."""
    if not _has_nothing_to_measure(draft):
        return ""
    weights = draft.get("path", "pretrain_network_g", default="WEIGHTS")
    if "onnx" in draft.theirs:
        return f"export --weights {shlex.quote(str(weights))} network.onnx --format onnx"
    sets = [one for one in draft.section("datasets").values() if isinstance(one, dict)]
    roots = [one.get("dataroot_lq") for one in sets if str(one.get("type")).lower() in ALONE]
    if not roots or not roots[0]:
        return ""
    first = roots[0][0] if isinstance(roots[0], list) else roots[0]
    return f"upscale --weights {shlex.quote(str(weights))} {shlex.quote(str(first))} large"
