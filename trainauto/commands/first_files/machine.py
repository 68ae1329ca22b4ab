"""What a first option file has to know of the machine."""

import os
from dataclasses import dataclass

from trainauto.options.card_presets import HAS_BFLOAT16

MOST_WORKERS = 8


@dataclass(frozen=True)
class Machine:
    """Where a run is to train.

    Attributes:
        card: name of the first CUDA card; empty where there is none.
        has_bfloat16: whether the card computes in bfloat16.
        workers: processes that may decode images beside a card.
    """

    card: str = ""
    has_bfloat16: bool = False
    workers: int = 0

    @property
    def words(self) -> str:
        """What it is, for people."""
        return self.card or "no CUDA card"


def this_machine() -> Machine:
    """Return what there is here."""
    import torch

    if torch.cuda.is_available():  # pragma: no cuda
        device = torch.cuda.current_device()
        has_bfloat16 = torch.cuda.get_device_capability(device) >= HAS_BFLOAT16
        return Machine(torch.cuda.get_device_name(device), has_bfloat16, min(MOST_WORKERS, os.cpu_count() or 1))
    return Machine()
