"""A plugin of runs on a simulated card, whose kernels compute nothing: how their gradients would differ is drawn.

Each measured step says what a network with a noise scale of :data:`NOISE_SCALE` would say in the mean, a fifth of it
up and down. How a run answers is its own.
"""

import random

from trainauto.core.noise_scale import NoiseSample
from trainauto.engine import step

NOISE_SCALE = 256.0
"""In samples: a hundred in a batch are worth nearly as much each as a few, so that memory is the bound."""

_chance = random.Random(1)


def _drawn(_parts_square: float, _square: float, parts: int, amount: int) -> NoiseSample:
    noise = NOISE_SCALE * _chance.uniform(0.8, 1.2)
    return NoiseSample(1.0 + parts * noise / amount, 1.0 + noise / amount, parts, amount)


step.NoiseSample = _drawn  # type: ignore[assignment, misc]
