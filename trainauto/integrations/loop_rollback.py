"""Going back in a loop of one's own, whose checkpoints only it can load."""

from collections.abc import Callable

from trainauto.core.decisions import GiveUp, Rollback
from trainauto.core.errors import InputError, Problem
from trainauto.engine.rollback import GivenUpError, reordered
from trainauto.engine.training import Training
from trainauto.integrations.watchers import Watchers

GoBackCall = Callable[[int], object]
"""Loads the newest checkpoint of a loop that is of this step or before."""


class LoopRollback:
    """Has the loop load a checkpoint where that was decided, and its samples come in another order from there.

    Args:
        load: the loop's own; ``None`` where it has none.
        watchers: what may decide it.

    Raises:
        InputError: they may, and there is nothing to load by.
    """

    def __init__(self, load: GoBackCall | None, watchers: Watchers) -> None:
        if watchers.go_back and load is None:
            message = "SpikeGuard goes back to checkpoints, and those of a loop are its own"
            raise InputError(Problem(message, advice="Give AdaptiveLoop(go_back=...), which loads one of them."))
        self._load = load

    def carry_out(self, run: Training) -> Rollback | None:
        """Do what was decided; return how the loop went back, or ``None`` where it did not.

        Raises:
            GivenUpError: the loop is to end.
            InputError: what was to load a checkpoint has left the loop where it was.
        """
        asked, run.controls.to_undo = run.controls.to_undo, None
        if isinstance(asked, GiveUp):
            raise GivenUpError.after(asked, None)
        if asked is None or self._load is None:
            return None
        before, rollbacks = run.progress, run.rollbacks
        self._load(asked.good_until)
        if run.progress.steps > asked.good_until:
            message = f"go_back({asked.good_until}) has left the loop at step {run.progress.steps}"
            raise InputError(Problem(message, advice="It calls load_state_dict() with a state of that step or before."))
        return reordered(run, before, rollbacks, asked.reason)
