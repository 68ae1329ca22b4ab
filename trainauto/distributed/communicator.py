"""The processes that train one run together, and what they tell each other.

Every rank computes its own gradients; only then they meet: they agree on whether all have some, and sum them
(:meth:`Communicator.sum_gradients`). At the end of the step they exchange what each has seen. A rank that runs out of
memory has run its samples again in pieces by then: the others wait for it, and no rank hangs. Messages are JSON over a
group of the CPU, so that none of them waits for a GPU.
"""

import gc
import importlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainauto.core.decisions import Decision, decision_from_dict, decision_to_dict
from trainauto.core.errors import InputError, Problem, Saving, TrainautoError, have_saved, saving_before
from trainauto.core.process import without_memory_limit
from trainauto.distributed.bucketed_all_reduce import BucketedAllReduce
from trainauto.distributed.doubling import all_gather, exchange_over
from trainauto.distributed.rendezvous import fresh_store

logger = logging.getLogger(__name__)

OK, DOES_NOT_FIT, ABORT, LOST = 0, 1, 2, 3
"""How a rank's part of a pass ended: with gradients, in no pieces, or with an error that ends the run.

Before ``ABORT`` all ranks save; of a step that is ``LOST`` none does.
"""

TIMEOUT_S = 1800
"""How long a rank waits for the others: one may be running its batch again in pieces, or validating."""

SLOT_BYTES = 1024
"""Room for one rank's message; a longer one takes a second round."""

_LENGTH_BYTES = 8

MADE, FAILED = "made", "failed"
"""Keys of what the first rank tells the others."""

LONGEST_REASON = 500
"""Characters of an error that the others hear of."""

T = TypeVar("T")


class RankLostError(TrainautoError):
    """Another rank is gone."""


class FirstRankError(TrainautoError):
    """The first rank, which all others ask, has failed there with an error of its own.

    Args:
        message: what it said.
        saving: who is to save before that error ends the run; the ranks leave together.
    """

    def __init__(self, message: str, saving: Saving) -> None:
        super().__init__(f"the first rank ends the run with an error of its own: {message}")
        have_saved(self, saving)


