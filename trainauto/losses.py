"""The place where plugins find these names; what they are lies in :mod:`trainauto.tasks.sr.losses`."""

from trainauto.tasks.sr.losses import *  # noqa: F403
from trainauto.tasks.sr.losses import __all__ as __all__
