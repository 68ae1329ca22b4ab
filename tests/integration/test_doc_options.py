"""Options that pages name between backticks or on command lines are options: of some file, or of what it names."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from tests.documents import ROOT, inline_code, pages, read

OPTION = re.compile(r"[a-z_]+: ?\S.*")
FORCED = re.compile(r"(?<![\w./])([a-z_]+(?::[a-z_0-9]+)+)=")

NO_OPTIONS = {
    "psnr": "a name that a file gives to a metric",
    "n_layer": "of a configuration of transformers",
    "ranks": "a line of the log",
}
"""Words that look like one, and what they are."""


@cache
def known() -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the keys that option files may have, those of components included, and patterns of keys in any case."""
    schemas = [ROOT / "options" / "schema.json", *ROOT.glob("options/*/schema.json")]
    names = {name for schema in schemas for name in _names_in(json.loads(schema.read_text(encoding="utf-8")))}
    return frozenset(names), tuple(name for name in names if not name.isidentifier())


def _names_in(schema: Any) -> Iterator[str]:
    for node in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _names_in(node)
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from schema.get("patternProperties", {})


def _keys_of(document: Any) -> Iterator[str]:
    for node in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        yield from _keys_of(node)
    yield from map(str, document) if isinstance(document, dict) else ()


def _read(code: str) -> Any:
    try:
        return yaml.safe_load(code)
    except yaml.YAMLError:  # words with two colons: a path through a file, in prose
        return None


def named(page: str) -> set[str]:
    """Return the words of a page that are to be options."""
    inline = [code for code in inline_code(page) if OPTION.fullmatch(code)]
    forced = {word for path in FORCED.findall(read(page)) for word in path.split(":") if not word.isdigit()}
    return forced.union(*(_keys_of(_read(code)) for code in inline))


def unknown(words: set[str]) -> set[str]:
    names, patterns = known()
    return {word for word in words - names if not any(re.search(pattern, word) for pattern in patterns)}


@pytest.mark.parametrize("page", pages())
def test_options_of_a_page_are_options(page: str) -> None:
    assert unknown(named(page)) <= set(NO_OPTIONS)


def test_a_word_that_is_no_option_is_found() -> None:
    assert unknown({"lr_scaling", "lr_scale", "calculate_psnr"}) >= {"lr_scale"}
    everywhere = set().union(*map(named, pages()))
    assert len(everywhere) > 70
    assert set(NO_OPTIONS) <= unknown(everywhere), "words that no page has any more"
