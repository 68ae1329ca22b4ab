"""When a run was resumed, and under which changed options: as its log tells."""

import re
from dataclasses import dataclass, replace

from trainauto.storage.run_directory import RunDirectory

CHANGED = "changed since this run was last started: "
"""How the log begins the line of an option that is another one than before; it stands before that of the resume."""

_LINE = re.compile(r"(?P<time>[\d-]+ [\d:]+)\S* (?:WARNING )?(?P<text>.*)")
_RESUMED = re.compile(r"resumed +after step (\d+)")


@dataclass(frozen=True)
class Resume:
    """One start of a run that had been trained before.

    Attributes:
        after_step: the checkpoint's step.
        time: local time of the start.
        changes: options that were changed, one text each.
    """

    after_step: int
    time: str
    changes: tuple[str, ...] = ()


def resumes_of(run: RunDirectory) -> list[Resume]:
    """Return the resumes of a run, in order."""
    if not run.log.is_file():
        return []
    found = ResumeLines()
    with run.log.open(encoding="utf-8", errors="replace") as lines:
        return [resume for line in lines if (resume := found.read(line)) is not None]


class ResumeLines:
    """Reads the lines of a log, one after another."""

    def __init__(self) -> None:
        self._now = Resume(0, "")

    def read(self, line: str) -> Resume | None:
        """Return the resume that a line completes: those with the options that were changed stand before it."""
        if (parts := _LINE.match(line)) is None:
            return None
        if parts["text"].startswith(CHANGED):
            self._now = replace(self._now, changes=(*self._now.changes, parts["text"].removeprefix(CHANGED)))
        elif resumed := _RESUMED.match(parts["text"]):
            done = replace(self._now, after_step=int(resumed[1]), time=parts["time"])
            self._now = Resume(0, "")
            return done
        return None
