"""Checking the keyword arguments of a component against its signature, before it is called."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic import BaseModel, ValidationError

from trainauto.core.errors import InputError, nearest
from trainauto.options.lookup import fields_of, section_at
from trainauto.options.signatures import arguments_model, given_arguments
from trainauto.options.source_locations import KeyPath, Places, dotted, printable
from trainauto.options.training_options import LossTermOptions
from trainauto.options.validation_errors import Finding, described, findings_of, in_file_order


def check_arguments(
    component: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    path: KeyPath,
    places: Places,
    kind: str,
    name: str,
    supplied: AbstractSet[str] = frozenset(),
    filled_in: AbstractSet[str] = frozenset(),
) -> dict[str, Any]:
    """Return the arguments from an option file as ``component`` takes them: whole floats as ints, lists as tuples.

    Only what the file gives is returned; defaults stay the component's.

    Args:
        component: class or function to be called with them.
        arguments: what stands in the file beside ``type``.
        path: path of the component's section, e.g. ``("train", "losses", 0)``.
        places: places of the file.
        kind: what it is, as in its registry: ``"loss"``.
        name: what the file calls it.
        supplied: parameters that trainauto gives itself. They are not missed in the file, and refused there.
        filled_in: parameters that trainauto gives where the file does not. They are not missed in the file.

    Raises:
        InputError: with a problem for each argument that is unknown, missing, supplied or of a wrong type.
    """
    model = arguments_model(component, frozenset(supplied), frozenset(filled_in))
    findings = [_supplied((*path, key), kind, name) for key in arguments if key in supplied]
    own = {key: value for key, value in arguments.items() if key not in supplied}
    try:
        checked = model.model_validate(own)
    except ValidationError as error:
        findings += findings_of(
            error,
            model,
            own,
            unknown=lambda at: _unknown(at, path, kind, name, model),
            missing=lambda at: _missing(at, path, kind, name, model),
            base=path,
        )
    if findings:
        file = places.of_key(()).file
        raise InputError(in_file_order((finding.problem(places) for finding in findings), file))
    return given_arguments(checked)


def _unknown(at: KeyPath, base: KeyPath, kind: str, name: str, model: type[BaseModel]) -> Finding:
    section = section_at(model, at[:-1])
    names = list(fields_of(section)) if section else []
    key = printable(str(at[-1]))
    message = f"{kind} '{name}' has no argument '{key}'"
    if len(at) > 1:
        message = f"unknown key '{key}' in {dotted((*base, *at[:-1]))}"
    elif kind == "loss":
        names += LossTermOptions.model_fields.keys() - {"type"}
    near, every = nearest(key, names), nearest("", names)
    advice = "It takes none." if not names else near if near == every else f"{near} {every}"
    return Finding(at, message, advice, at_key=True)


def _missing(at: KeyPath, base: KeyPath, kind: str, name: str, model: type[BaseModel]) -> Finding:
    message = f"{kind} '{name}' needs '{at[-1]}'"
    if len(at) > 1:
        message = f"'{at[-1]}' is missing in {dotted((*base, *at[:-1]))}"
    return Finding(at, message, f"Add {described(model, at) or f'{at[-1]}: ...'}", at_key=True)


def _supplied(path: KeyPath, kind: str, name: str) -> Finding:
    message = f"'{path[-1]}' of {kind} '{name}' is filled in by trainauto"
    return Finding(path, message, "Remove it.", at_key=True)
