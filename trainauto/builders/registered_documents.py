"""The JSON Schema and the reference of option files, with all registered components."""

import json
from typing import Any

from trainauto.automations import AUTOMATIONS
from trainauto.core.registry import Registry
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.options.reference_documents import json_schema, markdown_reference
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.metrics import METRICS
from trainauto.tasks.sr.models import MODELS


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of all components by kind, in the singular, e.g. ``network``."""
    all_registries = (ARCHS, DATASETS, LOSSES, METRICS, MODELS, OPTIMIZERS, SCHEDULES, AUTOMATIONS)
    return {registry.kind: registry for registry in all_registries}


def option_documents() -> tuple[str, str]:
    """Return the JSON Schema of option files and the options reference, with all registered components."""
    components = {kind: {name: registry.get(name) for name in registry} for kind, registry in registries().items()}
    return json.dumps(json_schema(components), indent=2) + "\n", markdown_reference(components)
