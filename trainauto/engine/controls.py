"""Carrying out decisions."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from trainauto.core.decisions import USER_STOP, ClipAt, Decision, GiveUp, GoBack, PlanChange, RateFactor, Stop
from trainauto.data.dynamic_loader import DynamicDataLoader

logger = logging.getLogger(__name__)


class Controls:
    """What automations steer, and what the next step reads.

    Attributes:
        rate_factor: factor on every scheduled learning rate.
        given_norm: what the run clips at by itself; ``None`` does not clip.
        max_norm: gradient norm to clip at; ``None`` does not clip.
        max_norms: the same of single passes, where it was decided for one.
        stop_reason: why the run is to end; empty while it is not.
        termination: in one word for programs, where whoever stopped it has one.
        plan_changes: how often the plan was changed.
        to_undo: what the engine is to carry out before the next step: going back to a checkpoint, or giving the run up.
    """

    def __init__(self, loader: DynamicDataLoader, max_norm: float | None) -> None:
        self._loader = loader
        self.given_norm = self.max_norm = max_norm
        self.max_norms: dict[str, float | None] = {}
        self._clip_was_decided = False
        self.rate_factor = 1.0
        self.stop_reason = self.termination = ""
        self.plan_changes = 0
        self.to_undo: GoBack | GiveUp | None = None

    def max_norm_of(self, pass_name: str) -> float | None:
        """Return the norm at which the gradients of a pass are clipped; ``None`` where they are not."""
        return self.max_norms.get(pass_name, self.max_norm)

    def is_norm_decided(self, pass_name: str) -> bool:
        """Say whether somebody decided at which norm a pass is clipped, or its run clips by itself as it is told to."""
        return self._clip_was_decided or pass_name in self.max_norms

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Carry out the decisions of one step, in order."""
        for decision in decisions:
            match decision:
                case PlanChange(plan=plan):
                    if plan != self._loader.plan:
                        self.plan_changes += 1
                        self._loader.update_plan(plan)
                case RateFactor(factor=factor):
                    self.rate_factor = factor
                case ClipAt(max_norm=max_norm, pass_name=""):
                    self.max_norm = max_norm
                    self.max_norms.clear()
                    self._clip_was_decided = True
                case ClipAt(max_norm=max_norm, pass_name=pass_name):
                    self.max_norms[pass_name] = max_norm
                case Stop(reason=reason, termination=termination):
                    self.stop_reason, self.termination = reason, termination
                case GoBack() | GiveUp():
                    self.to_undo = decision

    def state_dict(self) -> dict[str, Any]:
        """Return what automations have changed; the option file's own clip norm is not part of it.

        A stop that a person asked for is none any more when the run is resumed.
        """
        state: dict[str, Any] = {
            "rate_factor": self.rate_factor,
            "plan_changes": self.plan_changes,
            "stop_reason": "" if self.termination == USER_STOP else self.stop_reason,
            "termination": "" if self.termination == USER_STOP else self.termination,
        }
        state |= {"max_norms": dict(self.max_norms)} if self.max_norms else {}
        return {**state, "max_norm": self.max_norm} if self._clip_was_decided else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`."""
        self.rate_factor = float(state["rate_factor"])
        self.plan_changes = int(state["plan_changes"])
        self.stop_reason, self.termination = str(state["stop_reason"]), str(state.get("termination", ""))
        self.max_norms = dict(state.get("max_norms", {}))
        self._clip_was_decided = "max_norm" in state
        self.max_norm = state.get("max_norm", self.given_norm)
