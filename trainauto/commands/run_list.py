"""What ``python -m trainauto list`` prints of components."""

import json as json_format
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from trainauto.archs import ARCHS
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.registered_documents import registries
from trainauto.commands.network_list import NETWORKS_WIDEST, network_dict, network_lines, networks_json, networks_table
from trainauto.commands.whole_options import load_whole
from trainauto.core.errors import InputError
from trainauto.core.plugins import import_installed_plugins
from trainauto.core.registry import Registry
from trainauto.optim import OPTIMIZERS
from trainauto.optim.package_optimizers import PACKAGE, SCHEDULE_FREE_PACKAGE, Optimizers
from trainauto.options.component_schemas import FILLED_IN, arguments_schema
from trainauto.options.parameters import summary_of
from trainauto.options.reference_documents import KINDS, MULTITASK_KINDS, default_words, type_words

WIDEST = 100
"""Columns; narrower terminals are followed."""

_WHERE = {kind: where for kind, (_, where) in {**KINDS, **MULTITASK_KINDS}.items()}
"""Where the components of a kind are named."""

_ELSEWHERE = {
    "dataset": "Its options are the keys beside type in datasets.train and datasets.val: docs/options.md.",
    "model": "What it consists of stands in network_g, network_d and train: docs/options.md.",
}
"""Where the options of kinds stand whose components take no arguments of their own in an option file."""


def load_components(option_file: Path | None) -> None:
    """Register what installed plugins bring, and those of an option file if one is given.

    Raises:
        InputError: a plugin or the option file cannot be used.
    """
    if option_file is None:
        import_installed_plugins()
    else:
        load_plugins(load_whole(option_file, ()))


def list_components(kind: str, plural: str, *, json: bool) -> str:
    """Return the components of a kind with the first line of what they say of themselves.

    Args:
        kind: as its registry calls it.
        plural: as the command line calls it.
        json: for machines.
    """
    if kind == ARCHS.kind:
        return networks_json() if json else networks_table(min(NETWORKS_WIDEST, _columns()))
    summaries = dict(_summaries(registries()[kind]))
    if json:
        return json_format.dumps([{"name": name, "summary": text} for name, text in summaries.items()], indent=2)
    width = max(map(len, summaries), default=0) + 2
    lines = [
        line
        for name, text in summaries.items()
        for line in wrap(f"{name:<{width}}{text}", _columns(), subsequent_indent=" " * width, break_on_hyphens=False)
    ]
    more = "" if kind in _ELSEWHERE else f"; arguments: list {plural} NAME"
    if kind == OPTIMIZERS.kind:
        more += f"; other optimizers of {PACKAGE} and {SCHEDULE_FREE_PACKAGE} go by their names there"
    return "\n".join([*lines, "", *wrap(f"named in: {_WHERE[kind]}{more}", _columns())])


def _summaries(registry: Registry[Any]) -> Iterator[tuple[str, str]]:
    for name in registry.offered() if isinstance(registry, Optimizers) else registry:
        try:
            yield name, _plain(summary_of(registry.get(name)))
        except InputError as error:  # of a package that is not installed
            yield name, error.problems[0].message


def describe_component(kind: str, name: str, *, json: bool) -> str:
    """Return a component with every argument: type, default, and what it is.

    Raises:
        InputError: no component of this kind is called so; names the nearest.
    """
    registry = registries()[kind]
    component = registry.get(name)
    shown, summary = registry.shown(name), _plain(summary_of(component))
    schema = arguments_schema(kind, shown, component)
    is_network = kind == ARCHS.kind
    if json:
        facts = {"name": shown, "kind": kind, "summary": summary, "arguments": schema["properties"]}
        facts |= {key: schema[key] for key in ("required", "$defs") if key in schema}
        facts |= {"facts": network_dict(shown)} if is_network else {}
        return json_format.dumps(facts, indent=2)
    lines = [*wrap(f"{shown}: {summary}", _columns()), f"named in: {_WHERE[kind]}"]
    lines += [*(network_lines(shown, _columns()) if is_network else []), ""]
    lines += _arguments(schema, FILLED_IN.get(kind, frozenset()))
    if not schema["properties"]:
        lines += wrap(_ELSEWHERE.get(kind, "It takes no arguments."), _columns())
    for definition, keys in schema.get("$defs", {}).items():
        lines += ["", f"keys of {definition.split('.')[-1]}:", *_arguments(keys, frozenset())]
    return "\n".join(lines)


def _arguments(schema: Mapping[str, Any], filled_in: frozenset[str]) -> Iterator[str]:
    for key, option in schema["properties"].items():
        default = _plain(default_words(option, key in schema.get("required", [])))
        if key in filled_in:
            default = "the option file's"
        words = default if default == "required" else f"default {default}"
        yield from wrap(f"{key}: {_plain(type_words(option))}; {words}", _columns(), subsequent_indent="    ")
        note = _plain(option.get("description", ""))
        yield from wrap(note, _columns(), initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _plain(markdown: str) -> str:
    return markdown.replace("`", "").replace("**", "")


def _columns() -> int:
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
