"""Texts without what gives access: passwords in addresses, and values whose names say that they are secret."""

import re
from typing import Any

HIDDEN = "…"
"""Stands where something was."""

_NAME = (
    r"(?:token|authorization|(?:(?:api|access|secret|private)[_-]?key|password|passwd|pwd|passphrase|secret|signature"
    r"|credential)s?)"
)
"""What the name of a secret value ends with; ``max_tokens`` and ``token_id`` end with something else."""
_VALUE = r"""(?:(?:bearer|basic|token)\s+)?(?:"(?:[^"\\]|\\.)+"|'(?:[^'\\]|\\.)+'|\S+)"""
_IN_QUERY = re.compile(rf"([?&;][\w.%-]{{0,80}}?(?:{_NAME}|key|sig|auth)=)[^\s&#;]+", re.IGNORECASE)
_ASSIGNED = re.compile(rf"({_NAME}[\"']?\s{{0,4}}[=:]\s{{0,4}})(?!{HIDDEN}|\s){_VALUE}", re.IGNORECASE)
_OPTION = re.compile(rf"((?<!\S)--?[\w.-]{{0,80}}?{_NAME}\s{{1,4}})(?!-|\s){_VALUE}", re.IGNORECASE)
_SECRET_NAME = re.compile(rf"{_NAME}$", re.IGNORECASE)
_WORD = re.compile(r"\S+")


def without_secrets(text: str) -> str:
    """Return a text without its secrets; each is replaced by an ellipsis.

    It hides what stands before the last ``@`` of an address (after ``://``, or in a word with a colon before it). It
    also hides what follows a name that ends in token, password, secret, api_key or the like: ``?token=x``,
    ``--token x``, ``api_key: x``; in queries after key, sig and auth, too. Rather too much is hidden than too
    little: a password may hold any character but white space. Cut a text after this, not before.
    """
    for pattern in (_IN_QUERY, _ASSIGNED, _OPTION):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return _WORD.sub(lambda word: _without_login(word[0]), text)


def names_a_secret(name: str) -> bool:
    """Whether an option of this name, dotted or not, holds a secret."""
    return _SECRET_NAME.search(name) is not None


def without_secret_value(name: str, value: Any) -> Any:
    """Return the value of an option without its secrets, of a text or a list of such; all of it where its name says so.

    ``None``, true and false stay: they say whether there is one.
    """
    if value is None or isinstance(value, bool) or value == "":
        return value
    if names_a_secret(name):
        return HIDDEN
    if isinstance(value, list):
        return [without_secret_value(name, item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value


def _without_login(word: str) -> str:
    """Return a word without what stands before the last ``@``, where that is the login of an address."""
    end = word.rfind("@")
    scheme = word.find("://", 0, end) if end > 0 else -1
    if scheme >= 0:
        start = scheme + len("://")
        return f"{word[:start]}{HIDDEN}{word[end:]}" if end > start else word
    return HIDDEN + word[end:] if ":" in word[: max(end, 0)] else word
