"""Which components are registered here, and which arguments they take."""

import inspect
from typing import Any

from trainauto.archs import ARCHS, is_discriminator
from trainauto.core.errors import InputError, nearest
from trainauto.core.registry import Registry
from trainauto.losses import LOSSES
from trainauto.metrics import METRICS
from trainauto.optim import SCHEDULES

REGISTRIES: dict[str, Registry[Any]] = {"network": ARCHS, "loss": LOSSES, "metric": METRICS, "schedule": SCHEDULES}


class Known:
    """Names and arguments of what is registered."""

    def has(self, kind: str, name: str) -> bool:
        """Return whether a component is registered, in any case."""
        return name in REGISTRIES[kind]

    def takes(self, kind: str, name: str) -> dict[str, Any]:
        """Return the arguments of a component and their defaults; nothing where there is no such component."""
        if not self.has(kind, name):
            return {}
        parameters = inspect.signature(REGISTRIES[kind].get(name)).parameters.values()
        return {one.name: None if one.default is one.empty else one.default for one in parameters}

    def near(self, kind: str, name: str) -> str:
        """Return advice that names the nearest component; empty where none is near."""
        try:
            said = nearest(name, (one for one in REGISTRIES[kind] if kind != "network" or not self._judges(one)))
        except InputError:
            return ""
        return said.removeprefix("Did you mean ").removesuffix("?") if said.startswith("Did") else ""

    def _judges(self, name: str) -> bool:
        return is_discriminator(ARCHS.get(name))
