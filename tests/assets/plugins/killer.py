"""A plugin that kills its own process, as a power cut would, at moments a test has planned.

`kills.json` beside the option file lists [kind, count] pairs; each process takes the next one that `kills.done` has not
counted yet. Kinds: `step` (after that optimizer step), `loss` (in the n-th loss of this process), and before the n-th
time that this process puts in place: `checkpoint` (a checkpoint directory), `pointer` (latest.json), `log` (the
training_log.jsonl of a resumed run, taken back to its checkpoint).
"""

import json
import os
import signal
from pathlib import Path

from torch import Tensor

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import Decision
from trainauto.core.records import StepRecord
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.losses.pixel_loss import L1Loss

HERE = Path(__file__).parent
PLANNED = json.loads((HERE / "kills.json").read_text())
DONE = HERE / "kills.done"
KIND, COUNT = (PLANNED[len(DONE.read_text()) if DONE.exists() else 0 :] or [["none", 0]])[0]

_real_replace = os.replace
_counts = {"loss": 0, "checkpoint": 0, "pointer": 0, "log": 0}


def strike() -> None:
    with DONE.open("a") as done:
        done.write("x")
        done.flush()
        os.fsync(done.fileno())
    os.kill(os.getpid(), signal.SIGKILL)


def count(kind: str) -> None:
    _counts[kind] += 1
    if (kind, _counts[kind]) == (KIND, COUNT):
        strike()


def kind_of(target: str) -> str | None:
    name = Path(target).name
    if name.startswith("step_"):
        return "checkpoint"
    return {"latest.json": "pointer", "training_log.jsonl": "log"}.get(name)


def replace(source: str, target: str) -> None:
    if kind := kind_of(target):
        count(kind)
    _real_replace(source, target)


os.replace = replace  # type: ignore[assignment]


@AUTOMATIONS.register("Killer")
class Killer(Automation):
    priority = 0

    def on_step_end(self, record: StepRecord) -> Decision | None:
        if ("step", record.step) == (KIND, COUNT):
            strike()
        return None


@LOSSES.register("killing_l1")
class KillingL1(L1Loss):
    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        count("loss")
        return super().forward(prediction, target)
