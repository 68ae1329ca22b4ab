"""The file of a page: nothing in it is anything but text, and nothing is loaded from elsewhere (D23)."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from trainauto.reporting.dashboard.page_file import page_in, page_json, page_text, write_page

HOSTILE = [
    "<script>alert(1)</script>",
    "]]>",
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "{{scripts}}",
    "../..",
    "é😀",
]


def a_page(**changes: Any) -> dict[str, Any]:
    return {"title": "run", "tiles": [], "sections": [], **changes}


class Elements(HTMLParser):
    """Collects start tags, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, str]] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag in ("script", "style"):
            self.inline.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.inline[-1] = (self._open, self.inline[-1][1] + data)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    shown = a_page(title=text, tiles=[{"label": text}])
    page, plain = Elements(page_text(shown)), Elements(page_text(a_page()))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    data = [content for _, content in page.inline if content.startswith("{")]
    assert [json.loads(one) for one in data] == [shown]


def test_nothing_is_loaded_and_nothing_else_may_run() -> None:
    text = page_text(a_page())
    page = Elements(text)
    (policy,) = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in str(policy)
    for tag, content in page.inline:
        if content.startswith("{"):
            continue
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules[f"{tag}-src"].split()
    for _, attrs in page.tags:
        assert not [name for name in attrs if name.startswith("on") or name in ("style", "src")]
        assert not str(attrs.get("href", "")).startswith(("http", "//"))
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:)", text.split("<script", 1)[0])


def test_a_page_is_read_back(tmp_path: Path) -> None:
    page = a_page(sections=[{"id": "a", "blocks": [{"y": [1.5, None], "text": "<b> \u2028"}]}])
    write_page(tmp_path / "dashboard.html", page)
    assert page_in(tmp_path / "dashboard.html") == page
    assert page_in(tmp_path / "none.html") == {}
    (tmp_path / "dashboard.html").write_text("<p>edited")
    assert page_in(tmp_path / "dashboard.html") == {}


def test_data_have_no_bracket_that_opens_a_tag() -> None:
    assert "<" not in page_json(a_page(title="<a>"))
    assert json.loads(page_json({"x": float("nan")})) == {"x": "NaN"}
