"""What forward passes of networks may change beside gradients: buffers, and parameters that no optimizer steps."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import Optimizer

from trainauto.core.objectives import ChangesOncePerPass
from trainauto.distributed.communicator import Communicator
from trainauto.engine.value_copies import can_be_copied, copy_aside, is_same, put_back

LEARNING_STEPS = 3
"""Steps in which parameters are copied to learn which of them change.

A teacher that follows its student changes only once the student has moved: not in the first step, nor while a warm-up
holds the rate at 0.
"""
TURNS = 4
"""Steps in which the versions and addresses of all tensors are read once, as long as none has told of a change.

Reading all of them in every step is the largest part of what a step pays that does not fail.
"""

MANY = 256
"""Tensors from which on they are read in turn: fewer are read in some microseconds."""


class Slot(NamedTuple):
    """Where a module keeps a tensor: another one may stand there after a pass.

    Attributes:
        holder: ``_buffers`` or ``_parameters`` of the module.
        key: name in it.
        name: in the whole network, for messages.
        steps: in which it is copied to learn whether it changes.
        has_address: whether its memory is asked for, too: ``weight.data = ...`` gives a parameter no new version.
        changes_once: whether its module changes once a pass, in however many pieces that runs.
    """

    holder: dict[str, Any]
    key: str
    name: str
    steps: int = 1
    has_address: bool = False
    changes_once: bool = False


class ModuleState:
    """Buffers and parameters without an optimizer, as they were when a pass began.

    The first steps copy what may change and compare it by value; later ones copy what ever changed. Of the rest, a new
    tensor in a slot, a new version, or other memory of a parameter tells that it has changed. A failure reads them all:
    what has changed since they were last read, and has no copy, forbids to run the pass again. Frozen weights are
    copied up to the size of the trained ones, those of a trained one's shape first: what follows weights is no larger.

    Parameters that FSDP spreads over ranks are left alone.

    Args:
        networks: whose.
        optimizers: what they step is left alone; without any, parameters with gradients are.
    """

    def __init__(self, networks: Iterable[nn.Module], optimizers: Iterable[Optimizer] = ()) -> None:
        self._networks = list(networks)
        self._optimizers = list(optimizers)
        self._buffers: list[dict[str, Any]] = []
        self._entries = -1  # of all of these
        self._slots: list[Slot] = []
        self._places: list[tuple[dict[str, Any], str]] = []
        self._left: dict[int, int] = {}  # slots that are still copied to learn whether they change: in how many steps
        self._changing: set[int] = set()
        self._assigned: set[int] = set()  # those of the changing ones where another tensor has stood
        self._copied: list[int] = []
        self._watched: list[int] = []
        self._addressed: list[int] = []
        self._found: list[Any] = []  # what stood in each slot when the pass began
        self._copies: dict[int, Any] = {}
        self._told: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._marks: tuple[list[int], list[int]] = ([], [])
        self._turns = 1
        self._turn = 0
        self._is_quiet = True  # between passes no mark has changed
        self._is_suspicious = False  # something has changed since the pass before, in it or after it
        self._steps = 0
        self._shared: list[int] = []  # what changes on any rank, and is as large on all
        self._once_a_pass: list[ChangesOncePerPass] = []

    @property
    def is_learning(self) -> bool:
        """Whether the next pass copies what later ones may not copy."""
        self._list_slots()
        return bool(self._left)

    def take(self) -> None:
        """Remember what is there."""
        self._copies = {}
        self._list_slots()
        found = self._now()
        if not all(map(is_, found, self._found)):
            self._is_suspicious, self._found = True, found
            self._watch()
        self._copies = {place: found[place].detach().clone() for place in self._copied}
        for place in self._left.keys() - self._changing:
            value = found[place]
            if value is not None and can_be_copied(value):
                self._copies[place] = copy_aside(value)
        self._read_marks()

    def note_changes(self, *, is_failure: bool = False) -> list[str]:
        """Note what has changed since; return the names of what has and no copy holds.

        Once it is learned what changes, a pass that stays is looked at only where something has changed since the pass
        before it: each look asks every slot.
        """
        if not (is_failure or self._is_suspicious or self._left or self._steps < LEARNING_STEPS):
            return []
        self._is_suspicious = False
        now, marks = self._now(), self._marks_now()
        changed = {place for place, value in enumerate(now) if value is not self._found[place]}
        self._assigned |= changed
        changed |= {
            place
            for place in self._left.keys() & self._copies.keys() - changed
            if not is_same(now[place], self._copies[place])
        }
        marked: set[int] = set()
        for places, old, new in zip((self._watched, self._addressed), self._marks, marks, strict=True):
            marked |= {place for place, before, after in zip(places, old, new, strict=True) if before != after}
        if not changed | marked <= self._changing:
            self._changing |= changed | marked
            self._watch()
        return [self._slots[place].name for place in sorted(marked - self._copies.keys())]

    def put_back(self) -> None:
        """Have everything be as it was found; buffers that have come since go."""
        known = {(id(holder), key) for holder, key in self._places}
        for holder in self._buffers:
            for key in [key for key in holder if (id(holder), key) not in known]:
                del holder[key]
        for (holder, key), value in zip(self._places, self._found, strict=True):
            if holder.get(key) is not value:
                holder[key] = value
        for place, copy in self._copies.items():
            if not is_same(self._found[place], copy):
                put_back(self._found[place], copy)

    def learn(self) -> None:
        """A step has stayed: what has not changed in the first ones is not copied any more."""
        self._steps += 1
        takes_turns = self._steps >= LEARNING_STEPS and self._is_quiet and len(self._watched) >= MANY
        self._turns = TURNS if takes_turns else 1
        for place in self._assigned:  # what stood there is let go
            self._found[place] = self._slots[place].holder.get(self._slots[place].key)
        self._left = {place: steps - 1 for place, steps in self._left.items() if steps > 1}

    def changing(self) -> list[Tensor]:
        """Return what passes change, as it is now."""
        return self._tensors_at(sorted(self._changing))

    @property
    def changing_by_piece(self) -> list[str]:
        """Names of what passes change with each piece of a batch, without those of ``torch.compile``."""
        slots = [self._slots[place] for place in sorted(self._changing)]
        return [slot.name for slot in slots if not slot.changes_once]

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Have modules that change once a pass do so now, and not again inside."""
        self._list_slots()
        modules = list(self._once_a_pass)
        for module in modules:
            module.begin_pass()
        try:
            yield
        finally:
            for module in modules:
                module.end_pass()

    def share(self, ranks: Communicator) -> None:
        """Have what passes change be the first rank's on all; in the first steps they agree on what that is."""
        if ranks.world_size == 1:
            return
        if self._steps < LEARNING_STEPS:
            kinds = [_kind(value) for value in self._now()]
            messages = ranks.all_gather_object({"changing": sorted(self._changing), "kinds": kinds})
            alike = [len(set(each)) == 1 for each in zip(*(message["kinds"] for message in messages), strict=False)]
            changing = {place for message in messages for place in message["changing"] if place < len(alike)}
            self._shared = [place for place in sorted(changing) if alike[place]]
            self._changing |= changing
            self._watch()
        ranks.broadcast_tensors(self._tensors_at(self._shared))

    def _tensors_at(self, places: Iterable[int]) -> list[Tensor]:
        values = [self._slots[place].holder.get(self._slots[place].key) for place in places]
        return [value for value in values if value is not None]

    def _now(self) -> list[Any]:
        try:
            return [holder[key] for holder, key in self._places]
        except KeyError:  # a buffer was deleted
            return [holder.get(key) for holder, key in self._places]

    def _read_marks(self) -> None:
        """Read the marks whose turn it is, and all from the first change on."""
        self._turn = (self._turn + 1) % self._turns
        its_turn = slice(self._turn, None, self._turns)
        versions, addresses = self._told
        now = _marks_of(versions[its_turn], addresses[its_turn])
        if now != tuple(marks[its_turn] for marks in self._marks):
            self._is_suspicious, self._is_quiet, self._turns = True, False, 1
            self._marks = self._marks_now()

    def _marks_now(self) -> tuple[list[int], list[int]]:
        """Return versions, and addresses of parameters, of what was found and is not known to change."""
        return _marks_of(*self._told)

    def _watch(self) -> None:
        """Copy what is known to change from now on; look at versions and addresses of the rest."""
        found = self._found
        told = {place for place, value in enumerate(found) if value is not None and not value.is_inference()}
        self._copied = [place for place in sorted(told & self._changing) if can_be_copied(found[place])]
        self._watched = sorted(told - self._changing)
        self._addressed = [place for place in self._watched if self._slots[place].has_address]
        self._told = [found[place] for place in self._watched], [found[place] for place in self._addressed]
        self._marks = self._marks_now()

    def _list_slots(self) -> None:
        """Find all slots, in the same order on every rank, if there are others than before."""
        if sum(map(len, self._buffers)) == self._entries:
            return
        before = {(id(holder), key): place for place, (holder, key) in enumerate(self._places)}
        left, changing, assigned = self._left, self._changing, self._assigned
        modules = {id(module): (name, module) for network in self._networks for name, module in network.named_modules()}
        self._once_a_pass = [module for _, module in modules.values() if isinstance(module, ChangesOncePerPass)]
        once = set(map(id, self._once_a_pass))
        buffers = [
            slot._replace(changes_once=id(module) in once)
            for name, module in modules.values()
            for slot in _slots_of(name, module._buffers)
        ]
        self._slots = [*buffers, *self._parameters_of(modules.values())]
        self._buffers = [module._buffers for _, module in modules.values() if isinstance(module._buffers, dict)]
        self._entries = sum(map(len, self._buffers))
        self._places = [(slot.holder, slot.key) for slot in self._slots]
        was = {place: before.get((id(holder), key)) for place, (holder, key) in enumerate(self._places)}
        self._left = {
            place: self._slots[place].steps if old is None else left[old]
            for place, old in was.items()
            if (old is None or old in left) and self._slots[place].steps
        }
        self._changing = {place for place, old in was.items() if old in changing}
        self._assigned = {place for place, old in was.items() if old in assigned}
        self._found = self._now()
        self._watch()

    def _parameters_of(self, modules: Iterable[tuple[str, nn.Module]]) -> Iterator[Slot]:
        """Yield the slots of parameters that no optimizer steps, and say which of them are copied."""
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        owned = {id(parameter) for group in groups for parameter in group["params"]}
        slots: list[Slot] = []
        trained: list[Slot] = []
        for name, module in modules:
            for slot in _slots_of(name, module._parameters):
                parameter = slot.holder[slot.key]
                if parameter is None or not can_be_copied(parameter):
                    continue
                is_trained = id(parameter) in owned if owned else parameter.requires_grad
                (trained if is_trained else slots).append(slot)
        shapes = {slot.holder[slot.key].shape for slot in trained}
        room_bytes = sum(slot.holder[slot.key].nbytes for slot in trained)
        copied: set[tuple[int, str]] = set()
        for slot in sorted(slots, key=lambda slot: _rank(slot, shapes)):
            room_bytes -= slot.holder[slot.key].nbytes
            if room_bytes < 0:
                break
            copied.add((id(slot.holder), slot.key))
        for slot in slots:
            is_fake = isinstance(slot.holder[slot.key], FakeTensor)
            steps = 1 if is_fake else LEARNING_STEPS  # what fake tensors hold is followed exactly
            is_copied = (id(slot.holder), slot.key) in copied
            yield slot._replace(steps=steps if is_copied else 0, has_address=not is_fake)


def _slots_of(module_name: str, holder: Any) -> list[Slot]:
    # Scripted modules keep theirs elsewhere: this dict holds the same tensors.
    entries = holder if isinstance(holder, dict) else dict(holder.items())
    prefix = f"{module_name}." if module_name else ""
    return [Slot(entries, key, f"{prefix}{key}".replace("_orig_mod.", "")) for key in entries]


def _rank(slot: Slot, shapes: set[Any]) -> tuple[bool, int]:
    parameter = slot.holder[slot.key]
    return parameter.shape not in shapes, parameter.nbytes


def _marks_of(versions: list[Tensor], addresses: list[Tensor]) -> tuple[list[int], list[int]]:
    return [value._version for value in versions], [value.data_ptr() for value in addresses]


def _kind(value: Tensor | None) -> str:
    """Say what of a tensor is to be alike on all ranks; what is no tensor on a rank is like none."""
    return "" if value is None else f"{value.dtype} {tuple(value.shape)}"
