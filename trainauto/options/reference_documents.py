"""What people and editors read about option files, generated from the schema and the registered components."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainauto.options.component_schemas import Components, arguments_schema, schema_of
from trainauto.options.lookup import sections
from trainauto.options.nested import SECTION
from trainauto.options.parameters import summary_of
from trainauto.options.preset_documents import preset_tables
from trainauto.options.schema import Automations, Component, Options
from trainauto.options.source_locations import dotted
from trainauto.options.test_schema import OptionsToMeasure, SetsToMeasure

KINDS = {
    "network": ("Networks", "network_g, network_d"),
    "loss": ("Losses", "items of train.losses"),
    "optimizer": ("Optimizers", "train.optim_g, train.optim_d"),
    "schedule": ("Schedules", "train.scheduler"),
    "metric": ("Metrics", "values of val.metrics"),
    "dataset": ("Datasets", "type of datasets.train, val and val_*"),
    "model": ("Models", "model_type"),
    "automation": ("Automations", "keys of training_automations"),
}
"""Heading of each kind of component, and where its components are named."""


def json_schema(components: Components) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of option files for editors: completion, hovers, squiggles.

    Components that are not registered here may come from plugins, so their names and arguments are let pass.

    Args:
        components: what is registered, by kind and name.
    """
    schema = schema_of(Options)
    definitions: dict[str, Any] = schema["$defs"]
    for section in (schema, *definitions.values()):
        for option in section.get("properties", {}).values():
            _fold_notes(option)

    def slot(kind: str) -> dict[str, str]:
        definitions[kind] = _component_definition(kind, components.get(kind, {}), definitions)
        return {"$ref": f"#/$defs/{kind}"}

    train, val = definitions["TrainOptions"]["properties"], definitions["ValOptions"]["properties"]
    schema["properties"]["network_g"] |= (network := slot("network"))
    schema["properties"]["network_d"]["anyOf"][0] = network
    train["losses"]["items"] = slot("loss")
    train["optim_g"] |= (optimizer := slot("optimizer"))
    train["optim_d"]["anyOf"][0] = optimizer
    train["scheduler"] |= slot("schedule")
    val["metrics"]["additionalProperties"] = slot("metric")
    del definitions["Component"]

    _complete(schema["properties"]["model_type"], components.get("model", {}))
    for name in ("TrainDataset", "ValDataset"):
        _complete(definitions[name]["properties"]["type"], components.get("dataset", {}))
    datasets = definitions["Datasets"]
    datasets["patternProperties"] = {"^val_.": datasets.pop("additionalProperties")}
    datasets["additionalProperties"] = False
    _name_automations(definitions, components.get("automation", {}))
    train[SECTION] = {"$ref": "#/$defs/Automations", "description": f"Read as {SECTION} at the top level."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "trainauto option file"}


def _fold_notes(option: dict[str, Any]) -> None:
    """Move unit and reason, which editors do not show, into the description."""
    unit, reason = option.pop("unit", ""), option.pop("reason", "")
    if unit:
        option["description"] = f"[{unit}] {option['description']}"
    if reason:
        option["description"] += f" Default: {reason}."


def _complete(option: dict[str, Any], components: Mapping[str, Any]) -> None:
    """Have editors offer the registered names, and take any other."""
    del option["type"]
    option["anyOf"] = [*([{"enum": list(components)}] if components else []), {"type": "string"}]


