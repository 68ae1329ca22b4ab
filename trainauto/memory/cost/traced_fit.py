"""What a step should need, before anything was measured: bytes as a function of forward batch and extent.

Let b be the samples in the largest forward pass, x their size rounded up to the network's window, and u = x^power
(pixels of a crop, whose size is a side: power 2; tokens of a row: power 1). Each phase of a step (forward and backward,
optimizer) peaks at

    constant + linear * b * u + pairwise * b * u^2

and the step at the largest of its phases. Activations give the linear term. Attention that writes out its matrix gives
the pairwise one, which is fitted only where the other two leave a residual. One line through everything would be wrong
by 18 % below the kink where the optimizer stops being the peak. By phase, four traces of at most 8 samples of 64 pixels
predicted traces of 4 times the pixels, crops of 256 among them, to 0.01 % (RRDB, SPAN, Swin, global attention).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

Size = tuple[int, int]
"""Samples in the largest forward pass, and size of a sample: the side of a crop in pixels, or tokens."""

SIDE = 2
"""Power of a side: what most priors here are made for."""

Term = Callable[[Size], float]

TRACED_TOLERANCE = 0.002
"""Largest relative residual at which a phase needs no pairwise term (traces of seven networks left under 0.01 %)."""

ASSUMED_CONSTANT = 0.5
"""Share of a lone known peak that is taken as constant below it; above it all of it grows. Both overestimate."""

LONE_CAUTION = 0.1
"""Growth beyond a lone known peak is so much steeper than proportional: a baseline may have hidden a little of it."""

APART = 1.5
"""Ratio of work from which two measured peaks tell a slope: half a per cent of noise is then 2 % of the slope."""

CAUTION = 0.25
"""How far growth beyond the largest measured plan is taken from the secant (a lower bound) towards proportional."""


@dataclass(frozen=True)
class Piece:
    """Peak of one phase; ``linear`` and ``pairwise`` are never negative, ``constant`` may be (a CPU's baseline)."""

    phase: str
    constant: float
    linear: float = 0.0
    pairwise: float = 0.0

    def bytes(self, samples: int, units: int) -> float:
        """Return the peak of so many samples of so many units (pixels, tokens) each, padded already."""
        return self.constant + self.linear * samples * units + self.pairwise * samples * units**2


@dataclass(frozen=True)
class Prior:
    """Bytes of a step by size. More samples or a larger extent never cost less.

    Attributes:
        pieces: what the step is the maximum of.
        exact: peaks that are known, by padded size; they win over the pieces, which stay between them.
        window_px: extents are rounded up to multiples of this.
        residual: largest relative difference between the pieces and what they were fitted to.
        lumps_bytes: the same in bytes where lumps of memory are the reason, so that larger plans are missed by no more;
            0 where the difference grows with the plan.
        power: memory follows the size to this power: a side 2, tokens 1.
    """

    pieces: tuple[Piece, ...]
    exact: Mapping[Size, float]
    window_px: int = 1
    residual: float = 0.0
    lumps_bytes: float = 0.0
    power: int = SIDE

    def bytes(self, batch: int, extent: int) -> float:
        """Return the expected peak of a step."""
        size = padded((batch, extent), self.window_px)
        fitted = _highest(self.pieces, size, self.power)
        # Known peaks below and above bound it: monotone, and exact at the known sizes themselves.
        above = min((peak for traced, peak in self.exact.items() if within(size, traced)), default=fitted)
        below = max((peak for traced, peak in self.exact.items() if within(traced, size)), default=0.0)
        return max(1.0, below, min(fitted, above))


def within(size: Size, other: Size) -> bool:
    """Say whether a size is at most another one in batch and extent."""
    return size[0] <= other[0] and size[1] <= other[1]


def fit_prior(points: Mapping[Size, Mapping[str, float]], window_px: int = 1, power: int = SIDE) -> Prior:
    """Fit a prior to traced plans.

    Three plans of different work find the linear term, four the pairwise one. A single plan serves too: growth from it
    is then taken as proportional, which overestimates.

    Args:
        points: for each (forward batch, extent), the peak bytes of every phase.
        window_px: the network pads extents to multiples of this.
        power: memory follows the size to this power.

    Raises:
        ValueError: there is no point, or no phase.
    """
    traced = {padded(size, window_px): dict(phases) for size, phases in points.items() if phases}
    if not traced:
        raise ValueError("a prior needs at least one traced plan with the bytes of its phases")
    pieces: list[Piece] = []
    totals = {size: float(max(phases.values())) for size, phases in traced.items()}
    for phase in sorted({phase for phases in traced.values() for phase in phases}):
        peaks = {size: float(phases[phase]) for size, phases in traced.items() if phase in phases}
        in_units = _in_units(peaks, power)
        fitted = _fitted(phase, in_units)
        # A phase that never is the peak and has another form (a kink of its own) would only mislead beyond the points.
        if max(_worst(piece, in_units) for piece in fitted) <= TRACED_TOLERANCE or any(
            peak == totals[size] for size, peak in peaks.items()
        ):
            pieces += fitted
    return _assembled(pieces, totals, window_px, power)


def allocator_prior(live: Prior, peaks: Mapping[Size, float], *, of_blocks: bool = False) -> Prior:
    """Fit what an allocator's blocks or segments take to live bytes, which they hold: a share and a constant.

    Differences are counted in bytes: segments come in lumps, and what they add grows no further once they are there.
    Counted in shares, as fits of live bytes are, the smallest plans ruled, and large ones were predicted 4 to 13 % too
    high (four networks, 80 to 1500 MiB); so expandable segments are within 5 %, native ones within 13 %.

    Args:
        live: of the same plans.
        peaks: bytes of blocks in use, or reserved ones, by (forward batch, extent).
        of_blocks: they are of blocks, each of which keeps less than 1 MiB beside what is asked for: a constant alone.

    Raises:
        ValueError: there is no peak.
    """
    taken = {padded(size, live.window_px): float(peak) for size, peak in peaks.items()}
    if not taken:
        raise ValueError("a prior of an allocator's bytes needs at least one traced plan")
    live_bytes = np.array([live.bytes(*size) for size in taken])
    taken_bytes = np.array(list(taken.values()))
    centred = live_bytes - live_bytes.mean()
    grows = not of_blocks and len(set(live_bytes)) > 1
    slope = float(centred @ taken_bytes / (centred @ centred)) if grows else 1.0
    share = max(1.0, slope)
    constant = max(0.0, float(taken_bytes.mean() - share * live_bytes.mean()))
    pieces = [
        Piece(piece.phase, constant + share * piece.constant, share * piece.linear, share * piece.pairwise)
        for piece in live.pieces
    ]
    missed = max(abs(_highest(pieces, size, live.power) - peak) for size, peak in taken.items())
    return replace(_assembled(pieces, taken, live.window_px, live.power), lumps_bytes=missed)


def measured_prior(peaks: Mapping[Size, float], window_px: int = 1, pairwise: bool = False, power: int = SIDE) -> Prior:
    """Make do with measured peaks where nothing could be traced.

    The need is a maximum of rising lines, so the secant through two plans is a lower bound beyond the larger one, and
    proportional growth an upper bound: the slope is taken between them (:data:`CAUTION`). One plan: proportional.

    Args:
        peaks: measured bytes by (forward batch, extent); a few per cent of caution is the business of who asks.
        window_px: the network pads extents to multiples of this.
        pairwise: attention is written out: fit batch * u^2 from the third plan on, assume it before.
        power: memory follows the size to this power.

    Raises:
        ValueError: there is no peak.
    """
    measured: dict[Size, float] = {}
    for size, peak in peaks.items():
        key = padded(size, window_px)
        measured[key] = max(float(peak), measured.get(key, 1.0))
    if not measured:
        raise ValueError("no peak was measured yet")
    piece = None
    in_units = _in_units(measured, power)
    works = [_units(size) for size in in_units]
    if pairwise and len(measured) >= 3 and max(works) >= APART * min(works):
        piece = _least_squares("measured", in_units, (_units, _pairs)) or _least_squares(
            "measured", in_units, (_units,)
        )
    terms = (_units, _pairs) if pairwise else (_units,)
    pieces = [piece] if piece else [line for term in terms for line in _extrapolated(in_units, term)]
    return _assembled(pieces, measured, window_px, power)


def padded(size: Size, window_px: int) -> Size:
    """Return a size with its extent rounded up to the window."""
    return int(size[0]), ceil(size[1] / window_px) * window_px


def _in_units(peaks: Mapping[Size, float], power: int) -> dict[Size, float]:
    """Return peaks by samples and units of a sample, instead of by its size."""
    return {(batch, extent**power): peak for (batch, extent), peak in peaks.items()}


def _units(size: Size) -> float:
    return float(size[0] * size[1])


def _pairs(size: Size) -> float:
    return float(size[0] * size[1] ** 2)


def _highest(pieces: Sequence[Piece], size: Size, power: int) -> float:
    return max(piece.bytes(size[0], size[1] ** power) for piece in pieces)


def _assembled(pieces: Sequence[Piece], peaks: Mapping[Size, float], window_px: int, power: int) -> Prior:
    exact = {size: max(1.0, *(peak for other, peak in peaks.items() if within(other, size))) for size in peaks}
    residual = max(abs(_highest(pieces, size, power) / peak - 1) for size, peak in exact.items())
    return Prior(tuple(pieces), exact, window_px, residual, power=power)


def _fitted(phase: str, peaks: Mapping[Size, float]) -> Sequence[Piece]:
    if len({_units(size) for size in peaks}) == 1:
        return _from_single_peak(phase, peaks, _units)
    plain = _least_squares(phase, peaks, (_units,))
    if plain is None:  # it falls with work: a constant, seen with noise
        return [Piece(phase, max(peaks.values()))]
    candidates = [plain]
    if _worst(plain, peaks) > TRACED_TOLERANCE:
        alternatives = (_least_squares(phase, peaks, terms) for terms in ((_pairs,), (_units, _pairs)))
        candidates += [piece for piece in alternatives if piece is not None]
    return [min(candidates, key=lambda piece: _worst(piece, peaks))]


def _worst(piece: Piece, peaks: Mapping[Size, float]) -> float:
    return max(abs(piece.bytes(*size) / max(1.0, peak) - 1) for size, peak in peaks.items())


def _least_squares(phase: str, peaks: Mapping[Size, float], terms: Sequence[Term]) -> Piece | None:
    """Fit a constant and the terms by least relative squares; ``None`` if they are not separable or one would fall."""
    values = np.array([max(1.0, peak) for peak in peaks.values()])
    table = np.array([[1.0, *(term(size) for term in terms)] for size in peaks])
    scales = table.max(axis=0)
    solution, _, rank, _ = np.linalg.lstsq(table / scales / values[:, None], np.ones(len(values)), rcond=1e-9)
    if rank < table.shape[1] or min(solution[1:]) < 0:
        return None
    slopes = dict(zip(terms, (float(value) for value in (solution / scales)[1:]), strict=True))
    return Piece(phase, float(solution[0]), slopes.get(_units, 0.0), slopes.get(_pairs, 0.0))


def _from_single_peak(phase: str, peaks: Mapping[Size, float], term: Term) -> list[Piece]:
    """Return growth a little above proportional from the largest peak, and half of it constant below."""
    size, peak = max(peaks.items(), key=lambda point: (point[1], term(point[0])))
    slope = peak / term(size)
    up, down = 1 + LONE_CAUTION, 1 - ASSUMED_CONSTANT
    return [
        _line(phase, (1 - up) * peak, up * slope, term),
        _line(phase, (1 - down) * peak, down * slope, term),
    ]


def _extrapolated(peaks: Mapping[Size, float], term: Term) -> list[Piece]:
    """Return the line through the largest plan that is a little steeper than the secant to the next one."""
    points = sorted((term(size), peak) for size, peak in peaks.items())
    largest, peak = points[-1]
    apart = [point for point in points if point[0] * APART <= largest]
    slope = (peak - apart[-1][1]) / (largest - apart[-1][0]) if apart else 0.0
    if slope <= 0:
        return _from_single_peak("measured", peaks, term)
    slope += CAUTION * max(0.0, peak / largest - slope)
    # Where the constant is negative, the line must not fall to nothing below the smallest plan.
    least = min(peak / work for work, peak in points) / 2
    return [_line("measured", peak - slope * largest, slope, term), _line("measured", 0.0, least, term)]


def _line(phase: str, constant: float, slope: float, term: Term) -> Piece:
    return Piece(phase, constant, slope) if term is _units else Piece(phase, constant, pairwise=slope)
