"""What a function over texts gives, and what became of its batches."""

from dataclasses import dataclass
from typing import Any

from trainauto.core.errors import TrainautoError
from trainauto.core.units import MIB
from trainauto.core.words import counted


@dataclass
class MapReport:
    """What became of the batches.

    Attributes:
        texts: how many have a result.
        batches: how many those came in.
        tokens: of the texts.
        padded_tokens: of the batches.
        out_of_memory: batches that ran out of memory, and whose texts came again in smaller ones.
        peak_bytes: the largest measured; 0 where nothing could be measured.
        limit_bytes: memory there is; None if it is neither known nor set.
        seconds: from the first batch to the last.
    """

    texts: int = 0
    batches: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    out_of_memory: int = 0
    peak_bytes: int = 0
    limit_bytes: int | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        padding = 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0
        parts = [
            f"{counted(self.texts, 'text')} in {counted(self.batches, 'batch')}",
            f"{padding:.1%} padding",
            f"{self.seconds:.1f} s",
            f"out of memory {counted(self.out_of_memory, 'time')}",
        ]
        if self.peak_bytes >= MIB:
            share = f" ({self.peak_bytes / self.limit_bytes:.0%} of the limit)" if self.limit_bytes else ""
            parts.append(f"peak {self.peak_bytes / MIB:.0f} MiB{share}")
        return ", ".join(parts)


@dataclass(frozen=True)
class MappedTexts:
    """What a function gave.

    Attributes:
        results: one for each text, in the order of the texts; ``None`` where there is none yet.
        report: what became of the batches.
    """

    results: list[Any]
    report: MapReport


class TextDoesNotFitError(TrainautoError):
    """One text runs out of memory alone.

    Attributes:
        index: which one.
    """

    def __init__(self, index: int, tokens: int, reason: str) -> None:
        super().__init__(
            f"text {index} ({counted(tokens, 'token')}) runs out of memory alone: {reason}. A smaller "
            "max_input_token_length cuts such texts. Results so far are in the loader's `mapped`; where they are what "
            "fills the memory, have the function return less, or move them off the device."
        )
        self.index = index
