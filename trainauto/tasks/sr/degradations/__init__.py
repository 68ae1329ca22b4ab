"""Low-quality images made of high-quality ones at random: blur, resizing, noise, compression, twice over.

An image here is a float32 array of shape (H, W, C) from 0 to 1, with 1 or 3 channels. Every function is pure but for
the generator it draws from.
"""

from trainauto.tasks.sr.degradations.pipeline import Drawn, degrade, generator_of
from trainauto.tasks.sr.degradations.settings import BlurSettings, DegradationSettings, StageSettings

__all__ = ["BlurSettings", "DegradationSettings", "Drawn", "StageSettings", "degrade", "generator_of"]
