"""Metrics of ``val.metrics``."""

import logging
from collections.abc import Callable, Iterator
from functools import partial

from trainauto.builders.components import checked_arguments, locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.options.fields import Component
from trainauto.options.load import LoadedOptions
from trainauto.tasks.sr.metrics import METRICS, better_is_higher

logger = logging.getLogger(__name__)

MetricsByName = dict[str, tuple[Callable[..., float], bool]]

LEFT_OUT = ("calculate_topiq", "calculate_topiq_nr", "topiq", "topiq_nr")
"""Metrics of traiNNer-redux whose weights allow no commercial use."""
BETTER = "better"


def build_metrics(loaded: LoadedOptions) -> MetricsByName:
    """Return each metric with its arguments bound, and whether a higher value is better; those left out are missing.

    Raises:
        InputError: a metric is unknown, does not take its arguments, or is better the other way than ``better`` says.
    """
    metrics: MetricsByName = {}
    for name, chosen in loaded.options.val.metrics.items():
        if _is_left_out(chosen):
            continue
        path = ("val", "metrics", name)
        arguments = dict(chosen.arguments)
        said = arguments.pop(BETTER, None)
        checked = checked_arguments(
            loaded, METRICS, path, chosen.type, arguments, later=frozenset({"image", "reference"})
        )
        higher = better_is_higher(chosen.type)
        if said is not None and said != ("higher" if higher else "lower"):
            with locate_errors(loaded, (*path, BETTER)):
                message = f"of {chosen.type}, {'higher' if higher else 'lower'} values are better, not {said!r}"
                raise InputError(Problem(message, advice="Remove it: metrics say so themselves."))
        metrics[name] = (partial(METRICS.get(chosen.type), **checked), higher)
    return metrics


def warn_of_left_out_metrics(loaded: LoadedOptions) -> None:
    """Say which metrics of other projects are not measured, and what decides instead of one that was to."""
    options = loaded.options
    dropped = list(left_out_metrics(loaded))
    for name in dropped:
        logger.warning(
            "metric '%s' (%s) is not measured: its weights allow no commercial use; calculate_lpips and "
            "calculate_dists are near to it",
            name,
            options.val.metrics[name].type,
        )
    if options.logger.best_metric in dropped:
        instead = best_metric(loaded)
        words = f"'{instead}' decides which checkpoint is the best" if instead else "no checkpoint is the best"
        logger.warning("best_metric '%s' is not measured: %s", options.logger.best_metric, words)


def best_metric(loaded: LoadedOptions) -> str | None:
    """Return which metric decides: the one that is named, or the first that is measured."""
    dropped = set(left_out_metrics(loaded))
    measured = [name for name in loaded.options.val.metrics if name not in dropped]
    named = loaded.options.logger.best_metric
    return named if named in measured else next(iter(measured), None)


def left_out_metrics(loaded: LoadedOptions) -> Iterator[str]:
    """Yield the names of metrics that are not measured."""
    return (name for name, chosen in loaded.options.val.metrics.items() if _is_left_out(chosen))


def _is_left_out(chosen: Component) -> bool:
    return chosen.type.lower() in LEFT_OUT and chosen.type not in METRICS
