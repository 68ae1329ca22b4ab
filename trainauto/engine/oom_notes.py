"""What a rank leaves behind when running out of memory ends the whole group, for the start that follows."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trainauto.core.batch import Batch
from trainauto.core.errors import CheckpointError
from trainauto.core.files import read_text, write_json_atomically
from trainauto.core.json_text import from_json
from trainauto.core.plan import Axis, BatchShape, Plan, work
from trainauto.core.records import OutOfMemory
from trainauto.engine.step_outcome import DoesNotFit

NAME = "out_of_memory_rank_{}.json"


def write_oom_note(folder: Path, rank: int, step: int, batch: Batch, failure: DoesNotFit, limit: int | None) -> None:
    """Note what did not fit, beside the checkpoints: the rank is about to end, and no other rank knows."""
    file = folder / NAME.format(rank)
    note = {
        "step": step,
        "plan": batch.plan.to_dict(),
        "failed_plans": [*_failed_plans(file), batch.plan.to_dict()],
        "samples": failure.samples,
        "extent": failure.extent or batch.shape.extent,
        "pass": failure.pass_name,
        "message": failure.message,
        "limit": limit,
    }
    write_json_atomically(file, note)


def _failed_plans(file: Path) -> list[dict[str, int]]:
    """Return the plans under which this rank had failed so before; none where that cannot be read.

    Notes of earlier versions know the last one.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = from_json(read_text(file))
        return list(note.get("failed_plans", [note["plan"]]))
    return []


def failed_starts(folder: Path) -> int:
    """Return how many starts have failed so since the last checkpoint, on whichever rank: each under another plan."""
    return len({json.dumps(plan) for file in folder.glob(NAME.format("*")) for plan in _failed_plans(file)})


def read_oom_note(folder: Path, axes: Iterable[Axis]) -> OutOfMemory | None:
    """Return what ended the group since the last checkpoint, where that was running out of memory.

    Of several notes the one of the smallest plan holds: each start that failed had continued under a smaller one.

    Args:
        folder: of the checkpoints.
        axes: of the run: they say which plan is smaller.

    Raises:
        CheckpointError: a note cannot be read.
    """
    events = []
    for file in sorted(folder.glob(NAME.format("*"))):
        try:
            note = from_json(read_text(file))
            plan, shape = Plan.from_dict(note["plan"]), BatchShape(int(note["samples"]), int(note["extent"]))
            events.append(OutOfMemory(note["step"], plan, shape, note["pass"], note["message"], 0, note["limit"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"cannot read {file}: {error!r}; delete it to continue with the plan of before"
            ) from error
    known = tuple(axes)
    return min(events, key=lambda event: work(event.plan, known), default=None)


def clear_oom_note(folder: Path) -> None:
    """Delete the notes: a checkpoint under a smaller plan has been written."""
    for file in folder.glob(NAME.format("*")):
        file.unlink(missing_ok=True)
