"""What a component takes: its parameters, their types, and what its docstring says of them."""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from math import isfinite
from textwrap import shorten
from typing import Any, get_type_hints

LONGEST_NOTE = 240
"""Characters; torch's docstrings go on for paragraphs."""


def parameters_of(component: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a component with their annotations resolved; unresolvable ones become ``Any``.

    ``*args`` and parameters that cannot be given by name are left out, ``**kwargs`` is kept.
    """
    try:
        signature = inspect.signature(component, eval_str=True)
    except ValueError:
        # Some callables written in C do not say what they take.
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
    except Exception:
        # An annotation may name what is imported for type checkers only, and resolving it runs the component's code.
        signature = _resolved_one_by_one(component)
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
    return [parameter for parameter in signature.parameters.values() if parameter.kind not in unnamed]


def argument_notes(component: Callable[..., Any]) -> dict[str, str]:
    """Return what a Google docstring says of each argument (``Args:``, or a dataclass's ``Attributes:``)."""
    lines = iter(_docs(component).splitlines())
    notes: dict[str, str] = {}
    for line in lines:
        if line.strip() in ("Args:", "Attributes:"):
            break
    current = ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            break
        name, colon, text = line.strip().partition(":")
        if indent == 4 and colon:
            current = name.split("(")[0].strip()
            notes[current] = text.strip()
        elif current and line.strip():
            notes[current] = f"{notes[current]} {line.strip()}".lstrip()
    return {name: shorten(_markdown(note), LONGEST_NOTE, placeholder=" ...") for name, note in notes.items()}


def summary_of(component: Callable[..., Any]) -> str:
    """Return the first paragraph of a component's docstring, on one line."""
    # Its own words: a class without any would inherit those of torch's modules.
    own = component.__doc__ if not isinstance(component, type) else vars(component).get("__doc__")
    return _markdown(" ".join(inspect.cleandoc(own or "").split("\n\n")[0].split())) or "(without a description)"


def is_plain(value: Any) -> bool:
    """Say whether a value is made of JSON's scalars, lists, tuples and mappings with text keys only."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, str)


def _markdown(text: str) -> str:
    """Return docstring markup as Markdown: `x` for ``x`` and for :class:`x`."""
    return re.sub(r":\w+:`", "`", text.replace("``", "`"))


def _docs(component: Callable[..., Any]) -> str:
    own = inspect.getdoc(component) or ""
    return f"{own}\n{inspect.getdoc(_initializer(component)) or ''}" if isinstance(component, type) else own


def _initializer(component: Any) -> Any:
    return component.__init__ if isinstance(component, type) else component  # type: ignore[misc]  # not an instance


def _resolved_one_by_one(component: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(component)
    names = getattr(inspect.unwrap(_initializer(component)), "__globals__", {})

    def resolved(parameter: inspect.Parameter) -> inspect.Parameter:
        holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
        try:
            return parameter.replace(annotation=get_type_hints(holder, names, include_extras=True)["it"])
        except Exception:
            return parameter.replace(annotation=Any)

    return signature.replace(
        parameters=[resolved(parameter) for parameter in signature.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
