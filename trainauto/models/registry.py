"""Registry of models; its own module so that model modules can import it without a cycle."""

from collections.abc import Callable

from trainauto.core.registry import Registry
from trainauto.models.base_model import BaseModel

MODELS: Registry[Callable[..., BaseModel]] = Registry("model")
