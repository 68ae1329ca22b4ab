"""What each loss of an option file adds to the peak of a step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainauto.builders.losses import labels
from trainauto.core.plan import Plan
from trainauto.forecast.trace_process import TraceProcess
from trainauto.options.load import LoadedOptions
from trainauto.tasks.sr.losses import LOSSES, GANLoss


@dataclass(frozen=True)
class LossBytes:
    """By how much the peak of a step would be lower without a loss.

    These do not add up: a step has one peak, at which not every loss takes part.

    Attributes:
        plan: of the step.
        added: bytes by the name that a loss is logged under.
    """

    plan: Plan
    added: Mapping[str, int] = field(default_factory=dict)


def bytes_by_loss(loaded: LoadedOptions, tracer: TraceProcess, plan: Plan) -> LossBytes | None:
    """Trace a step without each of the losses, those of a discriminator apart; ``None`` where there is only one.

    Raises:
        TraceError: the model cannot be traced.
    """
    names = labels(loaded)
    compared = {
        position: names[position]
        for position, chosen in enumerate(loaded.options.train.losses)
        if chosen.arguments.get("loss_weight") != 0 and not issubclass(LOSSES.get(chosen.type), GANLoss)
    }
    if len(compared) < 2:
        return None
    whole = tracer.trace(plan).peak_bytes
    added = {}
    for position, name in compared.items():
        added[name] = whole - tracer.trace(plan, [f"train:losses:{position}:loss_weight=0"]).peak_bytes
    return LossBytes(plan, added)
