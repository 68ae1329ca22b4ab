"""Metrics of ``val.metrics``."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trainauto.builders.components import checked_arguments, locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.options.component_schemas import SUPPLIED
from trainauto.options.fields import Component
from trainauto.options.load import LoadedOptions
from trainauto.options.source_locations import KeyPath
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
        if not _is_left_out(chosen):
            arguments = check_metric(loaded, ("val", "metrics", name), chosen)
            metrics[name] = (partial(METRICS.get(chosen.type), **arguments), better_is_higher(chosen.type))
    return metrics


def check_metric(loaded: LoadedOptions[Any], path: KeyPath, chosen: Component) -> dict[str, Any]:
    """Return the arguments of a metric as it takes them; one that is left out here has none.

    Raises:
        InputError: it is unknown, does not take its arguments, or is better the other way than ``better`` says.
    """
    if _is_left_out(chosen):
        return {}
    arguments = dict(chosen.arguments)
    said = arguments.pop(BETTER, None)
    checked = checked_arguments(loaded, METRICS, path, chosen.type, arguments, later=SUPPLIED["metric"])
    higher = better_is_higher(chosen.type)
    if said is not None and said != ("higher" if higher else "lower"):
        with locate_errors(loaded, (*path, BETTER)):
            message = f"of {chosen.type}, {'higher' if higher else 'lower'} values are better, not {said!r}"
            raise InputError(Problem(message, advice="Remove it: metrics say so themselves."))
    return checked


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
