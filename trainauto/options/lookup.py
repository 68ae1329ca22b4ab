"""Finding keys, fields and sections in typed options by path."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainauto.options.source_locations import KeyPath


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by the key that stands in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def extra_type(model: type[BaseModel]) -> Any:
    """Return what a section takes under keys of the person's choice; ``None`` where it takes none."""
    if model.model_config.get("extra") != "allow":
        return None
    declared = get_args(model.__annotations__.get("__pydantic_extra__"))
    return declared[1] if declared else Any


def field_at(model: type[BaseModel], path: KeyPath) -> FieldInfo | None:
    """Return the field that ``path`` names below ``model``, if it names one."""
    if not path:
        return None
    section = section_at(model, path[:-1])
    return fields_of(section).get(str(path[-1])) if section else None


def section_at(annotation: Any, path: KeyPath) -> type[BaseModel] | None:
    """Return the section that ``path`` leads to below ``annotation``, if it leads to one."""
    for option in members(annotation):
        if path:
            below = _below(option, path[0])
            section = None if below is None else section_at(below, path[1:])
        else:
            section = option if is_section(option) else None
        if section:
            return section
    return None


def is_section(annotation: Any) -> bool:
    """Say whether a type is that of a section."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def members(annotation: Any) -> Iterator[Any]:
    """Iterate over the types that an annotation allows, without metadata and without nesting of unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from members(member)
    else:
        yield annotation


def sections(model: type[BaseModel], path: KeyPath = ()) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    """Iterate over ``model`` and the sections in it that have a fixed place."""
    yield path, model
    for key, field in fields_of(model).items():
        for option in members(field.annotation):
            if is_section(option):
                yield from sections(option, (*path, key))


def _below(annotation: Any, key: str | int) -> Any:
    if is_section(annotation):
        field = fields_of(annotation).get(str(key))
        return field.annotation if field else extra_type(annotation)
    arguments = get_args(annotation)
    if not arguments:
        return None
    return arguments[0] if isinstance(key, int) else arguments[-1]
