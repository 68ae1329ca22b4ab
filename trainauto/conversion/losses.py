"""Losses: items of ``train.losses``, or sections of their own that end in ``_opt``, as items here."""

from math import isfinite
from typing import Any

from trainauto.conversion.answers import ITS_PLACE
from trainauto.conversion.draft import Draft
from trainauto.conversion.known import near_argument
from trainauto.options.foreign_files import Project
from trainauto.options.source_locations import KeyPath
from trainauto.tasks.sr.losses.left_out import why_left_out

NAMES = {
    Project.REDUX: {},
    Project.BASICSR: {"perceptualloss": "vggperceptualloss"},
    Project.NEOSR: {"vgg_perceptual_loss": ""},
}
"""Names of theirs, in lower case, that are others here; empty for a name that means something else here."""

NEAR = {
    "ganfeatloss": "perceptualloss compares features of VGG19 instead of the discriminator's",
    "multiscaleganloss": "ganloss, for a discriminator that gives one judgement",
    "vgg_perceptual_loss": "perceptualloss compares the same layers, without criterion chc and patches",
}
"""The nearest loss here to one that is not, beside those that losses here know of."""

ARGUMENTS_THERE = frozenset(
    (
        *("alpha", "antialiased", "channels", "color_space", "crop_border", "downsample", "num_proj_fd"),
        *("phase_weight_fd", "reduction", "stride_fd", "test_y_channel", "verbose_logging", "w_lambda"),
    )
)
"""Arguments of their losses that the same losses do not take here."""

_SUMMED = "the mean here; a sum over the batch is so many times the mean"
_MEAN = "reduction: mean, with loss_weight times the number of values that are summed"
_ELEMENTWISE = ("l1loss", "l1", "mseloss", "mse", "l2", "charbonnierloss", "charbonnier", "huberloss", "huber_loss")
"""Losses, in lower case, that compare each value of images by itself."""

_HALVES = {"pd+l1": "pd", "fd+l1": "fd"}


def answer_losses(draft: Draft) -> None:
    """Answer all losses, in the order in which they stand."""
    items: list[KeyPath] = []
    listed = draft.get("train", "losses")
    if isinstance(listed, list) and listed:
        items = [("train", "losses", number) for number in range(len(listed))]
    old_form: list[KeyPath] = [("train", key) for key, value in draft.section("train").items() if _is_loss(key, value)]
    if items and old_form:
        for path in old_form:
            draft.leave(path, "train.losses stands beside it, and hides it there, too")
    place = 0
    for path in items or old_form:
        if _answer_loss(draft, path, place):
            place += 1


def _is_loss(key: str, value: Any) -> bool:
    return key.endswith("_opt") and isinstance(value, dict)


def _answer_loss(draft: Draft, path: KeyPath, place: int) -> bool:
    """Answer a loss; return whether it is written, as the item ``place``."""
    chosen = draft.section(*path)
    given = chosen.get("type")
    if not isinstance(given, str):
        draft.leave(path, "it names no type")
        return False
    name = NAMES[draft.project].get(given.lower(), given)
    if path[-1] == "ldl_opt" and draft.project is Project.BASICSR:
        name = "ldlloss"
    to: KeyPath = ("train", "losses", place)
    if name and not draft.known.has("loss", name) and _is_unheard_of(given):
        near = draft.known.near("loss", given)
        draft.miss((*path, "type"), (*to, "type"), f"no project has a loss {given}, as far as is known here", near)
        for leaf in draft.unanswered(*path):
            draft.write((*to, *leaf[len(path) :]), draft.get(*leaf), [leaf], ITS_PLACE)
        return True
    if reason := _why_not(draft, given, name, chosen):
        draft.leave(path, *reason)
        return False
    renames = name != given
    if len(path) == 3 and not renames and place == path[-1]:
        draft.keep((*path, "type"))
    else:
        why = f"the same loss is called {name} here" if renames else ITS_PLACE
        draft.write((*to, "type"), name, [(*path, "type")], why)
    taken = draft.known.takes("loss", name)
    for leaf in draft.unanswered(*path):
        _answer_argument(draft, leaf, len(path), (*to, *leaf[len(path) :]), name, taken)
    return True


def _is_unheard_of(given: str) -> bool:
    """Return whether no project here is known to have a loss of that name: it is mistyped, or a custom one."""
    return not (given.lower() in NEAR or why_left_out(given))


