"""Checks of options that are fine alone and impossible together, each of which says what it reads."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from trainauto.core.words import counted
from trainauto.options.fields import Component
from trainauto.options.run_options import AveragedTraining, FileOptions, RunTraining, is_schedule_free
from trainauto.options.source_locations import KeyPath, dotted
from trainauto.options.validation_errors import Finding

Checked = TypeVar("Checked", bound=FileOptions)


class CombinationChecks(Generic[Checked]):
    """The checks of one kind of option file, in the order in which they were added.

    Args:
        kind: what they check.
    """

    def __init__(self, kind: type[Checked]) -> None:
        self._kind = kind
        self._entries: list[tuple[frozenset[str], Callable[[Checked], Iterator[Finding]]]] = []

    def reads(
        self, *needs: str
    ) -> Callable[[Callable[[Checked], Iterator[Finding]]], Callable[[Checked], Iterator[Finding]]]:
        """Add a check, with the options at the top level that it reads."""

        def add(check: Callable[[Checked], Iterator[Finding]]) -> Callable[[Checked], Iterator[Finding]]:
            self._entries.append((frozenset(needs), check))
            return check

        return add

    def findings(self, options: Checked, valid: Collection[str] | None = None) -> list[Finding]:
        """Return what cannot work together.

        Args:
            options: what to check; it may lack what ``valid`` does not name.
            valid: options at the top level that may be read; all by default. Checks that read others are left out.
        """
        keys = set(self._kind.model_fields) if valid is None else set(valid)
        return [finding for needs, check in self._entries if needs <= keys for finding in check(options)]


class NamedSet(Protocol):
    """A data set of an option file."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def model_fields_set(self) -> set[str]:
        """The keys that the file gives it."""


def names_differ(sets: Iterable[tuple[KeyPath, NamedSet]]) -> Iterator[Finding]:
    """Refuse sets of one name, which become curves, folders and figures about their samples.

    Args:
        sets: by their paths in the file.
    """
    seen: dict[str, KeyPath] = {}
    for path, dataset in sets:
        # Some file systems do not tell A from a.
        first = seen.setdefault(dataset.name.casefold(), path)
        if first != path:
            message = f"{dotted(first)} and {dotted(path)} are both named '{dataset.name}'"
            free = str(path[-1]).casefold() not in seen
            advice = f"Give each a name of its own{f', e.g. name: {path[-1]}' if free else ''}."
            yield Finding((*path, "name") if "name" in dataset.model_fields_set else path, message, advice, at_key=True)


def averages_there_are(
    train: AveragedTraining, ema_decay: float, optimizer: Component, warmups: Mapping[str, Component | None]
) -> Iterator[Finding]:
    """Refuse what says how an average begins where there is none, or where a schedule-free optimizer has its own.

    Args:
        train: the section.
        ema_decay: of the moving average.
        optimizer: of the weights that are averaged.
        warmups: all optimizers by key, which may rise to their rate themselves.
    """
    has_own = is_schedule_free(optimizer.type)
    for key in ("ema_power", "ema_update_after_step", "ema_switch_iter"):
        if getattr(train, key) and not ema_decay and not has_own:
            message = f"{key} is that of the averaged weights, and ema_decay is 0"
            yield Finding(("train", key), message, "Write an ema_decay above 0, or remove it.", at_key=True)
    for key in ("ema_decay", "ema_power", "ema_update_after_step", "ema_switch_iter"):
        if getattr(train, key) and has_own:
            message = f"{optimizer.type} keeps the average itself that is validated and saved"
            yield Finding(("train", key), message, f"Remove {key}.", at_key=True)
    for key, one in warmups.items():
        if one is not None and one.arguments.get("warmup_steps") and (train.warmup_steps or train.warmup_ratio):
            path = ("train", key, "warmup_steps")
            message = f"warm-up is given twice, for the run and as warmup_steps of {one.type}"
            yield Finding(path, message, "Remove one: the rate would rise by both.", at_key=True)


_MOST_SAMPLES = 2**16


def step_is_no_flood(samples: int, micro_batches: int, key: KeyPath) -> Iterator[Finding]:
    """Refuse a step of more samples than the bound allows.

    Args:
        samples: of a micro-batch.
        micro_batches: of a step.
        key: of their number.
    """
    if samples * micro_batches > _MOST_SAMPLES:
        message = f"a step of {samples} * {micro_batches} samples is larger than any: {_MOST_SAMPLES} at most"
        yield Finding(key, message, "Write fewer micro-batches, or fewer samples in each.")


def warmup_ends(train: RunTraining, *, counts_samples: bool) -> Iterator[Finding]:
    """Refuse a warm-up that is given twice, in another unit than the run's, or is longer than the run."""
    path = ("train", "warmup_steps")
    if train.warmup_steps and train.warmup_ratio:
        yield Finding(path, "warm-up is given twice, as warmup_steps and as warmup_ratio", "Remove one.", at_key=True)
    elif train.warmup_steps and counts_samples:
        message = "warmup_steps counts steps in a run that counts samples"
        yield Finding(path, message, "Write warmup_ratio, the share of the run.", at_key=True)
    elif train.total_iter and train.warmup_steps >= train.total_iter:
        steps = counted(train.warmup_steps, "step")
        message = f"the warm-up of {steps} does not end within the {train.total_iter} of the run"
        yield Finding(path, message, "Shorten warmup_steps, or lengthen total_iter.")
