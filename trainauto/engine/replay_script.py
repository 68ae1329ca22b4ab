"""The script of a run: free, or a logged run repeated step by step, in the same plans, pieces, rates and clips."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainauto.core.decisions import Decision, GiveUp, GoBack, Stop
from trainauto.core.records import MicrobatchSplit, StepRecord
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.core.words import counted
from trainauto.engine.gradients import planned_split
from trainauto.engine.run_errors import ReplayError
from trainauto.engine.step_outcome import DoesNotFit

logger = logging.getLogger(__name__)

NOTABLE = 1e-3
"""Where sums come in another order at every run (CUDA), a loss that differs by less than this share says nothing."""


class FreeScript:
    """What lays down the steps of a run: nothing. Every step is as plans, automations and memory will have it.

    Attributes:
        is_free: whether automations choose the first plan, and a batch that does not fit may be given back: steps
            then differ from those of other runs.
    """

    is_free = True

    def begin_step(self) -> list[Decision]:
        """Advance to the next step; return what was decided before it ran."""
        return []

    def splits(self) -> Mapping[str, MicrobatchSplit]:
        """Return how the passes of this step are to run where that is not as the plan says."""
        return {}

    def leaves_out_non_finite(self) -> bool:
        """Say whether this step is to leave the weights alone where its gradients are no finite numbers."""
        return False

    def ranks_before(self) -> float:
        """Return how many ranks like its largest would have had this step when it was logged, for a replay; here 1."""
        return 1.0

    def refuse(self, failure: DoesNotFit) -> None:
        """Raise where a step has to fit: here its batch is given back."""

    def end_step(self, record: StepRecord, *, finished: bool) -> list[Decision]:
        """Take in a step; return what was decided upon it."""
        del record, finished
        return []

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return what to say of it at the end, as (label, text)."""
        return ()


@dataclass(frozen=True)
class _Room:
    """What of a pass fitted here at last: samples of one forward pass, their size, and if that was cut."""

    samples: int
    extent: int
    is_cut: bool


