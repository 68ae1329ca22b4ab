"""Options of any run that are fine alone and impossible together, whatever is trained."""

from collections.abc import Iterator, Mapping

from trainauto.options.checks import CombinationChecks
from trainauto.options.resource_options import AUTO, DistributedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.validation_errors import Finding

_CHECKS = CombinationChecks(FileOptions)
_reads = _CHECKS.reads
impossible_in_any_run = _CHECKS.findings


@_reads("distributed", "memory", "use_amp", "amp_bf16", "training_automations")
def ranks_that_meet_in_the_backward_pass(options: FileOptions) -> Iterator[Finding]:
    """Networks that are wrapped or sharded for it cannot be changed in other ways, and step together."""
    chosen, memory = options.distributed, options.memory
    if chosen.ddp_overlap and chosen.fully_shard:
        message = "ddp_overlap and fully_shard are two ways of one thing"
        yield Finding(("distributed", "ddp_overlap"), message, "Remove one.", at_key=True)
    either, shards = chosen.ddp_overlap or chosen.fully_shard, chosen.fully_shard
    refused = {
        "distributed.batches: memory": either and chosen.batches == "memory",
        "memory.allow_gradient_checkpointing": either and memory.allow_gradient_checkpointing,
        "memory.gradient_checkpointing: auto": shards and memory.gradient_checkpointing == AUTO,
        "float16 (use_amp without amp_bf16)": shards and options.use_amp and not options.amp_bf16,
        "objective: goodput": shards and _goes_by_goodput(options),  # no rank has a whole gradient
    }
    yield from not_beside(chosen, refused)


def not_beside(chosen: DistributedOptions, refused: Mapping[str, bool]) -> Iterator[Finding]:
    """Refuse what does not go with ``ddp_overlap`` or ``fully_shard``, whichever the file has.

    Args:
        chosen: of the file.
        refused: what the file has, in words, and whether it is refused.
    """
    key = "ddp_overlap" if chosen.ddp_overlap else "fully_shard"
    for name, is_refused in refused.items():
        if is_refused:
            yield Finding(("distributed", key), f"{key} does not go with {name}", "Remove one of them.", at_key=True)


def _goes_by_goodput(options: FileOptions) -> bool:
    active = options.training_automations.active.values()
    return any(automation.arguments.get("objective") == "goodput" for automation in active)
