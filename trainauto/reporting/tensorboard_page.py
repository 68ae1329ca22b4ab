"""TensorBoard's page "Custom scalars": its charts, what its lines are, and the unit that its files show memory in."""

import re
from pathlib import Path

from trainauto.reporting.curves import Unit, memory_tag


# A tag is a pattern that is matched from its beginning.
def charts(unit: Unit) -> dict[str, list[str]]:
    """Return the page of custom scalars: each chart, named by its unit and its lines, with the curves in it."""
    lines = ("limit", "target", "predicted", "peak", "reserved", "current", "validation_peak")
    return {
        f"Memory in {unit}: {', '.join(lines)}": [f"{memory_tag(name, unit)}$" for name in lines],
        f"Peak in {unit}: predicted, measured (peak)": [f"{memory_tag(name, unit)}$" for name in ("predicted", "peak")],
        "Error of the prediction in % of the peak": ["memory/prediction_error_percent$"],
        "Crop: lq_size in px of the low-quality image": ["plan/lq_size$"],
        "Batch: samples of an optimizer step": ["plan/batch_size$"],
        "Events: 1 where the plan changed (adjustment), memory ran out (oom)": ["events/adjustment$", "events/oom$"],
        "Loss: each term, and their total": ["loss/"],
    }


EXPLAINED = """
The page **Custom scalars** shows a run against its memory, in optimizer steps from left to right. Memory is in
GiB (`_gib`), or in MiB (`_mib`) where the run began with peaks below 1 GiB, or was steered there. TensorBoard smooths
curves unless `Smoothing` at the left is set to 0: do that for plans and events.

| line | what it is |
|---|---|
| `memory/limit_{unit}` | what the run may use: the card, or `memory: budget` |
| `memory/target_{unit}` | share of the limit (`target_vram_usage`) that peaks are steered to |
| `memory/predicted_{unit}` | what the plan of the step was expected to peak at before it was trained |
| `memory/peak_{unit}` | highest bytes that tensors held in the step; of several steps in one point, the highest |
| `memory/reserved_{unit}` | highest bytes that torch's allocator had taken from the card |
| `memory/current_{unit}` | what was held after the step |
| `memory/validation_peak_{unit}` | highest bytes of a validation |
| `memory/prediction_error_percent` | predicted less measured, in % of measured; below 0 the prediction was too low |
| `plan/lq_size`, `plan/batch_size` | crop in px of the low-quality image, and samples of a step |
| `noise_scale/g` | gradient noise scale, in samples: a step of many more learns little more (`objective: goodput`) |
| `events/adjustment`, `events/oom` | 1 where the plan changed, or memory ran out; **Text** has the words |
"""


def unit_in(folder: Path) -> Unit | None:
    """Return the unit in which event files of a folder show memory; ``None`` where they show none or there are none.

    A curve that changed its unit would be two curves of a half each. Tags stand in these files as plain text.
    """
    for file in sorted(folder.glob("events.out.tfevents.*")):
        with file.open("rb") as events:
            before = b""
            while piece := events.read(2**20):
                if found := _MEMORY_TAG.search(before + piece):
                    return "MiB" if found[1] == b"mib" else "GiB"
                before = piece[-_LONGEST_TAG:]
    return None


_MEMORY_TAG = re.compile(rb"memory/[a-z_]+_([mg]ib)")
_LONGEST_TAG = 40