class Communicator:
    """One process on its own: it agrees with itself.

    Attributes:
        rank: number of this process, from 0.
        world_size: how many there are.
        local_rank: number of this process among those of its machine.
        reduces_in_backward: whether gradients are averaged inside the backward pass, so that no rank can run a pass
            again by itself.
    """

    rank = 0
    world_size = 1
    local_rank = 0
    reduces_in_backward = False

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that decides, reports and writes."""
        return self.rank == 0

    def all_gather_object(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the messages of all ranks, in their order; every rank must ask."""
        return [message]

    def reduce_object(
        self, mine: T, pack: Callable[[T], Mapping[str, Any]], merge: Callable[[Sequence[Mapping[str, Any]]], T]
    ) -> T:
        """Return what ``merge`` makes of the messages of all ranks, which ``pack`` makes; alone, it is ``mine``."""
        del pack, merge
        return mine

    def broadcast_object(self, make: Callable[[], Any]) -> Any:
        """Return what the first rank makes, as JSON gives it back; on the others nothing is called."""
        return make()

    def broadcast_decisions(self, make: Callable[[], list[Decision]]) -> list[Decision]:
        """Return what the first rank decides."""
        return make()

    def gather(self, payload: bytes) -> list[bytes]:
        """Return what each rank gave, on the first; nothing on the others."""
        return [payload]

    def prepare(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make room for summing gradients, before memory is counted."""

    def sum_gradients(self, parameters: Sequence[nn.Parameter], status: int = OK) -> int:
        """Have each gradient be the sum over all ranks, to the bit the same everywhere, if all ranks are fine.

        Returns:
            The worst status of all; every rank must call it, whatever its own is.
        """
        del parameters
        return status

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first rank."""


SINGLE_PROCESS = Communicator()


class TorchCommunicator(Communicator):
    """Several processes, joined by :func:`init_distributed`, or by others.

    Where their group sends nothing of the CPU's (NCCL alone), what they tell each other goes through one of gloo
    beside it: every rank must make its communicator.
    """

    def __init__(self) -> None:
        self._cpu = None if _speaks_on_the_cpu() else dist.new_group(backend="gloo")
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._sum: BucketedAllReduce | None = None

    def all_gather_object(self, message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the messages of all ranks, in their order."""
        return _as_read(self._all_gathered(_to_bytes(message)))

    def reduce_object(
        self, mine: T, pack: Callable[[T], Mapping[str, Any]], merge: Callable[[Sequence[Mapping[str, Any]]], T]
    ) -> T:
        """Return what ``merge`` makes of the messages of all ranks."""
        return merge(self.all_gather_object(pack(mine)))

    def broadcast_object(self, make: Callable[[], Any]) -> Any:
        """Return what the first rank makes, on all of them; where it fails, it tells the others, and all end.

        Raises:
            FirstRankError: on the others; the first raises its error.
        """
        text, error = _made(make) if self.is_first else (b"", None)
        slot = _packed(text, SLOT_BYTES)
        with _together():
            dist.broadcast(slot, 0, group=self._cpu)
            length = _length(slot)
            if length > SLOT_BYTES - _LENGTH_BYTES:
                slot = _packed(text, length + _LENGTH_BYTES)
                dist.broadcast(slot, 0, group=self._cpu)
        if error is not None:
            raise error
        message = json.loads(_unpacked(slot))
        if FAILED in message:
            raise FirstRankError(message[FAILED], Saving(message["saving"]))
        return message[MADE]

    def broadcast_decisions(self, make: Callable[[], list[Decision]]) -> list[Decision]:
        """Return what the first rank decides, on all of them."""
        lines = self.broadcast_object(lambda: [decision_to_dict(0, decision) for decision in make()])
        return [decision_from_dict(line) for line in lines]

    def gather(self, payload: bytes) -> list[bytes]:
        """Return what each rank gave, on the first; nothing on the others."""
        lengths = [int(message["bytes"]) for message in self.all_gather_object({"bytes": len(payload)})]
        with _together():
            if self.is_first:  # one after the other: a gather's slots are all as large as the largest
                return [payload, *(_received(rank, length, self._cpu) for rank, length in enumerate(lengths) if rank)]
            if payload:
                dist.send(torch.frombuffer(bytearray(payload), dtype=torch.uint8), 0, group=self._cpu)
        return []

    def prepare(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make room for summing gradients."""
        self._sum = BucketedAllReduce(list(parameters), self._cpu)

    def sum_gradients(self, parameters: Sequence[nn.Parameter], status: int = OK) -> int:
        """Have each gradient be the sum over all ranks, if all are fine; return the worst status."""
        if self._sum is None:
            raise RuntimeError("prepare() comes first")
        with _together():
            return self._sum.run(parameters, status)

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first rank."""
        with _together(), torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0, group=self._cpu if tensor.device.type == "cpu" else None)

    def _all_gathered(self, text: bytes) -> list[bytes]:
        """Return the slots of all ranks, with a text in each."""
        with _together():
            slots = self._gathered_slots(_packed(text, SLOT_BYTES))
            longest = max(_length_in(slot) for slot in slots)
            if longest > SLOT_BYTES - _LENGTH_BYTES:
                slots = self._gathered_slots(_packed(text, longest + _LENGTH_BYTES))
        return slots

    def _gathered_slots(self, mine: Tensor) -> list[bytes]:
        return _slots_of(all_gather(mine, self.rank, self.world_size, exchange_over(self._cpu)), len(mine))


@contextmanager
def init_distributed(launcher: str) -> Iterator[Communicator]:
    """Join the group that a launcher has started this process in; leave it afterwards.

    Args:
        launcher: ``none`` for a process on its own, ``pytorch`` for one that torchrun has started.

    Raises:
        InputError: torchrun's variables are not there.
    """
    if launcher == "none":
        yield SINGLE_PROCESS
        return
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        advice = "Start it with: torchrun --nproc-per-node N -m trainauto train -opt FILE --launcher pytorch"
        raise InputError(Problem(f"--launcher pytorch, but torchrun has not set {', '.join(missing)}", advice=advice))
    if os.environ["WORLD_SIZE"] == "1":
        yield SINGLE_PROCESS
        return
    backend = "gloo"
    if torch.cuda.is_available():  # pragma: no cuda
        if dist.is_nccl_available():
            backend = "cpu:gloo,cuda:nccl"
        elif os.environ["RANK"] == "0":
            logger.warning("torch was built without NCCL: ranks exchange gradients over gloo, by way of the CPU")
    rank, world_size, timeout = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), timedelta(seconds=TIMEOUT_S)
    store = fresh_store(rank, world_size, timeout)
    # The first optimizer imports it. Imported inside the group, it keeps the group alive beyond its end, and threads of
    # gloo then meet an interpreter that is gone (SIGABRT after a run that had completed).
    importlib.import_module("torch._dynamo")
    dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=world_size)
    try:
        ranks = TorchCommunicator()
        try:
            yield ranks
        finally:
            if ranks.reduces_in_backward:
                # A wrapped network holds the group. Were it let go of with the interpreter, threads of the group would
                # end the process (SIGABRT after a run that had completed, once in six).
                gc.collect()
    finally:
        dist.destroy_process_group()


def any_of(ranks: Communicator, mine: bool) -> bool:
    """Whether it holds on any rank; every rank must ask."""
    return any(message["holds"] for message in ranks.all_gather_object({"holds": mine}))


def was_restarted() -> bool:
    """Whether torchrun says that it has started this process anew after a rank was lost: then the run resumes."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _speaks_on_the_cpu() -> bool:
    return "cpu:" in str(dist.get_backend_config())


@contextmanager
def _together() -> Iterator[None]:
    """Hold no memory budget against what a collective needs for itself, and say plainly when the group has broken."""
    try:
        with without_memory_limit():
            yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise RankLostError(
            f"another rank is gone ({reason})\n  The last checkpoint is intact: torchrun --max-restarts N starts all "
            "ranks again and resumes from it."
        ) from None


def _made(make: Callable[[], Any]) -> tuple[bytes, Exception | None]:
    """Return what the first rank sends to all: what it makes, or that it has failed; and with which error."""
    try:
        return _to_bytes({MADE: make()}), None
    except Exception as error:  # whatever it is: the others wait, and must hear of it
        reason = next(iter(f"{type(error).__name__}: {error}".splitlines()))
        return _to_bytes({FAILED: reason[:LONGEST_REASON], "saving": int(saving_before(error))}), error


def _to_bytes(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _packed(text: bytes, room: int) -> Tensor:
    """Return a tensor of ``room`` bytes: the length of a text, and the text where there is room for all of it."""
    slot = torch.zeros(room, dtype=torch.uint8)
    whole = len(text).to_bytes(_LENGTH_BYTES, "little") + (text if len(text) <= room - _LENGTH_BYTES else b"")
    slot[: len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)
    return slot


def _length(slot: Tensor) -> int:
    return int.from_bytes(slot[:_LENGTH_BYTES].numpy().tobytes(), "little")


def _length_in(slot: bytes) -> int:
    return int.from_bytes(slot[:_LENGTH_BYTES], "little")


def _unpacked(slot: Tensor) -> bytes:
    return slot[_LENGTH_BYTES : _LENGTH_BYTES + _length(slot)].numpy().tobytes()


def _received(rank: int, length: int, group: "dist.ProcessGroup | None") -> bytes:
    if not length:
        return b""
    text = torch.empty(length, dtype=torch.uint8)
    dist.recv(text, rank, group=group)
    return text.numpy().tobytes()


def _as_read(slots: Sequence[bytes]) -> list[Mapping[str, Any]]:
    """Return the messages in slots. They are read as one text: of 1,024 ranks that takes a third of the time."""
    texts = (slot[_LENGTH_BYTES : _LENGTH_BYTES + _length_in(slot)] for slot in slots)
    messages: list[Mapping[str, Any]] = json.loads(b"[" + b",".join(texts) + b"]")
    return messages


def _slots_of(slots: Tensor, room: int) -> list[bytes]:
    text = slots.numpy().tobytes()
    return [text[start : start + room] for start in range(0, len(text), room)]
