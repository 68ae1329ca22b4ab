"""Random generators in the state of a loop of one's own."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainauto.engine.random_state import set_random_state_on

logger = logging.getLogger(__name__)

DRAWS_DIFFER = "what the model draws (dropout) differs from a run without the break"


def take_up_generators(devices: Sequence[torch.device], state: Mapping[str, Any] | None) -> None:
    """Have random generators be as in a state; say where it holds none, or those of other devices.

    Args:
        devices: of the model, besides the CPU.
        state: of generators; ``None`` where an earlier version wrote it.
    """
    if state is None:
        logger.warning("the state holds no random generators, as an earlier version wrote it: %s", DRAWS_DIFFER)
    elif others := set_random_state_on(devices, state):
        logger.warning("the state holds random generators of %s: %s", others, DRAWS_DIFFER)
