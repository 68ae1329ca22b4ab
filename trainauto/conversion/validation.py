"""Validation: metrics, and whether there is anything to validate on."""

from trainauto.conversion.draft import Draft
from trainauto.conversion.known import near_argument
from trainauto.options.foreign_files import Project
from trainauto.options.source_locations import KeyPath

NEAR = {
    "calculate_niqe": "calculate_dists",
    "calculate_topiq": "calculate_lpips and calculate_dists",
    "calculate_topiq_nr": "calculate_lpips and calculate_dists",
    "calculate_fid": "calculate_dists",
}
"""The nearest metric here to one that is not."""

WHY = {
    "calculate_niqe": "metrics here compare with a reference",
    "calculate_topiq": "its weights allow no commercial use",
    "calculate_topiq_nr": "metrics here compare with a reference",
    "calculate_fid": "metrics here compare image by image",
}
"""Why there is no such metric here."""

BORDER_OF_NEOSR = 4


def answer_metrics(draft: Draft) -> None:
    """Answer the items of ``val.metrics``."""
    path: KeyPath = ("val", "metrics")
    metrics = draft.section(*path)
    is_off = draft.project is Project.REDUX and metrics and not draft.get("val", "metrics_enabled", default=False)
    if is_off:
        draft.leave(path, "metrics_enabled is false: they are not computed", "val.metrics, which computes all it names")
        return
    for name, chosen in metrics.items():
        if isinstance(chosen, dict) and isinstance(chosen.get("type"), str):
            _answer_metric(draft, (*path, name), chosen["type"])


def _answer_metric(draft: Draft, path: KeyPath, given: str) -> None:
    if not draft.known.has("metric", given):
        near = NEAR.get(given.lower()) or draft.known.near("metric", given)
        reason = f": {WHY[given.lower()]}" if given.lower() in WHY else ""
        draft.leave(path, f"there is no metric {given} here{reason}", near)
        return
    draft.keep((*path, "type"))
    taken = draft.known.takes("metric", given)
    for leaf in draft.unanswered(*path):
        if leaf[-1] == "better":
            draft.leave(leaf, "a metric knows it itself")
        elif leaf[3] in taken:
            draft.keep(leaf)
        elif leaf[3] in ("input_order", "device"):
            draft.leave(leaf, f"{given} has no such argument here")
        else:
            draft.unknown_argument(leaf, given, near_argument(str(leaf[3]), taken))
    if draft.project is Project.NEOSR and "crop_border" in taken and draft.written(*path, "crop_border") is None:
        draft.add((*path, "crop_border"), BORDER_OF_NEOSR, "neosr's default")


def validate_where_there_is_something(draft: Draft) -> None:
    """Switch validation off where the file leaves nothing to validate on, or nothing that it would leave."""
    if draft.is_test:
        return
    sets = [key for key in draft.written("datasets") or {} if key != "train"]
    val = draft.tree.get("val", {})
    if not sets and val and val.get("val_enabled", True):
        _switch_off(draft, "no set is left to validate on")
    elif sets and not draft.section("val"):
        draft.add(("val", "val_enabled"), False, f"{draft.project} does not validate without a section val")
    elif sets and val.get("val_enabled", True) and not val.get("metrics") and not val.get("save_img", True):
        _switch_off(draft, "neither metrics nor pictures are left")


def _switch_off(draft: Draft, why: str) -> None:
    path: KeyPath = ("val", "val_enabled")
    if draft.get(*path) is None:
        draft.add(path, False, why)
        return
    draft.take_back(path)
    draft.write(path, False, [path], why)
