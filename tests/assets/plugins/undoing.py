"""A plugin that has a run go back, stop, be damaged, or die, at moments a test has planned.

`planned.json` beside the option file says when. `back` lists pairs of a step and good_until: the n-th is asked for at
that step once there were n rollbacks before. `stop` is a step to end after, `halve` one after which rates are halved.
`nan` and `leap` count losses that this process computes in training: those that are NaN, and one that is ten
thousandfold; `stop_file` counts them, too, to that at which STOP_TRAINING appears. `kill` is the n-th file that is put
in place or folder that is deleted once the run has been asked to go back, before which the process dies.
"""

import json
import os
import signal
from pathlib import Path

import torch
from torch import Tensor

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import Decision, GoBack, RateFactor, RunFacts, Stop
from trainauto.core.records import StepRecord
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.losses.pixel_loss import L1Loss

HERE = Path(__file__).parent
PLANNED = json.loads((HERE / "planned.json").read_text())
DIED = HERE / "died"
_now = {"rollbacks": 0, "asked": 0, "changes": 0, "losses": 0}
_real_replace, _real_rename = os.replace, Path.rename


def count_change() -> None:
    if _now["asked"] and not DIED.exists():
        _now["changes"] += 1
        if _now["changes"] == PLANNED.get("kill"):
            DIED.write_text(str(_now["changes"]))
            os.kill(os.getpid(), signal.SIGKILL)


def replace(source: str, target: str) -> None:
    count_change()
    _real_replace(source, target)


def rename(path: Path, target: Path) -> Path:
    count_change()
    return _real_rename(path, target)


os.replace = replace  # type: ignore[assignment]
Path.rename = rename  # type: ignore[method-assign, assignment]


@AUTOMATIONS.register("Undoing")
class Undoing(Automation):
    priority = 0
    goes_back = True

    def on_run_start(self, facts: RunFacts) -> None:
        _now["rollbacks"] = len(facts.rollbacks)

    def on_step_end(self, record: StepRecord) -> Decision | None:
        for place, (step, good_until) in enumerate(PLANNED.get("back", [])):
            if record.step == step and _now["rollbacks"] == place:
                _now["asked"] = 1
                return GoBack(good_until, f"the plugin asks at step {step}")
        if record.step == PLANNED.get("halve"):
            return RateFactor(0.5, "the plugin halves")
        if record.step == PLANNED.get("stop"):
            return Stop("the plugin stops", termination="user_stop")
        return None


@LOSSES.register("spoilt_l1")
class SpoiltL1(L1Loss):
    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        loss = super().forward(prediction, target)
        if prediction.requires_grad:
            _now["losses"] += 1
            if _now["losses"] == PLANNED.get("stop_file"):
                (HERE / "experiments" / "tiny" / "current" / "STOP_TRAINING").touch()
            if _now["losses"] in PLANNED.get("nan", []):
                return loss * torch.nan
            if _now["losses"] == PLANNED.get("leap"):
                return loss * 1e4
        return loss
