"""What people read about option files, generated from the schema and the registered components."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from trainauto.options.component_schemas import Components, arguments_schema, schema_of
from trainauto.options.degradation_options import DegradationOptions, KernelOptions
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.lookup import sections
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.nested import SECTION
from trainauto.options.parameters import summary_of
from trainauto.options.preset_documents import preset_tables
from trainauto.options.schema import Automations, Component, Options
from trainauto.options.source_locations import dotted
from trainauto.options.test_schema import OptionsToMeasure, SetsToMeasure
from trainauto.options.text_options import TextOptions
from trainauto.options.training_options import LossTermOptions, WeightSchedule

KINDS = {
    "network": ("Networks", "network_g, network_d"),
    "loss": ("Losses", "items of train.losses"),
    "optimizer": ("Optimizers", "train.optim_g, optim_d, optim"),
    "schedule": ("Schedules", "train.scheduler"),
    "metric": ("Metrics", "values of val.metrics"),
    "dataset": ("Datasets", "type of datasets.train, val and val_*"),
    "model": ("Models", "model_type"),
    "automation": ("Automations", "keys of training_automations"),
}
"""Heading of each kind of component, and where its components are named."""


DEGRADATIONS = (DegradationOptions, KernelOptions)
"""What of a section has a table of its own."""

_NOTES = {"unit": "unit", "description": "what it is", "reason": "why this default"}


MULTITASK_KINDS = {
    "sample-set": ("Sets of samples", "datasets.train, val and val_*"),
    "multitask-model": ("Models", "model"),
}
"""As :data:`KINDS`, for files of several tasks."""


def markdown_reference(components: Components) -> str:
    """Return the reference of option files: every key and every component with its arguments, as Markdown.

    Args:
        components: what is registered, by kind and name.
    """
    tables = [*_option_tables(Options), *_component_tables(components, KINDS), *preset_tables(), *_test_tables()]
    return "\n".join([*_introduction(), *tables]).rstrip() + "\n"


def text_reference() -> str:
    """Return the reference of option files of language models, as Markdown; components stand in that of all files."""
    return "\n".join([*_text_introduction(), *_option_tables(TextOptions)]).rstrip() + "\n"


def multitask_reference(components: Components) -> str:
    """Return the reference of option files of several tasks, with what they name, as Markdown.

    Args:
        components: what is registered, by kind and name.
    """
    options = _option_tables(MultitaskOptions, without=SECTION)
    tables = [*options, *_component_tables(components, MULTITASK_KINDS)]
    return "\n".join([*_multitask_introduction(), *tables]).rstrip() + "\n"


def finetune_reference() -> str:
    """Return the reference of option files of fine-tuning, as Markdown."""
    return "\n".join([*_finetune_introduction(), *_option_tables(FinetuneOptions)]).rstrip() + "\n"


def _finetune_introduction() -> Iterator[str]:
    yield "# Options of fine-tuning"
    yield ""
    yield "Every key of an option file with a section `training`. This page is generated from the schema; do not edit"
    yield "it."
    yield "[docs/finetune.md](finetune.md) begins with an example."
    yield ""
    yield "Any key can be set on the command line: `--force_yml training:learning_rate=1e-4 lora:r=16`."
    yield ""


def _text_introduction() -> Iterator[str]:
    yield "# Options of language models"
    yield ""
    yield "Every key of an option file of `task: text`. This page is generated from the schema; do not edit it."
    yield "[docs/text.md](text.md) begins with an example."
    yield ""
    yield "Optimizers, schedules and automations with their arguments: [options.md](options.md#optimizers). Any key can"
    yield "be set on the command line: `--force_yml train:total_epochs=2 model:config:n_layer=4`."
    yield ""


def _multitask_introduction() -> Iterator[str]:
    yield "# Options of several tasks"
    yield ""
    yield "Every key of an option file of `task: multitask`. This page is generated from the schema; do not edit it."
    yield "[docs/multitask.md](multitask.md) begins with an example."
    yield ""
    yield "Schedules with their arguments: [options.md](options.md#schedules). Any key can be set on the command line:"
    yield "`--force_yml train:total_epochs=2 model:layers=4`."
    yield ""


def _introduction() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield "Every key of an option file of super-resolution; language models: [options_text.md](options_text.md),"
    yield "several tasks: [options_multitask.md](options_multitask.md), fine-tuning:"
    yield "[options_finetune.md](options_finetune.md)."
    yield "This page is generated from the schema; do not edit it."
    yield ""
    yield "Any key can be set on the command line: `--force_yml train:total_iter=500 train:losses:0:type=mseloss`."
    yield ""


def _option_tables(model: type[BaseModel], without: str = "") -> Iterator[str]:
    for path, section in sections(model):
        if section is Component or without in path:
            continue
        schema = schema_of(section)
        schema["properties"].pop(without, None)
        for shared in section.__bases__:
            for key in shared.model_fields if shared in DEGRADATIONS else ():
                del schema["properties"][key]
        yield f"## {f'`{dotted(path)}`' if path else 'Top level'}"
        yield ""
        yield _one_line(schema.get("description", ""))
        yield ""
        if section is Automations:
            those = "[those below](#automations)" if model is Options else "[these](options.md#automations)"
            yield f"Beside `enabled`, keys are names of automations; {those} are registered."
            if model is FinetuneOptions:
                yield "`DynamicBatchSizeOptimizer` fills memory with passes of a step, by `target_vram_usage`,"
                yield "`safety_margin`, `adjustment_frequency`, `policy` and its other settings that are no bounds."
            else:
                yield "The section may stand under `train` instead, and names may be in snake_case (`plan_schedule`)."
            yield ""
        yield from _table(schema, _NOTES)
        for shared in section.__bases__:
            if shared in DEGRADATIONS:
                yield f"### Degradations: more keys of {f'`{dotted(path)}`' if path else 'the top level'}"
                yield ""
                yield _one_line(shared.__doc__ or "")
                yield ""
                yield from _table(schema_of(shared), _NOTES)


def _test_tables() -> Iterator[str]:
    yield "## Test files"
    yield ""
    yield "What `test -opt FILE` reads; sets and metrics are written as those of a run's validation."
    yield ""
    for path, section in sections(OptionsToMeasure):
        if section not in (Component, SetsToMeasure):
            yield f"### {f'Test files: `{dotted(path)}`' if path else 'Test files: top level'}"
            yield ""
            yield from _table(schema_of(section), {"unit": "unit", "description": "what it is"})


def _component_tables(components: Components, kinds: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for kind, (heading, where) in kinds.items():
        yield f"## {heading}"
        yield ""
        yield f"Named in: {where}. Names are taken in any case."
        yield ""
        if kind == "loss":
            yield from _keys_of_terms()
        for name, component in components.get(kind, {}).items():
            yield f"### `{name}`"
            yield ""
            yield _one_line(summary_of(component))
            yield ""
            if name == "DynamicBatchSizeOptimizer":
                yield "Defaults of a target, margin and bounds hold where no preset does: see"
                yield "[presets of the controller](#presets-of-the-controller)."
                yield ""
            schema = arguments_schema(kind, name, component)
            if described := getattr(component, "preset_of", ""):
                of_described = arguments_schema(kind, described, components[kind][described])
                yield _as_another(described, schema, of_described)
                yield ""
            elif schema["properties"]:
                yield from _table(schema, {"description": "what it is"})
            for definition, keys in schema.get("$defs", {}).items():
                yield f"Keys of `{definition.split('.')[-1]}`:"
                yield ""
                yield from _table(keys, {"description": "what it is"})


def _keys_of_terms() -> Iterator[str]:
    yield "Beside its arguments, each takes:"
    yield ""
    schema = schema_of(LossTermOptions)
    schema["properties"].pop("type")
    yield from _table(schema, _NOTES)
    yield f"Keys of `weight_schedule`. {_one_line(WeightSchedule.__doc__ or '')}"
    yield ""
    yield from _table(schema_of(WeightSchedule), _NOTES)


def _as_another(described: str, schema: Mapping[str, Any], of_described: Mapping[str, Any]) -> str:
    """Say in which defaults a component differs from another one with the same arguments."""
    own, others = schema["properties"], of_described["properties"]
    differing = (f"`{key}: {json.dumps(own[key]['default'])}`" for key in own if own[key] != others[key])
    return f"It takes the arguments of [`{described}`](#{described}); its defaults differ in {', '.join(differing)}."


def _table(schema: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    """Yield a table of the properties of ``schema``, with a column for each of ``notes`` under its heading."""
    headings = ("key", "type", "default", *notes.values())
    yield _row(headings)
    yield _row("---" for _ in headings)
    required = schema.get("required", [])
    for key, option in schema["properties"].items():
        cells = [f"`{key}`", type_words(option), default_words(option, key in required)]
        yield _row([*cells, *(option.get(note, "") for note in notes)])
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_one_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def default_words(option: Mapping[str, Any], required: bool) -> str:
    """Say what a property of a JSON Schema is by default, as Markdown."""
    if required:
        return "**required**"
    if "default" not in option:
        return "its own"
    value = option["default"]
    return "see its section" if isinstance(value, dict) and len(value) > 1 else f"`{json.dumps(value)}`"


_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_WORDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true/false", "null": "null"}


def type_words(option: Mapping[str, Any]) -> str:
    """Say what a property of a JSON Schema takes, as Markdown."""
    if "$ref" in option:
        name = option["$ref"].split("/")[-1]
        if name in ("Component", "LossTermOptions"):
            return "component"
        return f"section `{name.split('.')[-1]}`" if "." in name else "section"
    if "anyOf" in option:
        return " or ".join(dict.fromkeys(type_words(member) for member in option["anyOf"]))
    if "enum" in option or "const" in option:
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in option.get("enum", [option.get("const")]))
    if option.get("type") == "array":
        if "prefixItems" in option:
            return f"list of {len(option['prefixItems'])}: {', '.join(map(type_words, option['prefixItems']))}"
        return f"list of {type_words(option.get('items', {}))}"
    if option.get("type") == "object":
        values = option.get("additionalProperties")
        return f"section of {type_words(values)} by name" if isinstance(values, dict) else "section"
    word = _WORDS.get(str(option.get("type")), "anything")
    return " ".join([word, *(f"{sign} {option[bound]}" for bound, sign in _BOUNDS.items() if bound in option)])
