"""What the engine asks of a validation set; what is measured, and how, is its task's business."""

from typing import Protocol

from trainauto.core.process import Limited
from trainauto.core.records import ValidationRecord
from trainauto.core.run_events import Picture
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.distributed.communicator import Communicator
from trainauto.engine.signals import StopSignals
from trainauto.models.base_model import BaseModel


class ValidationSet(Protocol):
    """A set that a run validates on.

    Attributes:
        is_rehearsal: only its largest sample is validated, to see that it can be.
    """

    is_rehearsal: bool

    @property
    def dataset(self) -> DynamicDataset:
        """What it consists of."""

    @property
    def name(self) -> str:
        """Its name, in records and logs."""

    def validate(
        self, model: BaseModel, step: int, ranks: Communicator, signals: StopSignals
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate with all ranks; ``None`` if a signal cut it short.

        Where one of several ranks fails, all of them save and end.

        Raises:
            RankAbortedError: it failed on another rank.
        """

    def lack_of_room(self, model: BaseModel, limited: Limited) -> str:
        """Say what will not fit under a limit, and what to do; nothing where the largest sample fits.

        Raises:
            InputError: the sample cannot be read.
        """

    def if_too_large(self, error: BaseException, *, is_sharded: bool) -> tuple[str, str]:
        """Return how far it was tried when validation ran out of memory with this error, and what to do."""

    def warm_up(self) -> None:
        """Load what is loaded at the first use."""
