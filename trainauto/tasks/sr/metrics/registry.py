"""Registry of metrics, and which way each of them points."""

from collections.abc import Callable

from trainauto.core.registry import Registry

Metric = Callable[..., float]
"""``(image, reference, **arguments) -> float`` on uint8 arrays, (H, W, 3) in RGB order or (H, W, 1) in grey."""

METRICS: Registry[Metric] = Registry("metric")

_BETTER_IS_HIGHER: dict[Metric, bool] = {}


def register_metric(*names: str, better_is_higher: bool) -> Callable[[Metric], Metric]:
    """Register a metric under ``names``, saying whether a higher value is the better one.

    Raises:
        InputError: a name is taken by another metric.
    """

    def add(metric: Metric) -> Metric:
        METRICS.register(*names)(metric)
        _BETTER_IS_HIGHER[metric] = better_is_higher
        return metric

    return add


def better_is_higher(name: str) -> bool:
    """Say whether a higher value of the metric called ``name`` is better; it is by default.

    Raises:
        InputError: there is no such metric.
    """
    return _BETTER_IS_HIGHER.get(METRICS.get(name), True)
