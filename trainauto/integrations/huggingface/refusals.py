"""What a Trainer cannot be asked for together with batches by memory, said before anything is trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import IterableDataset

from trainauto.core.errors import InputError, Problem
from trainauto.integrations.huggingface.arguments import own_argument

SAMPLING = ("random", "sequential", "group_by_length")
"""What ``train_sampling_strategy`` may be."""


def check_trainer(trainer: Any) -> None:
    """Refuse what batches by memory do not work with.

    Raises:
        InputError: every reason, each with what to do.
    """
    problems = [
        *_other_owners_of_memory(trainer),
        *_other_loops(trainer.args),
        *_other_data(trainer),
        *_bounds(trainer.args),
    ]
    if problems:
        raise InputError(problems)


def _other_owners_of_memory(trainer: Any) -> Iterator[Problem]:
    args = trainer.args
    if args.fsdp or trainer.is_fsdp_enabled:
        yield Problem(
            "FSDP gathers weights in the middle of a pass: a process that runs out of memory there cannot run it again",
            advice="Leave fsdp out, or train with transformers' own Trainer.",
        )
    if args.deepspeed or trainer.is_deepspeed_enabled:
        yield Problem(
            "DeepSpeed steps and accumulates by itself: a step that ran out of memory cannot be run again in pieces",
            advice="Leave deepspeed out, or train with transformers' own Trainer.",
        )
    if trainer.is_model_parallel or len(set((getattr(trainer.model, "hf_device_map", None) or {}).values())) > 1:
        yield Problem(
            "device_map has spread the model over several devices: batches follow the memory of one",
            advice="Load it without device_map, or with a device_map of one device.",
        )
    if getattr(trainer, "is_distributed_loading_by_transformers", False) or _is_parallel(trainer):
        yield Problem(
            "a model or its rows are divided among processes (tensor, context or sequence parallelism): one that runs "
            "out of memory cannot run its part again by itself",
            advice="Leave parallelism_config and tp_plan out, or train with transformers' own Trainer.",
        )
    if args.n_gpu > 1:
        yield Problem(
            f"{args.n_gpu} cards in one process: DataParallel gathers outputs on the first, whose memory is not theirs",
            advice="Show it one card (CUDA_VISIBLE_DEVICES=0), or start a process for each with torchrun.",
        )


@contextmanager
def about_the_collator() -> Iterator[None]:
    """Have what cannot be learned of batches be said of the collator, which is what a Trainer is given.

    Raises:
        InputError: what was raised within.
    """
    try:
        yield
    except InputError as error:
        reason = (
            str(error)
            .removesuffix(": batches cannot be divided")
            .replace(", give a workload that says how batches are divided", ", no batch can be divided")
        )
        raise InputError(
            Problem(
                f"the batches that data_collator makes cannot be divided: {reason}",
                advice="Have it make tensors whose first dimension is the sample, padded to one length; or train with "
                "transformers' own Trainer.",
            )
        ) from None


def check_train_dataset(trainer: Any) -> None:
    """Refuse to train on nothing.

    Raises:
        InputError: there is no dataset, or no sample in it.
    """
    if trainer.train_dataset is None:
        raise InputError(Problem("there is nothing to train on", advice="Give train_dataset."))
    if not len(trainer.train_dataset):
        raise InputError("train_dataset is empty")


def _bounds(args: Any) -> Iterator[Problem]:
    """Bounds that contradict each other, in the words in which they were given."""
    start = args.per_device_train_batch_size
    least, most = own_argument(args, "min_batch_size"), own_argument(args, "max_batch_size")
    if own_argument(args, "tokens_per_batch") is not None:
        return
    if most is not None and start > most:
        yield Problem(
            f"per_device_train_batch_size={start} is above max_batch_size={most}",
            advice=f"Begin with per_device_train_batch_size={most}, or less.",
        )
    if start < 1:
        yield Problem(f"per_device_train_batch_size={start} is no batch", advice="Begin with 1 sample or more.")
    elif not 1 <= least <= start:
        yield Problem(
            f"min_batch_size={least} must lie between 1 and per_device_train_batch_size={start}",
            advice="Leave it out, or begin with more samples.",
        )


def _is_parallel(trainer: Any) -> bool:
    config = getattr(trainer.accelerator, "parallelism_config", None) or trainer.args.parallelism_config
    return any(getattr(config, f"{kind}_size", None) not in (None, 1) for kind in ("tp", "cp", "sp", "dp_shard"))


def _other_loops(args: Any) -> Iterator[Problem]:
    if args.auto_find_batch_size:
        yield Problem(
            "auto_find_batch_size restarts training with half the batch after each failure: batches are found here",
            advice="Leave it out; max_batch_size says how far batches may grow.",
        )
    if args.torch_compile:
        yield Problem(
            "torch_compile compiles anew for each batch size, and what a compiled step takes cannot be foreseen",
            advice="Leave it out.",
        )
    optimizer = str(getattr(args.optim, "value", args.optim))
    if optimizer in ("lomo", "adalomo") or optimizer.endswith("_layerwise"):
        yield Problem(
            f"optim='{optimizer}' changes weights in the backward pass: it could not be run again",
            advice="Take an optimizer that steps after it: adamw_torch, adafactor.",
        )


def _other_data(trainer: Any) -> Iterator[Problem]:
    args, dataset = trainer.args, trainer.train_dataset
    if own_argument(args, "eval_samples") is not None and trainer.eval_dataset is None:
        yield Problem("eval_samples asks for evaluations, of nothing", advice="Give eval_dataset, or leave it out.")
    if isinstance(dataset, IterableDataset) or (dataset is not None and not hasattr(dataset, "__getitem__")):
        yield Problem(
            "train_dataset can only be iterated: batches that come again in parts, and an exact resume, need samples "
            "by number",
            advice="Give a dataset with __len__ and __getitem__.",
        )
    if args.train_sampling_strategy not in SAMPLING:
        yield Problem(
            f"train_sampling_strategy='{args.train_sampling_strategy}' makes batches of a fixed size",
            advice=f"Take one of {', '.join(SAMPLING)}, or tokens_per_batch.",
        )
    if args.dataloader_drop_last:
        yield Problem(
            "dataloader_drop_last leaves samples out: here every sample comes exactly once an epoch",
            advice="Leave it out.",
        )
