"""What tells runs apart: the options that differ, and which has the better figures."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.reporting.runs.figures import RunFigures
from trainauto.reporting.runs.validation_totals import Value
from trainauto.storage.run_directory import RunDirectory

DIFFERS_BY_NATURE = frozenset({"name", "tensorboard", "path.experiments_root", "training.output_dir"})
"""Keys of config.json that say where a run is, and nothing of what it does."""

_NAME_OF_SET = re.compile(r"datasets\.[^.]+\.name")
_CHANGES_NO_FIGURE = frozenset({"name", "cache_dir", "decode_all"})
"""Options of a validation set that say how it is called and read, and not what it holds."""


@dataclass(frozen=True)
class ComparedMetric:
    """One metric of one validation set, of all runs in their order.

    Attributes:
        dataset: name of the set.
        name: of the metric.
        better_is_higher: whether higher values are better; ``None`` where the logs do not say, or not the same.
        last: the last value of each run; ``None`` where it has none.
        best: its best.
        best_last: which runs have the best of the last values, by number; none where fewer than two can be compared.
        best_best: which have the best of the best values.
        is_of_other_data: options of the set, or of the metric, differ between the runs.
    """

    dataset: str
    name: str
    better_is_higher: bool | None
    last: Sequence[Value | None]
    best: Sequence[Value | None]
    best_last: Sequence[int]
    best_best: Sequence[int]
    is_of_other_data: bool = False


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, in the order in which they were given.

    Attributes:
        runs: their figures.
        options: the options that differ, by dotted keys: the value of each run, ``None`` where it has none.
        metrics: what their validations found.
    """

    runs: Sequence[RunFigures]
    options: Mapping[str, Sequence[Any]]
    metrics: Sequence[ComparedMetric]


def find_runs(paths: Sequence[Path]) -> list[RunDirectory]:
    """Return the runs that a person means by ``paths``.

    Raises:
        InputError: there is none at one of them, or two of them lead to the same run.
    """
    runs = [RunDirectory.find(path) for path in paths]
    seen: dict[Path, Path] = {}
    for path, run in zip(paths, runs, strict=True):
        folder = run.of_steps.path.resolve()
        if folder in seen:
            message = f"{seen[folder]} and {path} are the same run, {run.path}"
            raise InputError(Problem(message, advice="Name each run once; experiments/NAME is the newest of NAME."))
        seen[folder] = path
    return runs


def compare(runs: Sequence[RunFigures]) -> Comparison:
    """Compare runs."""
    return Comparison(runs, differing_options([run.options for run in runs]), _metrics(runs))


def differing_options(options: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the options that are not the same in all runs, with the value of each; ``None`` where it has none."""
    keys = dict.fromkeys(key for one in options for key in one if key not in DIFFERS_BY_NATURE)
    values = {key: [one.get(key) for one in options] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def _metrics(runs: Sequence[RunFigures]) -> list[ComparedMetric]:
    by_run = [{(metric.dataset, metric.name): metric for metric in run.metrics} for run in runs]
    compared = []
    for dataset, name in dict.fromkeys(key for found in by_run for key in found):
        metrics = [found.get((dataset, name)) for found in by_run]
        last = [metric.last if metric is not None else None for metric in metrics]
        best = [metric.best if metric is not None else None for metric in metrics]
        higher = _agreed(metric.better_is_higher for metric in metrics if metric is not None)
        wins = winners(last, higher), winners(best, higher)
        chosen = [
            _what_is_measured(run.options, dataset, name)
            for run, metric in zip(runs, metrics, strict=True)
            if metric is not None
        ]
        is_of_other_data = any(one != chosen[0] for one in chosen)
        compared.append(ComparedMetric(dataset, name, higher, last, best, *wins, is_of_other_data))
    return compared


def _what_is_measured(options: Mapping[str, Any], dataset: str, metric: str) -> dict[str, Any]:
    """Return the options of a validation set and of a metric, but those that change no figure."""
    if "dataset.path" in options:  # of fine-tuning: one section for what is learned and what is set aside
        return {key: options.get(key) for key in _SET_ASIDE}
    named = (key for key, value in options.items() if value == dataset and _NAME_OF_SET.fullmatch(key))
    of_set = next(named, f"datasets.{dataset}.name").removesuffix("name")
    found = {}
    for key, value in options.items():
        for section in (of_set, f"val.metrics.{metric}."):
            if key.startswith(section) and value is not None:
                found[key.removeprefix(section)] = value
    return {key: value for key, value in found.items() if key not in _CHANGES_NO_FIGURE}


_SET_ASIDE = ("dataset.path", "dataset.val", "dataset.val_share", "dataset.prompt", "dataset.max_length", "manual_seed")
"""Options of fine-tuning that say what is measured on."""


def _agreed(answers: Iterable[bool | None]) -> bool | None:
    """Return what all say who say something; ``None`` where they do not agree."""
    said = {answer for answer in answers if answer is not None}
    return said.pop() if len(said) == 1 else None


def winners(values: Sequence[Value | None], better_is_higher: bool | None) -> list[int]:
    """Return which of the values are the best; none where fewer than two can be compared, or all are equal."""
    there = {number: value.value for number, value in enumerate(values) if value is not None}
    numbers = [value for value in there.values() if not math.isnan(value)]
    if better_is_higher is None or len(there) < 2 or not numbers:
        return []
    best = max(numbers) if better_is_higher else min(numbers)
    won = [number for number, value in there.items() if value == best]
    return won if len(won) < len(there) else []
