"""An automation that decides what a test plans, for loops that are not the engine's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from trainauto.automations import AUTOMATIONS, Automation
from trainauto.core.decisions import Decision
from trainauto.core.records import StepRecord


@contextmanager
def planned(decisions: Mapping[int, Decision]) -> Iterator[dict[str, dict[str, object]]]:
    """Yield the section of an automation that decides after these steps; it is known as long as this lasts."""

    class Plans(Automation):
        watches = True

        def on_step_end(self, record: StepRecord) -> Decision | None:
            return decisions.get(record.step)

    key = "plans"
    AUTOMATIONS.register("Plans")(Plans)
    try:
        yield {"Plans": {}}
    finally:
        del AUTOMATIONS._entries[key], AUTOMATIONS._shown[key]
