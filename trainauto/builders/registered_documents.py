"""The JSON Schemas and references of option files, with all registered components."""

import json
from pathlib import Path
from typing import Any

from trainauto.archs import ARCHS
from trainauto.automations import AUTOMATIONS
from trainauto.core.registry import Registry
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.options.editor_schemas import (
    finetune_json_schema,
    json_schema,
    multitask_json_schema,
    text_json_schema,
)
from trainauto.options.reference_documents import (
    finetune_reference,
    markdown_reference,
    multitask_reference,
    text_reference,
)
from trainauto.options.tasks import FINETUNE, MULTITASK, SUPER_RESOLUTION, TEXT
from trainauto.tasks.multitask import digits, digits_model
from trainauto.tasks.multitask.registry import MULTITASK_MODELS, SAMPLE_SETS
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.metrics import METRICS
from trainauto.tasks.sr.models import MODELS


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of all components by kind, in the singular, e.g. ``network``."""
    images = (ARCHS, DATASETS, LOSSES, METRICS, MODELS)
    all_registries = (*images, OPTIMIZERS, SCHEDULES, AUTOMATIONS, SAMPLE_SETS, MULTITASK_MODELS)
    return {registry.kind: registry for registry in all_registries}


SCHEMA, REFERENCE = Path("options/schema.json"), Path("docs/options.md")
TEXT_SCHEMA, TEXT_REFERENCE = Path("options/text/schema.json"), Path("docs/options_text.md")
MULTITASK_SCHEMA, MULTITASK_REFERENCE = Path("options/multitask/schema.json"), Path("docs/options_multitask.md")
FINETUNE_SCHEMA, FINETUNE_REFERENCE = Path("options/finetune/schema.json"), Path("docs/options_finetune.md")
REGISTERING = (digits, digits_model)
"""Modules that bring what they register by being imported."""


def option_documents() -> dict[Path, str]:
    """Return JSON Schemas and references of option files, with all registered components, by where they are kept."""
    components = _components()
    return {
        SCHEMA: option_schema(SUPER_RESOLUTION),
        REFERENCE: markdown_reference(components),
        TEXT_SCHEMA: option_schema(TEXT),
        TEXT_REFERENCE: text_reference(),
        MULTITASK_SCHEMA: option_schema(MULTITASK),
        MULTITASK_REFERENCE: multitask_reference(components),
        FINETUNE_SCHEMA: option_schema(FINETUNE),
        FINETUNE_REFERENCE: finetune_reference(),
    }


def option_schema(task: str) -> str:
    """Return the JSON Schema of a task's option files, with all registered components."""
    if task == FINETUNE:
        schema = finetune_json_schema()
    else:
        make = {SUPER_RESOLUTION: json_schema, TEXT: text_json_schema, MULTITASK: multitask_json_schema}[task]
        schema = make(_components())
    return json.dumps(schema, indent=2) + "\n"


def _components() -> dict[str, dict[str, Any]]:
    return {kind: {name: registry.get(name) for name in registry} for kind, registry in registries().items()}
