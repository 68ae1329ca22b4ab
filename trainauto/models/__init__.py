"""What is minimised: models by name."""

from trainauto.core.lazy_names import lazy_names
from trainauto.models.registry import MODELS

__all__ = ["MODELS"]

# Names of a task that lie above this package: plugins import them from here.
_OF_IMAGES = ("ESRGANModel", "SRGANModel", "SRModel")
__getattr__ = lazy_names(globals(), dict.fromkeys(_OF_IMAGES, "trainauto.tasks.sr.models"))
