"""Options of runs of several tasks that are fine alone and impossible together, each one small pure check."""

from collections.abc import Iterator

from trainauto.core.words import counted
from trainauto.options.checks import CombinationChecks, warmup_ends
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.overrides import LENGTHS
from trainauto.options.source_locations import KeyPath
from trainauto.options.validation_errors import Finding

_CHECKS = CombinationChecks(MultitaskOptions)
_reads = _CHECKS.reads
impossible_multitask = _CHECKS.findings


@_reads("train")
def one_length(options: MultitaskOptions) -> Iterator[Finding]:
    """A run has one length, in one unit."""
    given = [key for key in LENGTHS if getattr(options.train, key)]
    if len(given) > 1:
        message = f"the run has {counted(len(given), 'length')}, {' and '.join(given)}"
        yield Finding(("train", given[0]), message, "Keep one: stop and schedules follow it.", at_key=True)
    if not given:
        advice = "Add total_epochs (passes over the training set), total_samples or total_iter (optimizer steps)."
        yield Finding(("train",), "the run has no length", advice, at_key=True)


@_reads("train")
def one_warmup(options: MultitaskOptions) -> Iterator[Finding]:
    """Warm-up is given once, and ends before the run does; of a run in samples it counts steps of the target."""
    yield from warmup_ends(options.train, counts_samples=False)


@_reads("distributed")
def weights_of_tasks_stay_whole(options: MultitaskOptions) -> Iterator[Finding]:
    """A rank whose samples lack a task has no gradients for its weights, which others would wait for."""
    if options.distributed.fully_shard:
        message = "fully_shard needs a gradient for each weight on every rank, and samples of a rank may lack a task"
        advice = "Remove it; ddp_overlap: true is possible."
        yield Finding(("distributed", "fully_shard"), message, advice, at_key=True)


@_reads("distributed", "train")
def counted_steps_are_shared_equally(options: MultitaskOptions) -> Iterator[Finding]:
    """The samples of a step are those of equal ranks."""
    if options.distributed.batches == "memory" and options.train.use_gradient_accumulation:
        message = "target_batch_size is shared equally, and batches that follow memory are not"
        advice = "Write batches: equal, or train: {use_gradient_accumulation: false}."
        yield Finding(("distributed", "batches"), message, advice)


@_reads("train")
def target_holds_a_pass(options: MultitaskOptions) -> Iterator[Finding]:
    """A step has the samples of one forward pass, or more."""
    train = options.train
    if train.use_gradient_accumulation and train.target_batch_size < train.base_batch_size:
        message = f"a step of {train.target_batch_size} samples is less than a pass of {train.base_batch_size}"
        is_written = "target_batch_size" in train.model_fields_set
        path: KeyPath = ("train", "target_batch_size" if is_written else "base_batch_size")
        advice = f"Write target_batch_size: {train.base_batch_size} or more, or a smaller base_batch_size."
        yield Finding(path, message, advice)


@_reads("train")
def shares_are_some(options: MultitaskOptions) -> Iterator[Finding]:
    """Some task has a share, and draws that keep to shares have some."""
    train = options.train
    if train.task_distribution and not sum(train.task_distribution.values()):
        message = "task_distribution gives no task a share"
        yield Finding(("train", "task_distribution"), message, "Write shares above 0, or leave it out.", at_key=True)
    if train.sampling == "replacement" and not train.task_distribution:
        message = "sampling: replacement keeps to shares, and there are none"
        advice = "Add task_distribution: {T1: 0.4, ...}, or write sampling: epoch."
        yield Finding(("train", "sampling"), message, advice)


@_reads("tokenizer")
def tokenizer_from_one_place(options: MultitaskOptions) -> Iterator[Finding]:
    """A tokenizer is trained, or loaded."""
    chosen = options.tokenizer
    if chosen.train is not None and chosen.pretrained is not None:
        message = "the tokenizer is given twice, as train and as pretrained"
        yield Finding(("tokenizer", "pretrained"), message, "Remove one.", at_key=True)
    if chosen.train is None and chosen.pretrained is None:
        advice = "Write {train: {vocab_size: 512}}, or {pretrained: a folder or a name on the hub}."
        yield Finding(("tokenizer",), "nothing says what cuts texts into tokens", advice, at_key=True)
