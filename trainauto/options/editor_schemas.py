"""JSON Schema of option files for editors: completion, hovers, squiggles; of each task one."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from trainauto.options.component_schemas import Components, arguments_schema, schema_of
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.multitask_options import MultitaskOptions
from trainauto.options.nested import SECTION
from trainauto.options.parameters import summary_of
from trainauto.options.schema import Options
from trainauto.options.text_options import TextOptions
from trainauto.options.training_options import LossTermOptions

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(components: Components) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of option files of super-resolution.

    Components that are not registered here may come from plugins, so their names and arguments are let pass.

    Args:
        components: what is registered, by kind and name.
    """
    schema, definitions, slot = _begun(Options, components)
    train, val = definitions["TrainOptions"]["properties"], definitions["ValOptions"]["properties"]
    schema["properties"]["network_g"] |= (network := slot("network"))
    schema["properties"]["network_d"]["anyOf"][0] = network
    train["losses"]["items"] = slot("loss")
    _add_keys_of_terms(definitions)
    train["optim_g"] |= (optimizer := slot("optimizer"))
    train["optim_d"]["anyOf"][0] = optimizer
    train["scheduler"] |= slot("schedule")
    val["metrics"]["additionalProperties"] = slot("metric")

    _complete(schema["properties"]["model_type"], components.get("model", {}))
    for name in ("TrainDataset", "ValDataset"):
        _complete(definitions[name]["properties"]["type"], components.get("dataset", {}))
    return _ended(schema, "Datasets", "TrainOptions", components, "trainauto option file")


def text_json_schema(components: Components) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of option files of language models; arguments are as for `json_schema`."""
    schema, definitions, slot = _begun(TextOptions, components)
    train = definitions["TextTrainOptions"]["properties"]
    train["optim"] |= slot("optimizer")
    train["scheduler"] |= slot("schedule")
    return _ended(schema, "TextDatasets", "TextTrainOptions", components, "trainauto option file of a language model")


def multitask_json_schema(components: Components) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of option files of several tasks; arguments are as for `json_schema`."""
    schema, definitions, slot = _begun(MultitaskOptions, components)
    schema["properties"]["model"] |= slot("multitask-model")
    definitions["MultitaskTraining"]["properties"]["scheduler"] |= slot("schedule")
    sets, of_samples = definitions["SampleSets"], slot("sample-set")
    sets["properties"]["train"] |= of_samples
    sets["properties"]["val"]["anyOf"][0] = sets["additionalProperties"] = of_samples
    del schema["properties"][SECTION], definitions["Automations"], definitions["AutomationSwitch"]
    return _ended(schema, "SampleSets", None, components, "trainauto option file of several tasks")


def finetune_json_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of option files of fine-tuning, which name no components."""
    schema, definitions, _ = _begun(FinetuneOptions, {})
    definitions.pop("Component", None)
    return {"$schema": DRAFT, **schema, "title": "trainauto option file of fine-tuning"}


def _begun(
    model: type[BaseModel], components: Components
) -> tuple[dict[str, Any], dict[str, Any], Callable[[str], dict[str, str]]]:
    """Return the schema of the typed options, its definitions, and what adds those of a kind of component to them."""
    schema = schema_of(model)
    definitions: dict[str, Any] = schema["$defs"]
    for section in (schema, *definitions.values()):
        for option in section.get("properties", {}).values():
            _fold_notes(option)

    def slot(kind: str) -> dict[str, str]:
        definitions[kind] = _component_definition(kind, components.get(kind, {}), definitions)
        return {"$ref": f"#/$defs/{kind}"}

    return schema, definitions, slot


def _ended(
    schema: dict[str, Any], datasets_name: str, train_name: str | None, components: Components, title: str
) -> dict[str, Any]:
    """Return the schema with names of sets and, where the section that may hold them is named, of automations."""
    definitions = schema["$defs"]
    for name in ("Component", "LossTermOptions"):
        definitions.pop(name, None)
    datasets = definitions[datasets_name]
    datasets["patternProperties"] = {"^val_.": datasets.pop("additionalProperties")}
    datasets["additionalProperties"] = False
    if train_name is not None:
        _name_automations(definitions, components.get("automation", {}))
        nested = {"$ref": "#/$defs/Automations", "description": f"Read as {SECTION} at the top level."}
        definitions[train_name]["properties"][SECTION] = nested
    return {"$schema": DRAFT, **schema, "title": title}


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


def _add_keys_of_terms(definitions: dict[str, Any]) -> None:
    """Have every loss, registered or from a plugin, take what says how it takes part in a step."""
    keys = {f"loss.{name}": key for name, key in definitions[LossTermOptions.__name__]["properties"].items()}
    del keys["loss.type"]
    definitions |= keys
    for branch in definitions["loss"]["anyOf"]:
        branch["properties"] |= {name.removeprefix("loss."): {"$ref": f"#/$defs/{name}"} for name in keys}


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
