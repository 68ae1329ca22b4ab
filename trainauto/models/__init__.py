"""What is minimised: models by name."""

from trainauto.models.registry import MODELS
from trainauto.models.sr_model import SRModel

__all__ = ["MODELS", "SRModel"]
