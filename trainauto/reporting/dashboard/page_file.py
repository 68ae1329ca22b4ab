"""The file of a page: the template, what it shows, and the scripts that show it, all in one."""

import base64
import functools
import hashlib
import html
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from trainauto.core.files import read_text, write_text_atomically
from trainauto.core.json_text import from_json, to_json

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = (
    "uPlot.iife.min.js",
    *(f"{name}.js" for name in ("text", "series", "scales", "chart", "plot", "blocks", "viewer", "pictures", "page")),
)
"""In the order in which the page needs them."""

_DATA = re.compile(r'<script type="application/json" id="page">(.*?)</script>', re.DOTALL)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def write_page(file: Path, page: Mapping[str, Any]) -> None:
    """Write a page, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_text_atomically(file, page_text(page))


def page_text(page: Mapping[str, Any]) -> str:
    """Return the HTML of a page.

    Nothing in it is loaded from anywhere, and its policy lets nothing run but the scripts that it was written with: it
    names them by their digests. What people have named stands in the data alone, as JSON without a ``<``.
    """
    data = f'<script type="application/json" id="page">{page_json(page)}</script>'
    parts = {"title": html.escape(str(page["title"])), "data": data, **_assets()}
    # All places at once: what stands in one of them is no place.
    return _PLACE.sub(lambda place: parts[place[1]], _template())


def page_json(page: Mapping[str, Any]) -> str:
    """Return what a page shows as JSON that may stand in HTML."""
    return to_json(page).replace("<", "\\u003c")


def page_in(file: Path) -> dict[str, Any]:
    """Return what a page that was written shows; nothing where there is none, or a person has changed it."""
    try:
        found = _DATA.search(read_text(file))
        content = from_json(found[1]) if found else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@functools.cache
def _template() -> str:
    return _asset("page.html")


@functools.cache
def _assets() -> dict[str, str]:
    """Return the inline styles and scripts, and the policy that admits them and nothing else."""
    styles, scripts = [_asset(name) for name in STYLES], [_asset(name) for name in SCRIPTS]
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(map(_digest, scripts)),
        "style-src": " ".join(map(_digest, styles)),
        "img-src": "data:",
        "connect-src": "'self'",  # what `report --serve` answers; a page from disk asks nobody
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return {
        "csp": "; ".join(f"{name} {value}" for name, value in rules.items()),
        "styles": "\n".join(f"<style>{text}</style>" for text in styles),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
    }


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (files("trainauto.reporting.dashboard") / "assets" / name).read_text(encoding="utf-8")
