"""One model on samples of several tasks, as commands know it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainauto.commands.trainer_task import TrainerTask
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions

# Nothing here may import torch at the top: see trainauto/forecast/task.py.
if TYPE_CHECKING:
    from trainauto.builders.trainer_run import TrainerRun


class SeveralTasks(TrainerTask[MultitaskOptions]):
    """Option files of ``task: multitask``."""

    extra = "multitask"

    def needed(self, options: MultitaskOptions) -> Sequence[str]:
        """Return transformers with its Trainer, and matplotlib for pictures."""
        del options
        return ("transformers", "accelerate", "matplotlib")

    def build(self, loaded: LoadedOptions[MultitaskOptions]) -> "TrainerRun":
        """Build the run of an option file."""
        self.check_packages(loaded)
        from trainauto.builders.trainer_runs import prepared

        precision = prepared(loaded, loaded.options.logger)
        from trainauto.builders.multitask import MultitaskRun

        return MultitaskRun(loaded, precision)
