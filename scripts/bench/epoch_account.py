"""What became of an epoch's samples, whose steps run under a budget that the system enforces.

Shared by the benches that train an epoch by other people's methods. Seconds are of the process's CPU time, which others
on the machine change little.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
from torch.optim import Optimizer

from trainauto.core.process import limit_private_memory, without_memory_limit
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import is_out_of_memory

BESIDE = (0.2, 0.3)
"""From when to when somebody else holds memory, in shares of the epoch."""
NEIGHBOUR = 0.25


class EpochAccount:
    """Holds steps to a budget, and counts what they train.

    Attributes:
        trained: how often each sample is in the weights.
        thrown_away: samples whose training was undone: trials, attempts that failed.
        restarts: how often training began anew.
        batch: the largest that was trained.
        peaks: bytes of steps; of those with the largest batch where ``of_largest``.

    Args:
        samples: of the epoch.
        budget_bytes: what steps may take.
        has_neighbour: whether somebody else takes a quarter of the budget for a tenth of the epoch.
        of_largest: whether only peaks of the largest batch are kept: others are smaller because they are the last.
    """

    def __init__(
        self, samples: int, budget_bytes: int, *, has_neighbour: bool = False, of_largest: bool = True
    ) -> None:
        self.samples, self.budget_bytes = samples, budget_bytes
        self._has_neighbour, self._of_largest = has_neighbour, of_largest
        self.meter = MemoryMeter(torch.device("cpu"))
        self.trained: Counter[int] = Counter()
        self.ooms = self.restarts = self.thrown_away = self.batch = 0
        self.peaks: list[int] = []
        self._begun = time.process_time()

    @property
    def seconds(self) -> float:
        """CPU time since training began: searches, trials, traces and restarts are in it."""
        return time.process_time() - self._begun

    def begin(self) -> None:
        """Have the time count from now."""
        self._begun = time.process_time()

    def enforce_budget(self, optimizer: Optimizer, smallest_step: Callable[[], object]) -> None:
        """Put the budget in force as our loops do: with optimizer state, after a smallest step.

        Raises:
            RuntimeError: it cannot be enforced here.
        """
        make_optimizer_state([optimizer])
        budget.calm_allocator()
        smallest_step()
        optimizer.zero_grad(set_to_none=True)
        if not self.meter.set_budget(self.budget_bytes):
            raise RuntimeError("a memory budget cannot be enforced here: this needs Linux")
        limit_private_memory(None)

    def restart(self) -> None:
        """Note that training begins anew with new weights; what was trained so far is undone."""
        self.restarts += 1
        self.thrown_away += self.trained.total()
        self.trained.clear()

    @contextmanager
    def inside(self, numbers: Sequence[int]) -> Iterator[None]:
        """Hold a step of these samples to the budget, and note what became of it."""
        try:
            with self.beside(), self.meter.window() as window:
                yield
        except Exception as error:
            limit_private_memory(None)
            self.ooms += is_out_of_memory(error)
            raise
        finally:
            limit_private_memory(None)
        self.note(numbers, window.reading.allocated if window.reading else 0)

    def note(self, numbers: Sequence[int], peak_bytes: int) -> None:
        """Note a step that was trained."""
        self.trained.update(numbers)
        if len(numbers) > self.batch:
            self.batch = len(numbers)
            if self._of_largest:
                self.peaks.clear()
        if len(numbers) == self.batch or not self._of_largest:
            self.peaks.append(peak_bytes)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Have somebody else hold memory, where it is his time."""
        held, done = None, self.trained.total() / self.samples
        if self._has_neighbour and BESIDE[0] <= done < BESIDE[1]:
            with without_memory_limit():
                held = torch.ones(int(NEIGHBOUR * self.budget_bytes), dtype=torch.uint8)
        yield
        del held

    def record(self, failure: str | None) -> dict[str, Any]:
        """Return the account.

        Args:
            failure: what ended the training; ``None`` where it came to its end.
        """
        seconds = self.seconds
        limit_private_memory(None)
        return {
            "failure": failure,
            "batch": self.batch,
            "seconds": seconds,
            "samples_per_s": len(self.trained) / seconds,
            "ooms": self.ooms,
            "restarts": self.restarts,
            "thrown_away": self.thrown_away,
            "twice": sum(times > 1 for times in self.trained.values()),
            "lost": self.samples - len(self.trained),
            "use": median(self.peaks) / self.budget_bytes if self.peaks else None,
        }