def _why_not(draft: Draft, given: str, name: str, chosen: dict[str, Any]) -> tuple[str, str] | None:
    """Return why a loss is left out and what is near to it; ``None`` where it is here."""
    weight = chosen.get("loss_weight", 1)
    if not name or not draft.known.has("loss", name):
        nothing = ", and it weighs nothing" if weight == 0 else ""
        return f"there is no loss {given} here{nothing}", NEAR.get(given.lower()) or why_left_out(given)
    if isinstance(weight, int | float) and weight < 0:
        return (
            "a negative weight compares with the enlarged input there, which no loss does here",
            "lumaloss or colorloss with a weight above 0",
        )
    if name.lower().startswith("perceptual") and chosen.get("criterion") in ("pd", "fd"):
        return f"there is no criterion {chosen['criterion']} here", "criterion: charbonnier or l1 of the same layers"
    return None


def _answer_argument(draft: Draft, path: KeyPath, start: int, to: KeyPath, name: str, taken: dict[str, Any]) -> None:
    argument, value = str(path[start]), draft.get(*path)
    if argument == "reduction" and value == "sum":
        draft.need_not(path, to, _SUMMED)
    elif argument == "criterion" and isinstance(value, str) and value in _HALVES:
        draft.write(to, "l1", [path], f"there is no {_HALVES[value]} here; its half of l1 stays")
    elif argument == "reduction" and value == "mean" and argument not in taken:
        draft.need_not(path, to, "every loss is a mean here")
    elif argument in taken and value is None:
        draft.need_not(path, to, "null is the default here")
    elif argument in taken:
        draft.write(to, value, [path], "")
    elif argument in ARGUMENTS_THERE:
        draft.leave(path, f"{name} has no such argument here")
    else:
        draft.unknown_argument(path, name, near_argument(argument, taken))


def weigh_sums(draft: Draft) -> None:
    """Write sums over a batch as means of as many times the weight, once the batch has been written."""
    for answer in [one for one in draft.answers if one.why == _SUMMED and one.target is not None]:
        (path,), to = answer.source, answer.target or ()
        weighed: KeyPath = (*path[:-1], "loss_weight")
        weight, values = draft.get(*weighed, default=1.0), _values_of_a_batch(draft)
        draft.take_back(path)
        if str(draft.written(*to[:-1], "type")).lower() not in _ELEMENTWISE:
            draft.miss(path, to, "its sum is not over the values of images, and a loss is a mean here", _MEAN)
        elif values is None or not isinstance(weight, int | float) or not isfinite(weight):
            why = "a loss is a mean here, and the file does not say how many values a batch has"
            draft.miss(path, to, why, _MEAN)
        else:
            draft.take_back(weighed)
            sources = [path, weighed] if "loss_weight" in draft.section(*path[:-1]) else [path]
            why = f"{_SUMMED}: {weight:g} x {values}"
            draft.write((*to[:-1], "loss_weight"), weight * values, sources, why)


def _values_of_a_batch(draft: Draft) -> int | None:
    """Return how many values the high-quality images of a batch have; ``None`` where the file does not say."""
    train, scale = draft.written("datasets", "train") or {}, draft.written("scale")
    sizes = [train.get("lq_size"), train.get("batch_size_per_gpu"), scale]
    side, batch, scale = (int(one) if isinstance(one, int | float) and isfinite(one) else 0 for one in sizes)
    formats = [draft.written("input_pixel_format"), draft.written("output_pixel_format"), train.get("color")]
    return batch * (1 if "y" in formats else 3) * (side * scale) ** 2 or None


def has_gan(draft: Draft) -> bool:
    """Return whether a loss against a discriminator has been written that weighs something."""
    written = draft.written("train", "losses") or []
    return any(
        str(loss.get("type", "")).lower() in ("ganloss", "gan", "gan_loss") and loss.get("loss_weight", 1) != 0
        for loss in written
    )


def note_of_neosr_gan(draft: Draft) -> None:
    """Say where a GAN of neosr trains otherwise than here."""
    why = "neosr's generator gets no gradient of gan_loss: its discriminator runs in inference mode; here it does"
    if draft.project is Project.NEOSR and has_gan(draft):
        draft.differ(why)
