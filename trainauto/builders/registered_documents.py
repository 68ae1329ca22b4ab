"""The JSON Schemas and references of option files, with all registered components."""

import json
from pathlib import Path
from typing import Any

from trainauto.automations import AUTOMATIONS
from trainauto.core.registry import Registry
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.options.editor_schemas import json_schema, text_json_schema
from trainauto.options.reference_documents import markdown_reference, text_reference
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.metrics import METRICS
from trainauto.tasks.sr.models import MODELS


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of all components by kind, in the singular, e.g. ``network``."""
    all_registries = (ARCHS, DATASETS, LOSSES, METRICS, MODELS, OPTIMIZERS, SCHEDULES, AUTOMATIONS)
    return {registry.kind: registry for registry in all_registries}


SCHEMA, REFERENCE = Path("options/schema.json"), Path("docs/options.md")
TEXT_SCHEMA, TEXT_REFERENCE = Path("options/text/schema.json"), Path("docs/options_text.md")


def option_documents() -> dict[Path, str]:
    """Return JSON Schemas and references of option files, with all registered components, by where they are kept."""
    components = {kind: {name: registry.get(name) for name in registry} for kind, registry in registries().items()}
    return {
        SCHEMA: json.dumps(json_schema(components), indent=2) + "\n",
        REFERENCE: markdown_reference(components),
        TEXT_SCHEMA: json.dumps(text_json_schema(components), indent=2) + "\n",
        TEXT_REFERENCE: text_reference(),
    }
