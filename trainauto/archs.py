"""The place where plugins find these names; what they are lies in :mod:`trainauto.tasks.sr.archs`."""

from trainauto.tasks.sr.archs import *  # noqa: F403
from trainauto.tasks.sr.archs import __all__ as __all__