def _component_definition(kind: str, components: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    branches: list[dict[str, Any]] = []
    for name, component in components.items():
        branch = arguments_schema(kind, name, component)
        definitions |= branch.pop("$defs", {})
        branch["properties"] = {
            # The constant is what editors offer; the pattern takes the name in any case.
            "type": {"anyOf": [{"const": name}, {"pattern": _any_case(name)}], "description": summary_of(component)},
            **branch["properties"],
        }
        branch["required"] = ["type", *branch.get("required", [])]
        branches.append(branch)
    other = {
        "type": "object",
        "description": "A component from a plugin.",
        "properties": {
            "type": {"type": "string", "not": {"anyOf": [{"pattern": _any_case(name)} for name in components]}}
        },
        "required": ["type"],
    }
    if not components:
        del other["properties"]["type"]["not"]  # type: ignore[index]
    return {"anyOf": [*branches, other]}


def _any_case(*words: str) -> str:
    """Return a pattern of a name in any case (JSON Schema has no flag for it), with or without _ between its words."""
    return f"^{'_?'.join(''.join(map(_either_case, word)) for word in words)}$"


def _either_case(letter: str) -> str:
    return f"[{letter.lower()}{letter.upper()}]" if letter.isascii() and letter.isalpha() else re.escape(letter)


_WORD_OF_A_NAME = re.compile(r"[A-Z]+[^A-Z]*|[^A-Z]+")
"""Of CamelCase; an acronym is one with what follows it."""


def _name_automations(definitions: dict[str, Any], automations: Mapping[str, Any]) -> None:
    """Give each registered automation its own arguments beside the switch; others stay open."""
    section, switch = definitions["Automations"], definitions["AutomationSwitch"]
    for name, component in automations.items():
        entry = arguments_schema("automation", name, component)
        definitions |= entry.pop("$defs", {})
        entry["properties"] = {**switch["properties"], **entry["properties"]}
        # An automation that is switched off needs no arguments.
        entry.pop("required", None)
        definitions[f"automation.{name}"] = {**entry, "description": summary_of(component)}
        reference = {"$ref": f"#/$defs/automation.{name}"}
        # Editors offer the name, and take it in other spellings.
        section["properties"][name] = reference
        section.setdefault("patternProperties", {})[_any_case(*_WORD_OF_A_NAME.findall(name))] = reference


def markdown_reference(components: Components) -> str:
    """Return the reference of option files: every key and every component with its arguments, as Markdown.

    Args:
        components: what is registered, by kind and name.
    """
    tables = [*_option_tables(), *_component_tables(components), *preset_tables(), *_test_tables()]
    return "\n".join([*_introduction(), *tables]).rstrip() + "\n"


def _introduction() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield "Every key of an option file. This page is generated from the schema; do not edit it."
    yield ""
    yield "Any key can be set on the command line: `--force_yml train:total_iter=500 train:losses:0:type=mseloss`."
    yield ""


def _option_tables() -> Iterator[str]:
    for path, section in sections(Options):
        if section is Component:
            continue
        schema = schema_of(section)
        yield f"## {f'`{dotted(path)}`' if path else 'Top level'}"
        yield ""
        yield _one_line(schema.get("description", ""))
        yield ""
        if section is Automations:
            yield "Beside `enabled`, keys are names of automations; [those below](#automations) are registered."
            yield "The section may stand under `train` instead, and names may be in snake_case (`plan_schedule`)."
            yield ""
        yield from _table(schema, {"unit": "unit", "description": "what it is", "reason": "why this default"})


def _test_tables() -> Iterator[str]:
    yield "## Test files"
    yield ""
    yield "What `python test.py -opt FILE` reads; sets and metrics are written as those of a run's validation."
    yield ""
    for path, section in sections(OptionsToMeasure):
        if section not in (Component, SetsToMeasure):
            yield f"### {f'Test files: `{dotted(path)}`' if path else 'Test files: top level'}"
            yield ""
            yield from _table(schema_of(section), {"unit": "unit", "description": "what it is"})


def _component_tables(components: Components) -> Iterator[str]:
    for kind, (heading, where) in KINDS.items():
        yield f"## {heading}"
        yield ""
        yield f"Named in: {where}. Names are taken in any case."
        yield ""
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
            if schema["properties"]:
                yield from _table(schema, {"description": "what it is"})
            for definition, keys in schema.get("$defs", {}).items():
                yield f"Keys of `{definition.split('.')[-1]}`:"
                yield ""
                yield from _table(keys, {"description": "what it is"})


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
    """Say what a property of a JSON Schema is where nobody sets it, as Markdown."""
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
        return "component" if name == "Component" else f"section `{name.split('.')[-1]}`" if "." in name else "section"
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
