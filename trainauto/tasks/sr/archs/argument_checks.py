"""Checks of constructor arguments that several networks share."""

import math
from collections.abc import Sequence


def require_positive_integers(**values: object) -> None:
    """Refuse anything but whole numbers of at least 1.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def require_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Refuse a value that is not among ``choices``, or of another type: ``True`` and 1.0 are not 1.

    Raises:
        ValueError: naming the argument, what it was given and what is admissible.
    """
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def require_odd(**values: object) -> None:
    """Refuse anything but odd whole numbers, such as the side of a convolution with a middle.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    require_positive_integers(**values)
    for name, value in values.items():
        if isinstance(value, int) and value % 2 == 0:
            raise ValueError(f"{name} must be odd, got {value!r}")


def require_finite(**values: object) -> None:
    """Refuse anything but finite numbers.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value!r}")


def require_above_zero(**values: float) -> None:
    """Refuse anything but finite numbers above 0.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    require_finite(**values)
    for name, value in values.items():
        if value <= 0:
            raise ValueError(f"{name} must be above 0, got {value!r}")


def require_expansion(channels: int, **ratios: float) -> None:
    """Refuse numbers whose product with ``channels``, rounded down, is no channel at all.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    require_above_zero(**ratios)
    for name, ratio in ratios.items():
        if channels * ratio < 1:
            raise ValueError(f"{name} must make one channel at least of {channels}, got {ratio!r}")


def require_rates(**rates: float) -> None:
    """Refuse anything but rates of dropout: numbers from 0 to below 1.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    require_finite(**rates)
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ValueError(f"{name} must be in [0, 1), got {rate!r}")


def require_channels_that_add(num_in_ch: int, num_out_ch: int) -> None:
    """Refuse an input that cannot be added to the output: its channels must be one, or as many.

    Raises:
        ValueError: naming both numbers.
    """
    if num_in_ch not in (1, num_out_ch):
        raise ValueError(
            f"num_in_ch must be 1 or equal num_out_ch ({num_out_ch}), because the enlarged input is added to the "
            f"output; got {num_in_ch}"
        )


def require_numbers(name: str, values: object) -> None:
    """Refuse anything but a list of at least one number.

    Raises:
        ValueError: naming the argument and what it was given.
    """
    numbers = isinstance(values, list | tuple) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    if not numbers or not values:
        raise ValueError(f"{name} must list one number or more, got {values!r}")


def require_counts(name: str, values: object) -> None:
    """Refuse anything but a list of at least one whole number, each of at least 1.

    Raises:
        ValueError: naming the argument, or its entry, and what it was given.
    """
    require_numbers(name, values)
    if isinstance(values, list | tuple):
        require_positive_integers(**{f"{name}[{index}]": value for index, value in enumerate(values)})
