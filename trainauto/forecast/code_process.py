"""Code named on a command line, traced in a process of its own: it may do there what it likes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError
from trainauto.core.plan import Axis, Plan
from trainauto.core.worker_process import WorkerDiedError, WorkerProcess
from trainauto.forecast.card_answer import CardPlans
from trainauto.forecast.card_plan import with_memory
from trainauto.forecast.code_plans import plan_traced
from trainauto.forecast.trace_process import TRACE_TIMEOUT_S, TraceProcessDiedError
from trainauto.memory.cost.memory_forecast import PlanBytes
from trainauto.memory.tracing.libraries import Hardware
from trainauto.memory.tracing.trace import Trace, TraceError
from trainauto.options.cards import CardPreset

LOAD_TIMEOUT_S = 600.0
"""A factory may read large weights from a slow disk."""


class CodeProcess:
    """Asks a process that traces code.

    Args:
        worker: runs :mod:`trainauto.forecast.code_worker`.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._card: list[int] | None = None

    def aim(self, hardware: Hardware) -> None:
        """Trace for such a card from here on."""
        self._card = hardware.as_words()

    def load(self, name: str, folder: Path) -> dict[str, Any]:
        """Have it import ``module:factory``; return what it says of that.

        Raises:
            InputError: there is no such thing, or it cannot be used.
            TraceError: its model cannot be copied to fake tensors.
        """
        return self._asked({"python": name, "folder": str(folder)}, LOAD_TIMEOUT_S)

    def trace(self, plan: Plan) -> PlanBytes:
        """Trace a step under a plan.

        Raises:
            InputError: the loss is none.
            TraceError: the step cannot be traced, or the process died.
        """
        return PlanBytes(**self._asked({"plan": plan.to_dict(), "card": self._card}, TRACE_TIMEOUT_S))

    def step_trace(self, plan: Plan) -> Trace:
        """Return the trace of a step, with what is live at its peak by module; errors are those of :meth:`trace`."""
        message = {"plan": plan.to_dict(), "card": self._card, "whole": True}
        return Trace.from_dict(self._asked(message, TRACE_TIMEOUT_S))

    def _asked(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._worker.request(message, timeout_s)
        except WorkerDiedError as error:
            raise TraceProcessDiedError(f"the process that traces {error}") from None
        if "cannot" in answer:
            raise (InputError if answer["exit_code"] == InputError.exit_code else TraceError)(answer["cannot"])
        return answer


def plan_named_code(
    name: str, folder: Path, cards: Sequence[CardPreset], worker: WorkerProcess, *, closely: bool = False
) -> CardPlans:
    """Trace ``module:factory`` in a process of its own and say what fits on each card.

    Args:
        name: of the factory; it returns a ``PlanRequest``.
        folder: where modules are looked for.
        cards: the cards.
        worker: runs :mod:`trainauto.forecast.code_worker`.
        closely: look at the first plan more closely, see ``PlanMemory``.

    Raises:
        InputError: there is no such factory, or what it returns cannot be used.
        TraceError: its steps cannot be traced.
    """
    process = CodeProcess(worker)
    said = process.load(name, folder)
    axes = tuple(Axis(**axis) for axis in said["axes"])
    answer = plan_traced(name, said["network"], process, axes, cards, said["target_vram_usage"])
    return with_memory(answer, process) if closely else answer
