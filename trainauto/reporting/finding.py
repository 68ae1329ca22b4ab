"""What a check found, and how checks are kept from failing."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, LOOK, BROKEN, UNKNOWN = "ok", "look", "broken", "unknown"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what.
        state: ``ok``; ``look`` where it may hurt; ``broken`` where runs cannot work; ``unknown`` where it cannot be
            told.
        fact: what was found.
        advice: what to do.
    """

    name: str
    state: str
    fact: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def guarded(name: str, check: Callable[[], Finding | Sequence[Finding]]) -> list[Finding]:
    """Run a check; one that fails has found out nothing, and says why."""
    try:
        result = check()
    except Exception as error:
        return [Finding(name, UNKNOWN, f"{type(error).__name__}: {error}")]
    return [result] if isinstance(result, Finding) else list(result)


def brief(value: float) -> str:
    """Return a number with about three figures, never in powers of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2g}"
