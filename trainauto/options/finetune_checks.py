"""Options of fine-tuning that are fine alone and impossible together, each one small pure check."""

from collections.abc import Iterator

from trainauto.core.registry import in_one_word
from trainauto.core.words import counted
from trainauto.options.checks import CombinationChecks, step_is_no_flood
from trainauto.options.finetune_options import FinetuneOptions, step_conversations
from trainauto.options.run_checks import not_beside
from trainauto.options.run_options import CONTROLLER
from trainauto.options.validation_errors import Finding

_CHECKS = CombinationChecks(FinetuneOptions)
_reads = _CHECKS.reads
impossible_finetuning = _CHECKS.findings


ARGUMENTS = {"milestones": "multistep", "gamma": "multistep", "num_cycles": "cosine_with_restarts"}
"""Which schedule an argument is for."""


@_reads("model", "lora")
def adapters_beside_4_bits(options: FinetuneOptions) -> Iterator[Finding]:
    """Weights in 4 bits are too coarse for steps of training."""
    if options.model.load_in_4bit and options.lora is None:
        advice = "Add lora: {r: 8, lora_alpha: 16}, or write load_in_4bit: false."
        message = "weights in 4 bits do not learn, and the file has no lora to be trained beside them"
        yield Finding(("model", "load_in_4bit"), message, advice, at_key=True)


@_reads("model", "distributed")
def weights_in_4_bits_stay_whole(options: FinetuneOptions) -> Iterator[Finding]:
    """Weights in 4 bits are no tensors of numbers that could be spread over ranks."""
    chosen = options.distributed
    yield from not_beside(chosen, {"model.load_in_4bit": chosen.fully_shard and options.model.load_in_4bit})


@_reads("training")
def one_step_of_conversations(options: FinetuneOptions) -> Iterator[Finding]:
    """The number of conversations of a step is bounded."""
    batch, parts = options.training.per_device_train_batch_size, options.training.gradient_accumulation_steps
    yield from step_is_no_flood(batch, parts, ("training", "gradient_accumulation_steps"))


@_reads("training")
def one_warmup(options: FinetuneOptions) -> Iterator[Finding]:
    """Warm-up is given once, and ends before the run does."""
    training = options.training
    path = ("training", "warmup_steps")
    if training.warmup_steps and training.warmup_ratio:
        yield Finding(path, "warm-up is given twice, as warmup_steps and as warmup_ratio", "Remove one.", at_key=True)
    elif training.max_steps and training.warmup_steps >= training.max_steps:
        steps = counted(training.warmup_steps, "step")
        message = f"the warm-up of {steps} does not end within the {training.max_steps} of the run"
        yield Finding(path, message, "Shorten warmup_steps, or lengthen max_steps.")


@_reads("model", "memory")
def pictures_shrink_below_their_limit(options: FinetuneOptions) -> Iterator[Finding]:
    """What pictures may shrink to is fewer pixels than they have anyway."""
    most, fewest = options.model.max_pixels, options.memory.shrink_pictures_to
    if most is not None and fewest is not None and fewest >= most:
        message = f"shrink_pictures_to is {fewest}, and pictures have no more than max_pixels, {most}, in any case"
        yield Finding(("memory", "shrink_pictures_to"), message, f"Write less, e.g. {max(1, most // 4)}.")


@_reads("training", "training_automations")
def steps_that_may_grow(options: FinetuneOptions) -> Iterator[Finding]:
    """A bound of larger steps is above the file's own, and something makes use of it."""
    training = options.training
    most, own = training.max_batch_size, step_conversations(training)
    path = ("training", "max_batch_size")
    if most is None:
        if training.lr_scaling != "none":
            message = f"lr_scaling: {training.lr_scaling} follows steps, and those of this file never change"
            advice = f"Write max_batch_size, which lets steps grow beyond {counted(own, 'conversation')}; or remove it."
            yield Finding(("training", "lr_scaling"), message, advice, at_key=True)
    elif most < own:
        message = f"max_batch_size is {most}, and a step has {own} conversations in any case"
        advice = "Write more, or remove it: passes of a step hold fewer by themselves where memory asks for it."
        yield Finding(path, message, advice)
    elif not _is_steered(options):
        message = f"max_batch_size lets steps grow, and {CONTROLLER}, which would do it, is switched off"
        yield Finding(path, message, "Remove one of the two.", at_key=True)


def _is_steered(options: FinetuneOptions) -> bool:
    """Say whether batches follow memory."""
    automations = options.training_automations
    switches = (automations.__pydantic_extra__ or {}).items()
    return automations.enabled and all(
        switch.enabled for name, switch in switches if in_one_word(name) == in_one_word(CONTROLLER)
    )


@_reads("training")
def arguments_of_the_schedule(options: FinetuneOptions) -> Iterator[Finding]:
    """A schedule gets what it takes, and nothing else."""
    kind, given = options.training.lr_scheduler_type, options.training.lr_scheduler_kwargs
    for name in ARGUMENTS:
        if name in given.model_fields_set and ARGUMENTS[name] != kind:
            path = ("training", "lr_scheduler_kwargs", name)
            advice = f"Write lr_scheduler_type: {ARGUMENTS[name]}, or remove it."
            yield Finding(path, f"{name} is nothing to the schedule {kind}", advice, at_key=True)
    if kind == "multistep" and not given.milestones:
        advice = "Add lr_scheduler_kwargs: {milestones: [2, 4], gamma: 0.1} to training."
        yield Finding(("training", "lr_scheduler_type"), "multistep has no milestones", advice)
    ends = options.training.max_steps or options.training.num_train_epochs
    for number, milestone in enumerate(given.milestones):
        if kind == "multistep" and milestone >= ends:
            message = f"the milestone {milestone:g} lies behind the run's end at {ends:g}"
            yield Finding(("training", "lr_scheduler_kwargs", "milestones", number), message, "Remove it.")


@_reads("training")
def patience_for_something(options: FinetuneOptions) -> Iterator[Finding]:
    """Patience is that of the early stop."""
    training = options.training
    if "early_stop_patience" in training.model_fields_set and training.early_stop_loss is None:
        advice = "Add early_stop_loss, e.g. 0.01, or remove it."
        path = ("training", "early_stop_patience")
        yield Finding(path, "early_stop_patience waits for a loss that is not given", advice, at_key=True)


@_reads("dataset")
def one_set_to_measure_on(options: FinetuneOptions) -> Iterator[Finding]:
    """What is measured on is named, or set aside."""
    if options.dataset.val is not None and options.dataset.val_share is not None:
        message = "what is measured on is given twice, as val and as val_share"
        yield Finding(("dataset", "val_share"), message, "Remove one.", at_key=True)
