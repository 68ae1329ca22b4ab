"""What logs lack of what was trained, as far as their ends tell: after a power cut, files end before they did."""

import mmap
from pathlib import Path

from trainauto.core.json_text import is_log, step_of_line
from trainauto.storage.run_directory import RunDirectory

_BLOCK_BYTES = 2**20


def last_step(records: Path) -> int:
    """Return the step of the last line of a log that has one; 0 where there is none."""
    if not is_log(records) or not records.stat().st_size:
        return 0
    with records.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.rfind(b"\n") + 1
        while end:
            start = text.rfind(b"\n", 0, end - 1) + 1
            step = step_of_line(text[start:end])
            if step is not None:
                return step
            end = start
    return 0


def missing_until(run: RunDirectory, step: int) -> tuple[int, int] | None:
    """Return the first and the last step up to ``step`` that the end of a run's log lacks; ``None`` where it has them.

    Args:
        run: its logs hold nothing after ``step``; see :meth:`RunDirectory.rewind`.
        step: the checkpoint's.
    """
    last = last_step(run.records)
    return (last + 1, step) if last < step else None


def lacks_validation(run: RunDirectory, step: int, every: int) -> bool:
    """Say whether the last validation is missing that was due before a step, by the options that have held since then.

    Args:
        run: its logs hold nothing after ``step``.
        step: the checkpoint's; a validation that was due there is made again.
        every: steps between validations.
    """
    due = (step - 1) // every * every
    changed = max((end for end in run.earlier_versions(run.given) if end < step), default=0)
    return due > changed and last_step(run.validations) < due


def damaged_ends(run: RunDirectory) -> list[str]:
    """Return the names of logs whose end holds zeros instead of lines: the file grew, but its bytes did not come."""
    return [path.name for path in (run.records, run.decisions, run.validations) if _ends_in_zeros(path)]


def _ends_in_zeros(path: Path) -> bool:
    if not is_log(path):
        return False
    with path.open("rb") as file:
        size_bytes = file.seek(0, 2)
        file.seek(max(0, size_bytes - _BLOCK_BYTES))
        return b"\0" in file.read()
