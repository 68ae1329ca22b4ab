"""What is minimised: models by name."""

from trainauto.models.registry import MODELS
from trainauto.models.sr_model import SRModel
from trainauto.models.srgan_model import SRGANModel

__all__ = ["MODELS", "SRGANModel", "SRModel"]
