"""What each loss of an option file adds to the peak of a step."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainauto.builders.discriminator import KEYS
from trainauto.builders.losses import judges, labels, target_of
from trainauto.core.plan import Plan
from trainauto.forecast.trace_process import TraceProcess
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options


@dataclass(frozen=True)
class LossBytes:
    """By how much the peak of a step would be lower without a loss.

    These do not add up: a step has one peak, at which not every loss takes part.

    Attributes:
        plan: of the step.
        added: bytes by the name that a loss is logged under; with the loss of a discriminator goes the discriminator.
    """

    plan: Plan
    added: Mapping[str, int] = field(default_factory=dict)


def bytes_by_loss(loaded: LoadedOptions, tracer: TraceProcess, plan: Plan) -> LossBytes | None:
    """Trace a step without each of the losses; ``None`` where there is only one.

    Raises:
        TraceError: the model cannot be traced.
    """
    names = labels(loaded)
    losses = list(enumerate(loaded.options.train.losses))
    weighing = {position for position, chosen in losses if chosen.arguments.get("loss_weight") != 0}
    compared = {
        position: names[position]
        for position, chosen in losses
        if (position in weighing or judges(chosen.type)) and weighing - {position}  # something is to be minimised
    }
    if not compared:
        return None
    # Without schedules: a loss may be the only one that counts in the first step.
    plain = [f"train:losses:{place}:weight_schedule=null" for place, one in losses if one.weight_schedule is not None]
    whole = tracer.trace(plan, plain).peak_bytes
    added = {}
    for position, name in compared.items():
        without = [*plain, f"train:losses:{position}:loss_weight=0"]
        if judges(loaded.options.train.losses[position].type):
            without = list(_without_discriminator(loaded.options))
        added[name] = whole - tracer.trace(plan, without).peak_bytes
    return LossBytes(plan, added)


def _without_discriminator(options: Options) -> Iterator[str]:
    """Yield what makes of a run against a discriminator one without."""
    yield "model_type=SRModel"
    losses = [
        {**chosen.model_dump(mode="json"), "weight_schedule": None, "target": target_of(options, chosen)}
        for chosen in options.train.losses
        if not judges(chosen.type)
    ]
    yield f"train:losses={json.dumps(losses)}"
    for path in KEYS:
        section = options if len(path) == 1 else getattr(options, path[0])
        if path[-1] in section.model_fields_set:
            yield f"{':'.join(path)}={json.dumps(type(section).model_fields[path[-1]].default)}"
