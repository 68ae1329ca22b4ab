"""What super-resolution minimises, and how it is validated."""

from trainauto.models.registry import MODELS
from trainauto.tasks.sr.models.esrgan_model import ESRGANModel
from trainauto.tasks.sr.models.sr_model import SRModel
from trainauto.tasks.sr.models.srgan_model import SRGANModel

__all__ = ["MODELS", "ESRGANModel", "SRGANModel", "SRModel"]
