"""Models of the arguments that an option file may give to a component, from the component's signature.

A file holds text, numbers, switches, lists and sections. Tuples and sets take lists, enums their values, paths text,
dataclasses sections; where a parameter takes a number or something no file can hold (``float | Tensor``), only the
number is left.
"""

import collections.abc
import dataclasses
import enum
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo

from trainauto.options.lookup import members
from trainauto.options.parameters import argument_notes, is_plain, parameters_of
from trainauto.options.schema import Whole

_LISTS: tuple[Any, ...] = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_LISTS += (collections.abc.Iterable, collections.abc.Collection)
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_SECTIONS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_SCALARS = (bool, int, float, str, type(None))
_LAX = Strict(False)
_open: ContextVar[frozenset[Any]] = ContextVar("dataclasses whose models are being made", default=frozenset())
_CONFIG = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


@lru_cache(maxsize=512)
def arguments_model(
    component: Callable[..., Any], supplied: frozenset[str] = frozenset(), filled_in: frozenset[str] = frozenset()
) -> type[BaseModel]:
    """Return a model of the arguments that an option file may give to ``component``.

    Fields carry the parameter as their alias: a parameter may be called ``schema`` or ``_x``, a field may not.

    Args:
        component: class or function.
        supplied: parameters to leave out.
        filled_in: parameters that a file may give and need not, whether they have a default or not.
    """
    notes = argument_notes(component)
    fields: dict[str, Any] = {}
    extra = False
    for number, parameter in enumerate(parameters_of(component)):
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = True
        elif parameter.name not in supplied:
            is_required = parameter.default is inspect.Parameter.empty and parameter.name not in filled_in
            fields[f"argument_{number}"] = _field(parameter, notes.get(parameter.name), is_required=is_required)
    config: ConfigDict = {**_CONFIG, "extra": "allow" if extra else "forbid"}
    return create_model(getattr(component, "__name__", "Arguments"), __config__=config, **fields)


def given_arguments(model: BaseModel) -> dict[str, Any]:
    """Return the arguments that were given to a model of :func:`arguments_model`, converted, by parameter."""
    fields = type(model).model_fields
    arguments = {fields[name].alias or name: getattr(model, name) for name in fields if name in model.model_fields_set}
    return {**arguments, **(model.model_extra or {})}


def fillable(annotation: Any) -> Any:
    """Return ``annotation`` as pydantic is to check it against values of an option file."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return Annotated[fillable(inner), *metadata]
    options = list(members(annotation))
    if len(options) == 1:
        return _fillable_single(options[0])
    holdable = [option for option in options if _is_holdable(option)] or options
    # Beside float, 2.0 is to stay the float it is.
    types = [option if option is int and float in holdable else _fillable_single(option) for option in holdable]
    return Union[tuple(types)]  # noqa: UP007  # the members are known at run time only


def _field(parameter: inspect.Parameter, note: str | None, *, is_required: bool) -> tuple[Any, FieldInfo]:
    annotation = fillable(parameter.annotation)
    if not _is_known(annotation):
        annotation = Any
    default = parameter.default
    if is_required:
        field = Field(alias=parameter.name, description=note)
    elif is_plain(default):
        field = Field(default, alias=parameter.name, description=note)
    else:
        # Such as a function or a tensor, or none: only the component, or who fills it in, knows it.
        field = Field(default_factory=_nothing, alias=parameter.name, description=note)
    return annotation, field


def _nothing() -> None:
    return None


def _is_known(annotation: Any) -> bool:
    """Say whether pydantic can check values of this type."""
    try:
        create_model("Known", __config__=_CONFIG, it=(annotation, ...))
    except (PydanticUserError, PydanticUndefinedAnnotation):
        return False
    return True


def _is_holdable(annotation: Any) -> bool:
    """Say whether an option file can hold a value of this type (not of a union)."""
    if isinstance(annotation, type) and not get_args(annotation):
        plain = (*_SCALARS, *_LISTS, *_SETS, *_SECTIONS, tuple, object)
        built = issubclass(annotation, enum.Enum | PurePath | BaseModel) or dataclasses.is_dataclass(annotation)
        return annotation in plain or built or _is_typed_dict(annotation)
    return get_origin(annotation) not in (type, collections.abc.Callable)


def _fillable_single(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty or annotation is object or isinstance(annotation, TypeVar):
        return Any
    if annotation is int:
        return Whole
    if hasattr(annotation, "__supertype__"):
        return fillable(annotation.__supertype__)
    if isinstance(annotation, type) and not get_args(annotation):
        return _fillable_class(annotation)
    return _fillable_generic(annotation, get_origin(annotation) or annotation, get_args(annotation))


def _fillable_class(annotation: type[Any]) -> Any:
    if _is_typed_dict(annotation):
        # Pydantic takes these from Python 3.12 on only.
        return dict[str, Any]
    if dataclasses.is_dataclass(annotation):
        return _section_of(annotation)
    if issubclass(annotation, enum.Enum | PurePath):
        return Annotated[annotation, _LAX]
    return _fillable_generic(annotation, annotation, ())


def _fillable_generic(annotation: Any, origin: Any, parameters: tuple[Any, ...]) -> Any:
    if origin is Literal or origin is type or origin is collections.abc.Callable:
        return annotation
    arguments = tuple(item if item is ... else fillable(item) for item in parameters)
    if origin is tuple:
        return Annotated[tuple.__class_getitem__(arguments or (Any, ...)), _LAX]
    if origin in _LISTS:
        return list.__class_getitem__(arguments or (Any,))
    if origin in _SETS:
        return Annotated[(frozenset if origin is frozenset else set).__class_getitem__(arguments or (Any,)), _LAX]
    if origin in _SECTIONS:
        return dict.__class_getitem__(arguments or (str, Any))
    # A generic class of somebody's own, or a special form: nothing is known of what it takes.
    return annotation if isinstance(annotation, type) and not parameters else Any


def _section_of(component: Callable[..., Any]) -> Any:
    """Return a type that takes a section and makes a dataclass of it, by the same rules as a component."""

    def make(section: BaseModel) -> Any:
        return component(**given_arguments(section))

    if component in _open.get():
        # It holds others of its kind; how deep, only it knows.
        return Any
    token = _open.set(_open.get() | {component})
    try:
        return Annotated[arguments_model(component), AfterValidator(make)]
    finally:
        _open.reset(token)


def _is_typed_dict(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, dict) and hasattr(annotation, "__total__")
