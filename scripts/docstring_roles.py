"""An extension for the reader of docstrings: what Sphinx writes as roles becomes code, as Markdown has it."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|meth|func|attr|mod|data|exc|obj):`(~?)([^`]+)`")


def without_roles(text: str) -> str:
    """Write ``:class:`~package.Name``` as ``Name`` between backticks, and other roles as what they name."""
    return ROLE.sub(lambda role: f"`{role[2].rpartition('.')[2] if role[1] else role[2]}`", text)


class DocstringRoles(griffe.Extension):
    """Rewrites the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one."""
        if obj.docstring:
            obj.docstring.value = without_roles(obj.docstring.value)
