"""The loader whose batches and samples change their size while its workers stay alive."""

import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from trainauto.core.batch import Batch
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.data.batcher import FIXED_COUNT, Batcher, KnownDraws
from trainauto.data.decoder_warnings import report_damage, take_pending
from trainauto.data.documented_names import DocumentedSetters
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.data.same_samples import Accepted, check_as_many, check_samples_are_those_of
from trainauto.data.sampler import (
    REORDERS,
    DynamicBatchSampler,
    LoggedBatch,
    PlannedBatch,
    ShuffledStream,
    StreamState,
    planned_batches_of,
    positions_of,
)
from trainauto.data.worker_failures import deaths_noted_later, failure_of
from trainauto.data.worker_start import start_worker

Collated = tuple[dict[str, Tensor], list[tuple[str, str]]] | InputError

NewBatcher = Callable[[ShuffledStream, SampleSharding], Batcher]
"""Makes what says how many samples a draw holds, of the order of the samples and of who trains which of them."""


def as_planned(_order: ShuffledStream, _sharding: SampleSharding) -> Batcher:
    """Have draws hold as many samples as their plan says."""
    return FIXED_COUNT


class DynamicDataLoader(DocumentedSetters):
    """Endless batches of training samples, steered by a plan.

    - A larger plan acts ``lookahead`` draws later, whatever the number of workers; results do not depend on workers.
    - A smaller plan also re-cuts the batches in flight: they arrive in more, smaller pieces, and no sample is lost.
    - :meth:`state_dict` holds a position in the stream, not a count of batches; a resume draws on from there at once.
    - On several ranks each loader gives its rank's samples of the same draws, and no two of them give the same.

    Attributes:
        samples: of an epoch.

    Call it from one thread. Use it as a context manager, or call :meth:`close`, to end the workers.

    Args:
        dataset: makes samples from keys.
        plan: the plan to start with.
        seed: decides order, crops and flips.
        num_workers: processes that decode; 0 decodes in this one.
        lookahead: draws between asking for a larger plan and getting it; at least ``num_workers``.
        pin_memory: put batches into page-locked memory, for copies to CUDA that do not block.
        multiprocessing_context: ``fork``, ``spawn`` or ``forkserver``; ``None`` takes the platform's default.
        sharding: how draws are divided among the ranks; the same on each.
        rank: whose samples to give.
        new_batcher: makes what says how many samples a draw holds; they are as many as the plan's ``batch_size`` by
            default.
        stream: the order of the samples; shuffled by ``seed`` by default.
        outlives_sigterm: workers ignore the first SIGTERM, which a scheduler sends to the whole group: a run finishes
            its step, and ends them itself. Otherwise, the interpreter would wait for them for ever.

    Attributes:
        accepted: which states of other samples it takes.
        begins_anew: whether it has taken one, so that an epoch of the samples of now begins.
    """

    def __init__(
        self,
        dataset: DynamicDataset,
        plan: Plan,
        *,
        seed: int,
        num_workers: int = 0,
        lookahead: int = 8,
        pin_memory: bool = False,
        multiprocessing_context: str | None = None,
        sharding: SampleSharding = SINGLE_PROCESS,
        rank: int = 0,
        new_batcher: NewBatcher = as_planned,
        stream: ShuffledStream | None = None,
        outlives_sigterm: bool = True,
    ) -> None:
        if lookahead < max(1, num_workers):
            raise ValueError(f"lookahead ({lookahead}) must be at least num_workers ({num_workers}) and 1")
        self.dataset, self.samples = dataset, len(dataset)
        self.plan = plan
        self.lookahead = lookahead
        self.sharding = sharding
        self._rank = rank
        self._stream = stream or ShuffledStream(len(dataset), seed)
        self._batcher = new_batcher(self._stream, sharding)
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        self._outlives_sigterm = outlives_sigterm
        self._context = multiprocessing_context if num_workers else None
        self._tail = StreamState.start(plan, self._batcher)
        self._given = 0  # samples of the tail's next draw, of all ranks, that were handed out already
        self._current: Batch | None = None  # that draw, whole, while the workers' batch is in hand
        self._fetched = 0  # draws fetched from the workers
        self._head: DynamicBatchSampler | None = None
        self._workers: Iterator[Collated] | None = None
        self.accepted = Accepted()
        self.begins_anew = False
        self._logged: Sequence[LoggedBatch] | None = None
        self._next_logged = 0
        self._last_logged_draw = 0

    @property
    def position(self) -> int:
        """Position in the stream of samples behind the last batch that was handed out."""
        return self._tail.next_draw.first_sample + self._given

    @property
    def loads_here(self) -> bool:
        """Whether this process makes the samples itself, without workers."""
        return not self._num_workers

    def __enter__(self) -> "DynamicDataLoader":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. A new iterator starts new ones."""
        # The DataLoader's iterator ends them when it is let go, but frames of an error that is kept may hold it.
        end_workers = getattr(self._workers, "_shutdown_workers", None)
        self._workers = None
        if end_workers is not None:
            end_workers()

    def update_plan(self, plan: Plan) -> None:
        """Draw under ``plan`` after the lookahead; from the next batch on, give nothing larger than it.

        Before the first batch there is nothing under way: the plan acts at once.
        """
        if self._head is not None:
            at = self._fetched + self.lookahead
        else:
            # A draw of which a part was trained before the resume stays what it was.
            at = self._tail.next_draw.number + (1 if self._given else 0)
        if self._logged is None or at > self._last_logged_draw:
            self._tail = self._tail.with_change(at, plan, self._batcher)
            if self._head is not None:
                self._head.change(at, plan)
        self.plan = plan

    def replay(self, batches: Sequence[LoggedBatch], trained: int = 0) -> None:
        """Give exactly these batches, whatever plan is asked for, and then end; takes effect with the next iterator.

        What :meth:`update_plan` asks for acts beyond them, so that a checkpoint can be resumed from as ever.

        Args:
            batches: those of a whole run, from its beginning.
            trained: how many of them lie behind.

        Raises:
            ValueError: they do not follow each other as a loader gives them.
        """
        draws = planned_batches_of(batches)
        of_ranks = {batch.first_sample: batch.sharding for batch in batches if batch.sharding != SINGLE_PROCESS}

        def share(first_sample: int) -> None:
            self._stream.sharding = of_ranks.get(first_sample, SINGLE_PROCESS)

        self._batcher = KnownDraws({draw.first_sample: draw.batch_size for draw in draws}, self._batcher, share)
        if trained < len(batches):
            start = batches[trained].first_sample
            number = bisect_right(draws, start, key=lambda draw: draw.first_sample) - 1
            beyond = [(at, plan) for at, plan in self._tail.changes if at >= len(draws)]
            self._tail, self._given = StreamState.among(draws, number), start - draws[number].first_sample
            if not self._given:  # the rest of a draw lies as it was packed before
                self._batcher.batch_size(draws[number].first_sample, draws[number].plan)
            for at, plan in beyond:
                self._tail = self._tail.with_change(at, plan, self._batcher)
        if draws and not trained:
            self.plan = draws[0].plan  # a run may begin with another plan than its option file's
        self._logged, self._next_logged, self._last_logged_draw = batches, trained, len(draws) - 1

    def redraw(self) -> None:
        """Have what was drawn ahead be drawn again, by workers that begin anew: samples are made in another way now."""
        if self._workers is not None:
            self._begin_drawing()

    def _begin_drawing(self) -> None:
        self._advance_if_consumed()
        self._fetched = self._tail.next_draw.number
        self._head = DynamicBatchSampler(self._stream, self._tail, self.sharding, self._rank, self._batcher)
        self._workers = self._start_workers(self._head)
        self._current = None

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches without end. A second iterator continues where the first one stopped."""
        self._begin_drawing()
        while self._workers is not None and (self._logged is None or self._next_logged < len(self._logged)):
            if self._current is None:
                self._current = self._fetch(self._workers)
            piece = self._piece(self._current)
            self._given += piece.step_samples
            yield piece
            self._advance_if_consumed()

    def requeue(self, batch: Batch) -> None:
        """Take back the batch that was handed out last: its samples come again, cut to the plan of then."""
        self._given -= batch.step_samples

    def reorder(self, number: int) -> int:
        """Draw what lies ahead in another order, and return from which position of the stream on.

        It takes effect with the next iterator. A draw of which a part was handed out stays as it is.

        Args:
            number: decides the order, above 0.
        """
        self._advance_if_consumed()
        draw = self._tail.next_draw
        position = draw.first_sample + (draw.total(self.sharding) if self._given else 0)
        self.reorder_from(position, number)
        return position

    def reorder_from(self, position: int, number: int) -> None:
        """Draw what comes from a position of the stream on in another order, as a log says."""
        self._stream.reorder_from(position, number)
        if position == self._tail.next_draw.first_sample:
            self._tail = self._tail.asked_anew(self._batcher)

    def withdraw(self, batch: Batch) -> None:
        """Hand a batch that was taken back out again: what :meth:`requeue` did is undone."""
        self._given += batch.step_samples

    def _piece(self, batch: Batch) -> Batch:
        """Return what comes next of the current draw: as the plan says, or as the log that is replayed."""
        draw = self._tail.next_draw
        rest = without_first(batch, bisect_left(draw.places(self.sharding, self._rank), self._given))
        if self._logged is None:
            counts = self._next_counts(draw)
            piece = first_piece(rest, counts[self._rank], self.plan)
            others = sum(counts) - counts[self._rank]
        else:
            piece, others = logged_piece(rest, self._logged[self._next_logged]), 0
            self._next_logged += 1
        share = self.sharding.weights[self._rank]
        stand_in = {} if len(piece) else batch.stand_in or batch.workload.part(batch.tensors, 0, 1)
        return replace(
            piece, first_sample=batch.first_sample + self._given, others=others, share=share, stand_in=stand_in
        )

    def _next_counts(self, draw: PlannedBatch) -> Sequence[int]:
        """Return how many samples each rank trains next of a draw."""
        counts = self.sharding.next_piece(draw.batch_size, self._most_of(draw), self._given)
        if not draw.lacking:
            return counts
        places = (draw.places(self.sharding, rank) for rank in range(self.sharding.world_size))
        left = (len(of_rank) - bisect_left(of_rank, self._given) for of_rank in places)
        return [min(count, some) for count, some in zip(counts, left, strict=True)]

    def _most_of(self, draw: PlannedBatch) -> int:
        """Return the samples of the largest rank that fit the plan of now, of those of a draw that come next."""
        plan = draw.plan.capped_by(self.plan)
        if plan == draw.plan:
            return draw.batch_size
        return self._batcher.part_size(draw.first_sample + self._given, self._left_of(draw), plan)

    def _left_of(self, draw: PlannedBatch) -> int:
        return max(1, self.sharding.most_of(self.sharding.total(draw.batch_size) - self._given))

    def _fetch(self, workers: Iterator[Collated]) -> Batch:
        check_as_many(self.samples, self.dataset)
        if (failure := failure_of(workers)) is None:
            try:
                collated = next(workers)
            except (RuntimeError, EOFError, OSError) as error:
                if (failure := failure_of(workers, error)) is None:
                    raise
        if failure is not None:
            self.close()
            raise failure
        self._fetched += 1
        if isinstance(collated, InputError):
            raise collated
        tensors, damaged = collated
        for path, damage in damaged:
            report_damage(path, damage)
        return self._batch(self._tail.next_draw, tensors)

    def _advance_if_consumed(self) -> None:
        if self._is_consumed():
            self._tail, self._given, self._current = self._tail.advanced(self.sharding, self._batcher), 0, None
            self._stream.forget_before(self._tail.next_draw.first_sample)

    def _is_consumed(self) -> bool:
        return self._given == self._tail.next_draw.total(self.sharding)

    def state_dict(self) -> dict[str, Any]:
        """Return the position behind the last batch that was handed out."""
        identity, stream = self.dataset.identity(), self._stream.state_dict()
        tail = self._tail.advanced(self.sharding, self._batcher) if (whole := self._is_consumed()) else self._tail
        if self._logged is not None:  # a log knows changes that nobody has asked for yet
            tail = replace(tail, changes=tuple(c for c in tail.changes if c[0] <= self._fetched + self.lookahead))
        return {
            "tail": tail.to_dict(),
            "given": 0 if whole else self._given,
            "plan": self.plan.to_dict(),
            "samples": self.samples,
            "checksums": dict(self.dataset.checksums()),
            **({"identity": identity} if identity else {}),
            "shares": list(self.sharding.weights),
            **({"stream": stream} if stream else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state_dict`; takes effect with the next iterator.

        Under another sharding than it was written with, what is left of a draw begins the next one.

        Raises:
            InputError: the dataset has other samples now, which were not accepted: the position means nothing.
        """
        stream = state.get("stream", {})
        if not (is_anew := self.accepted.takes_anew(state, self.dataset)):
            check_samples_are_those_of(state, self.dataset)
        self._stream.load_state_dict({REORDERS: stream.get(REORDERS, ())} if is_anew else stream)
        self._tail, self._given = StreamState.from_dict(state["tail"]), int(state["given"])
        self.begins_anew = is_anew
        if is_anew:
            self._tail, self._given = self._tail.at_epoch(len(self.dataset), self._given, self._batcher), 0
        elif tuple(state.get("shares", SINGLE_PROCESS.weights)) != self.sharding.weights:
            self._tail, self._given = self._tail.without_given(self._given, self._batcher), 0
        self.plan = Plan.from_dict(state["plan"])

    def _start_workers(self, head: DynamicBatchSampler) -> Iterator[Collated]:
        with warnings.catch_warnings():
            # torch's own advice on the number of workers; the option file's reader gives it in the user's words.
            warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
            loader: DataLoader[Any] = DataLoader(
                self.dataset,
                batch_sampler=head,
                num_workers=self._num_workers,
                # Together the workers hold no more than the lookahead, or a plan would act later with more of them.
                prefetch_factor=max(1, self.lookahead // self._num_workers) if self._num_workers else None,
                collate_fn=partial(_collate, self.dataset.collate),
                pin_memory=self._pin_memory,
                worker_init_fn=partial(start_worker, self._outlives_sigterm),
                multiprocessing_context=self._context,
                # A generator of its own: the default would draw from the run's random stream at every start and resume.
                generator=torch.Generator(),
            )
            with deaths_noted_later():
                return iter(loader)

    def _batch(self, draw: PlannedBatch, tensors: dict[str, Tensor]) -> Batch:
        positions = positions_of(draw, self.sharding, self._rank)
        names = tuple(map(self.dataset.sample_name, self._stream.indices(positions)))
        workload = self.dataset.workload
        stand_in: Mapping[str, Tensor] = {}
        if not positions:  # others have all samples of a small draw, of which this rank has loaded one
            stand_in, tensors = tensors, workload.part(tensors, 0, 0)
        shape, units = workload.shape(tensors), workload.units(tensors)
        draw_samples = 0 if draw.is_as_counted else draw.total(self.sharding)
        return Batch(
            tensors,
            workload,
            names,
            draw.first_sample,
            draw.plan,
            draw.plan,
            shape,
            units,
            draw_samples=draw_samples,
            stand_in=stand_in,
        )


def _collate(
    together: Callable[[list[dict[str, Tensor]]], dict[str, Tensor]], samples: "list[dict[str, Tensor]] | InputError"
) -> Collated:
    """Make samples a batch; a failed one passes through as its error. Damaged files that were read travel with it."""
    return samples if isinstance(samples, InputError) else (together(samples), take_pending())


def first_piece(batch: Batch, samples: int, plan: Plan) -> Batch:
    """Take the first ``samples`` of a batch, none larger than the plan's size; the rest waits for the next step.

    How many that are, :meth:`~trainauto.core.sharding.SampleSharding.next_piece` says for all ranks together.
    """
    trained = batch.drawn.capped_by(plan)
    piece = _slice(batch, 0, samples)
    return replace(_cut(piece, trained.size) if trained.has_size else piece, plan=trained)


def logged_piece(batch: Batch, logged: LoggedBatch) -> Batch:
    """Take from ``batch`` what a log holds as the next one, in its size and under its plan."""
    return replace(_cut(_slice(batch, 0, logged.samples), logged.extent), plan=logged.plan)


def without_first(batch: Batch, samples: int) -> Batch:
    """Return the batch without its first samples: those that were trained already."""
    return _slice(batch, samples, len(batch)) if samples else batch


def _cut(batch: Batch, extent: int) -> Batch:
    """Cut samples down to ``extent`` where they are larger."""
    if extent >= batch.shape.extent:
        return batch
    return _holding(batch, batch.workload.shrink(batch.tensors, batch.shape.extent, extent))


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    if (start, stop) == (0, len(batch)):
        return batch
    return _holding(replace(batch, names=batch.names[start:stop]), batch.workload.part(batch.tensors, start, stop))


def _holding(batch: Batch, tensors: dict[str, Tensor]) -> Batch:
    """Return a batch with other tensors, and with what is known of them."""
    return replace(batch, tensors=tensors, shape=batch.workload.shape(tensors), units=batch.workload.units(tensors))
