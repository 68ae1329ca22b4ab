"""Passes of a loss that compares their samples: another number of them is another loss, and that is said."""

import logging
from dataclasses import dataclass, field
from typing import Self

from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.words import counted
from trainauto.engine.training import Training
from trainauto.integrations.coupling import coupling_in
from trainauto.integrations.loop_model import LoopModel

logger = logging.getLogger(__name__)


@dataclass
class CoupledPasses:
    """Says where the passes of a step have become others than were asked for, and what that changes.

    Attributes:
        couples: what compares the samples of a pass; empty where nothing does, and nothing is said.
        asked: samples of a pass as the arguments ask for them.
        said: numbers of samples that were said already.
    """

    couples: str = ""
    asked: int = 0
    said: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, run: Training, asked: Plan, *, is_loss: bool) -> Self:
        """Return them for a run.

        Args:
            run: the engine's parts.
            asked: the plan that the arguments ask for.
            is_loss: whether it is the loss that compares samples.
        """
        (objective,) = run.model.objectives()
        if objective.splittable or BATCH_SIZE not in asked:
            return cls()
        layer = coupling_in(run.model.module) if isinstance(run.model, LoopModel) else None
        return cls("the loss" if is_loss or layer is None else layer, asked.forward_batch_size)

    def see(self, plan: Plan) -> None:
        """Say, once for each number, that passes hold fewer samples than was asked for; and once, that they hold more.

        More of them come with ``max_batch_size``, which asks for that.
        """
        if not self.couples or BATCH_SIZE not in plan or plan.forward_batch_size == self.asked:
            return
        grows = plan.forward_batch_size > self.asked
        samples = self.asked if grows else plan.forward_batch_size
        if samples in self.said:
            return
        self.said.add(samples)
        logger.log(
            logging.INFO if grows else logging.WARNING,
            "a pass holds %s in place of %d, as memory allows: %s computes with all samples of a pass, so that a step "
            "minimises something else than before. %s",
            counted(plan.forward_batch_size, "sample"),
            self.asked,
            self.couples,
            "Leave max_batch_size out to keep passes as they begin."
            if grows
            else "Give more memory, or take a smaller model, to keep passes as you asked for them.",
        )
