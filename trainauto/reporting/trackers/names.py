"""Names and texts as trackers take them."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from trainauto.core.masking import without_secret_value
from trainauto.core.words import visible

LONGEST_NAME = 250
"""Characters of a name: the least that any of the trackers takes (MLflow's bound of keys)."""
LONGEST_TEXT = 500
"""Characters of a value that is text: what old servers of MLflow take."""

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_\-. /]")


def shown_name(name: str) -> str:
    """Return a name that is safe to show."""
    return visible(name, LONGEST_NAME)


def plain_name(name: str) -> str:
    """Return a name of letters, digits and ``_-. /`` that is no path out of a folder, as MLflow asks for.

    A name that had to be changed ends with some characters of its hash, so that no two become the same.
    """
    parts = _NOT_PLAIN.sub("_", name).split("/")
    plain = "/".join("_" if not part.strip(" .") else part for part in parts)
    if plain == name and len(plain) <= LONGEST_NAME:
        return name
    ending = "_" + hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return plain[: LONGEST_NAME - len(ending)] + ending


def shown_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that are safe to show, without passwords, tokens and the like."""
    return {shown_name(name): _shown(without_secret_value(name, value)) for name, value in config.items()}


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return visible(str(value), LONGEST_TEXT)
