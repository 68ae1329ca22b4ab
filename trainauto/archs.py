"""The place where plugins find networks; they lie in :mod:`trainauto.tasks.sr.archs` and its neighbour."""

import trainauto.tasks.sr.spandrel_archs  # noqa: F401  # registers its networks
from trainauto.tasks.sr.archs import *  # noqa: F403
from trainauto.tasks.sr.archs import __all__ as __all__