class LoggedScript(FreeScript):
    """Tells the loop what the log says of each step, and says once where the run is another one.

    The loader follows the log by itself; decisions on plans are carried out all the same, so that a checkpoint can be
    resumed from as if the run had asked for them itself.

    Args:
        steps: logged steps, from the first that is to be repeated.
        decisions: what was decided, by the step it was reported with.
        last_step: the step to end with.
        is_exact: whether the same steps give the same bits here, as on a CPU with a fixed number of threads.
        ranks: how samples of a step were divided among ranks, where there were several.
    """

    is_free = False

    def __init__(
        self,
        steps: Iterator[StepRecord],
        decisions: Mapping[int, Sequence[Decision]],
        last_step: int,
        *,
        is_exact: bool,
        ranks: Mapping[int, SampleSharding] | None = None,
    ) -> None:
        self._steps = steps
        self._decisions = decisions
        self._last_step = last_step
        self._is_exact = is_exact
        self._ranks = ranks or {}
        self._logged: StepRecord | None = None
        self._rooms: dict[str, _Room] = {}
        self._repeated = 0
        self._first_in_other_pieces = 0
        self._first_other_loss = 0
        self._largest_difference = 0.0

    def begin_step(self) -> list[Decision]:
        """Advance to the next logged step; return what was decided before it ran."""
        self._logged = next(self._steps)
        return [decision for decision in self._decided(self._logged.step) if decision.early]

    def splits(self) -> Mapping[str, MicrobatchSplit]:
        """Return how the passes of this step are to run where that is not as the plan says.

        As logged; where less fitted here before, in as many pieces as that takes.
        """
        logged = self._now
        splits = dict(logged.pieces)
        for name, room in self._rooms.items():
            split = splits.get(name, _as_planned(logged))
            if split.extent >= room.extent:
                fewest = math.ceil(logged.shape.samples / room.samples)
                extent = room.extent if room.is_cut else split.extent
                splits[name] = MicrobatchSplit(max(split.micro_batches, fewest), extent, split.without_onednn)
        return splits

    def leaves_out_non_finite(self) -> bool:
        """Say whether it left them alone when it was logged."""
        return bool(self._now.non_finite)

    def ranks_before(self) -> float:
        """Return how many ranks like its largest would have had this step when it was logged."""
        return self._ranks.get(self._now.step, SINGLE_PROCESS).equivalent_ranks

    def refuse(self, failure: DoesNotFit) -> None:
        """Raise: a step of the log that does not fit in any way cannot be repeated.

        Raises:
            ReplayError: always.
        """
        logged = self._now
        raise ReplayError(
            f"step {logged.step} of the log ({logged.plan}) does not fit here: {failure}\n"
            "  Replay up to the step before (--until), or on a device with more memory."
        )

    def end_step(self, record: StepRecord, *, finished: bool) -> list[Decision]:
        """Compare a step with the log; return what was decided upon it, and the end of the replay with the last one.

        A stop that the run was resumed after ends no replay.
        """
        self._repeated += 1
        self._compare_pieces(record)
        self._compare_losses(record)
        # How it went wrong is repeated up to its last step; what a run undid is not in its log any more.
        decided: list[Decision] = [
            decision
            for decision in self._decided(record.step)
            if not decision.early and not isinstance(decision, GoBack | GiveUp)
        ]
        if record.step < self._last_step:
            decided = [decision for decision in decided if not isinstance(decision, Stop)]
        stops = any(isinstance(decision, Stop) for decision in decided)
        if record.step >= self._last_step and not stops and not finished:
            decided.append(Stop(f"replayed up to step {record.step}"))
        return decided

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return what to say of it at the end."""
        text = "every loss equals the log's" if self._is_exact else f"losses equal the log's within {NOTABLE:.1%}"
        if self._first_other_loss:
            share = f"{self._largest_difference:.3g}"
            text = f"losses differ from step {self._first_other_loss} on, by up to {share} of their value"
        pieces = (
            f"; other micro-batches from step {self._first_in_other_pieces} on" if self._first_in_other_pieces else ""
        )
        return (("replayed", f"{self._repeated} step{'' if self._repeated == 1 else 's'}, {text}{pieces}"),)

    @property
    def _now(self) -> StepRecord:
        if self._logged is None:
            raise RuntimeError("begin_step() comes first")
        return self._logged

    def _decided(self, step: int) -> Sequence[Decision]:
        return self._decisions.get(step, ())

    def _compare_pieces(self, record: StepRecord) -> None:
        logged = self._now
        if record.pieces == logged.pieces:
            return
        for name, split in record.pieces.items():
            wanted = logged.pieces.get(name, _as_planned(logged))
            if split != wanted:
                samples = math.ceil(record.shape.samples / split.micro_batches)
                self._rooms[name] = _Room(samples, split.extent, is_cut=split.extent < wanted.extent)
        if not self._first_in_other_pieces:
            self._first_in_other_pieces = record.step
            logger.warning(
                "replay: step %d (%s) did not fit here as it was logged; it ran %s instead of %s. This is logged once.",
                record.step,
                record.plan,
                _in_words(record.pieces, logged),
                _in_words(logged.pieces, logged),
            )

    def _compare_losses(self, record: StepRecord) -> None:
        logged = self._now
        differences = {
            name: _difference(record.losses.get(name, math.nan), value) for name, value in logged.losses.items()
        }
        name = max(differences, key=lambda term: differences[term], default=None)
        if name is None or differences[name] <= (0.0 if self._is_exact else NOTABLE):
            return
        self._largest_difference = max(self._largest_difference, differences[name])
        if not self._first_other_loss:
            self._first_other_loss = record.step
            logger.warning(
                "replay: from step %d on this is another run of the same plans: loss %s is %r here and %r in the log "
                "(%.3g of it). Other versions, threads or micro-batches sum in another order; other data give other "
                "losses.",
                record.step,
                name,
                record.losses.get(name),
                logged.losses[name],
                differences[name],
            )


def _as_planned(record: StepRecord) -> MicrobatchSplit:
    return planned_split(record.plan, record.shape.samples, record.shape.extent)


def _difference(here: float, logged: float) -> float:
    if here == logged or (math.isnan(here) and math.isnan(logged)):
        return 0.0
    share = abs(here - logged) / max(abs(logged), 1e-30)
    return share if math.isfinite(share) else math.inf


def _in_words(pieces: Mapping[str, MicrobatchSplit], logged: StepRecord) -> str:
    if not pieces:
        return _split_in_words(_as_planned(logged))
    return ", ".join(f"{_split_in_words(split)} (pass {name})" for name, split in pieces.items())


def _split_in_words(split: MicrobatchSplit) -> str:
    return f"in {counted(split.micro_batches, 'micro-batch')} of size {split.extent}"
