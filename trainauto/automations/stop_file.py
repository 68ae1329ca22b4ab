"""A file that ends a run."""

import logging
from pathlib import Path

from trainauto.automations.registry import AUTOMATIONS
from trainauto.core.automation import Automation
from trainauto.core.decisions import USER_STOP, RunFacts, Stop
from trainauto.core.records import StepRecord
from trainauto.core.words import visible

STOP_FILE = "STOP_TRAINING"
"""Its name, in the folder of the run."""

logger = logging.getLogger(__name__)


@AUTOMATIONS.register("StopFile")
class StopFile(Automation):
    """Ends a run after its step, with a checkpoint, once a file STOP_TRAINING is in its folder.

    The file is removed, and a resume continues as if it had never been there: a way to stop a run whose process one
    cannot reach, on a cluster for one.
    """

    watches = True

    def __init__(self) -> None:
        self._file: Path | None = None
        self._has_warned = False

    def on_run_start(self, facts: RunFacts) -> None:
        """Take up the run's folder."""
        self._file = Path(facts.folder) / STOP_FILE if facts.folder else None
        if self._file is None:
            logger.warning("%s: this loop has no run directory, so that no file can stop it", self.name)

    def on_step_end(self, record: StepRecord) -> Stop | None:
        """Look for the file."""
        if self._file is None or not self._is_there(self._file):
            return None
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            words = "%s cannot be removed (%s): it would stop a resume, too"
            logger.warning(words, visible(str(self._file)), error.strerror)
        return Stop(f"{STOP_FILE} requested it after step {record.step}", termination=USER_STOP)

    def _is_there(self, file: Path) -> bool:
        try:
            return file.exists()
        except OSError as error:  # a network drive that is away for a moment ends no run
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "the file %s cannot be checked for (%s). This is logged once.", visible(str(file)), error.strerror
                )
            return False
