"""What is minimised: models by name."""

from trainauto.core.lazy_names import lazy_names
from trainauto.models.registry import MODELS

__all__ = ["MODELS"]

# Names of a task that lie above this package: plugins import them from here.
__getattr__ = lazy_names(globals(), dict.fromkeys(("SRGANModel", "SRModel"), "trainauto.tasks.sr.models"))
