"""The place where plugins find these names; what they are lies in :mod:`trainauto.tasks.sr.metrics`."""

from trainauto.tasks.sr.metrics import *  # noqa: F403
from trainauto.tasks.sr.metrics import __all__ as __all__
