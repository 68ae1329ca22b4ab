"""JSON Schema of the typed options and of components' arguments, as pydantic writes it, tidied for people."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import core_schema

from trainauto.options.signatures import arguments_model

Components = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Registered components by kind and name, e.g. ``{"network": {"span": SPAN}}``."""

SUPPLIED: Mapping[str, frozenset[str]] = {
    "optimizer": frozenset({"params"}),
    "schedule": frozenset({"total"}),
    "metric": frozenset({"image", "reference"}),
}
"""Parameters that trainauto fills in and a file has no business with, by kind."""

FILLED_IN: Mapping[str, frozenset[str]] = {
    "network": frozenset({"scale", "upscale"}),
    "multitask-model": frozenset({"vocabulary_size", "tasks"}),
}
"""Parameters that trainauto fills in where the file leaves them out, by kind."""

_MODEL_FREE_KINDS = ("dataset", "model")
"""Kinds whose arguments are typed options, not keys beside ``type``."""


class _Generator(GenerateJsonSchema):
    """Leaves out what a file cannot hold, and titles that repeat the key."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> dict[str, Any]:
        del schema, error_info
        return {}

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def schema_of(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a model; definitions it refers to are called ``prefix`` plus their name."""
    # Prefixed by way of the reference, since pydantic names definitions without asking.
    schema = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}", schema_generator=_Generator)
    if "$defs" in schema:
        schema["$defs"] = {f"{prefix}{name}": definition for name, definition in schema["$defs"].items()}
    return schema


def arguments_schema(kind: str, name: str, component: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of a component, what trainauto fills in left out or not required."""
    if kind in _MODEL_FREE_KINDS:
        return {"type": "object", "properties": {}}
    schema = schema_of(arguments_model(component, SUPPLIED.get(kind, frozenset())), prefix=f"{kind}.{name}.")
    schema.setdefault("properties", {})
    optional = FILLED_IN.get(kind, frozenset())
    required = [key for key in schema.pop("required", []) if key not in optional]
    return {**schema, "required": required} if required else schema
