"""The documentation as a site: it builds, strictly, and loads nothing from other hosts."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any

import build_docs
import pytest

ROOT = Path(__file__).parents[3]
Write = Callable[[str, str], None]

PUBLIC = {
    "trainauto": "trainauto.md",
    "trainauto.huggingface": "trainers.md",
    "trainauto.multitask": "multitask.md",
    "trainauto.tasks.text": "texts.md",
}
"""Packages that users import names from, and the page of each."""


FOUND_FIRST = {
    "CUDA out of memory": "out_of_memory.html",
    "batch size": "choosing.html#batch-size",
    "resume": "runs.html",
    "NaN": "choosing.html#loss-is-nan-diverges-or-does-not-fall",
}
"""What people search for, and the page or section that the search of the site must name first."""

BROWSER = """
const [worker, index, ...queries] = process.argv.slice(1), fs = require("fs");
let answered;
globalThis.self = {postMessage: message => answered(message)};
require("vm").runInThisContext(fs.readFileSync(worker, "utf8"));
const ask = message => new Promise(resolve => { answered = resolve; self.onmessage({data: message}); });
(async () => {
  const data = JSON.parse(fs.readFileSync(index, "utf8"));
  await ask({type: 0, data});
  for (const input of queries) console.log(data.items[(await ask({type: 2, data: {input}})).data.items[0].id].location);
})();
"""
"""Asks the site's own search, a script that browsers run beside the page."""


def built(root: Path, folder: Path) -> list[str]:
    return build_docs.build(root, folder, sys.executable, os.environ)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository."""
    folder = tmp_path_factory.mktemp("site")
    assert built(ROOT, folder) == []
    return folder / "html"


def test_every_page_of_the_navigation_is_built_and_linked(site: Path) -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    pages = {re.sub(r"README\.md$", "index.md", page).removesuffix(".md") for page in build_docs.navigation_pages(nav)}
    assert len(pages) > 60
    assert all((site / f"{page}.html").is_file() for page in pages)
    home = (site / "index.html").read_text("utf-8")
    assert 'href="memory.html"' in home
    assert ">docs/memory.md<" not in home, "links that are called as their file have the page's title"
    # A file that a page links to is there, whole, and so is what the README of the examples links to.
    shown = re.sub(r"<[^>]+>", "", (site / "files/examples/gan.py.html").read_text("utf-8"))
    assert unescape(shown).count((ROOT / "examples/gan.py").read_text("utf-8").rstrip()) == 1


def test_names_of_the_packages_stand_in_the_reference(site: Path) -> None:
    reference = {page: (site / "api" / page).with_suffix(".html").read_text("utf-8") for page in PUBLIC.values()}
    for package, page in PUBLIC.items():
        module = import_module(package)
        names = {name for name in module.__all__ if not name.startswith("__")}
        shown = set(re.findall(r'<h3 id="[\w.]+\.(\w+)"', reference[page]))
        elsewhere = {name for name in names - shown if f".{name}" in reference["trainauto.md"]}
        assert names - shown == elsewhere, f"{package}: missing in docs/api/{page}"
    loop = re.sub(r"<[^>]+>", "", reference["trainauto.md"])
    assert "with loop:" in loop, "examples of docstrings are there"
    assert not re.search(r":(?:class|meth|func|attr):", loop), "roles are read as what they name"


def test_what_people_search_for_is_found_first_by_titles(site: Path) -> None:
    """As the search ranks: words in a title, the nearer to its beginning the better, then words in the navigation."""
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    assert len(items) > 1000

    def rank(item: dict[str, Any], words: list[str]) -> tuple[int, int]:
        title = re.findall(r"\w+", item["title"].lower())
        places = [place for place in range(len(title)) if title[place : place + len(words)] == words]
        named = re.findall(r"\w+", " ".join(item["path"]).lower())
        return min(places, default=len(items)), -len({*words} & {*named})

    found = {query: min(items, key=lambda item: rank(item, query.lower().split())) for query in FOUND_FIRST}
    assert {query: item["location"] for query, item in found.items()} == FOUND_FIRST


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the site's search in Node.js")
def test_what_people_search_for_is_found_first_by_the_search_of_the_site(site: Path) -> None:
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    command = ["node", "-e", BROWSER, str(worker), str(site / "search.json"), *FOUND_FIRST]
    ended = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert dict(zip(FOUND_FIRST, ended.stdout.split(), strict=True)) == FOUND_FIRST


def planted_faults() -> Iterator[tuple[str, str]]:
    nav = 'nav = ["index.md", "a.md", "a.md", "gone.md"]'
    yield "zensical.toml", f'[project]\nsite_name = "x"\ndocs_dir = "pages"\nsite_dir = "html"\n{nav}\n'
    yield "README.md", "# Home\n\nSee [a](docs/a.md),\nand [nothing](docs/nothing.md).\n"
    yield (
        "docs/a.md",
        "# A\n\n```text\n[in code](no.md)\n```\n\nSee [no heading](#none) and [the\nhome](../README.md#none).\n",
    )
    yield "docs/b.md", "# B\n\n[out](../outside.py) [beyond](../../x.md)\n"
    yield "outside.py", "print()\n"


def test_whatever_is_wrong_fails_the_build_and_is_named(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "site"
    for name, text in planted_faults():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert sorted(built(root, folder)) == [
        "README.md:4:5: there is no docs/nothing.md",
        "docs/a.md:7:19: anchor does not exist",
        "docs/a.md:8:16: anchor does not exist",
        "docs/b.md: is missing from nav in zensical.toml",
        "docs/b.md:3:22: there is no ../../x.md",
        "zensical.toml: nav names a.md more than once",
        "zensical.toml: nav names gone.md, which is no page",
    ]
    assert "print()" in (folder / "pages/files/outside.py.md").read_text()


def test_what_comes_from_another_host_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<link rel="canonical" href="https://a/x"><a href="https://b/">b</a><script src="//c/c.js"></script>'
        '<link rel="stylesheet" href="https://fonts.d/e"><img src="images/own.png"><style>@import "https://f/g"</style>'
        "<p style=\"background: url('https://h/i.png')\">url(https in words)</p>"
    )
    (tmp_path / "style.css").write_text("@font-face{src:url(https://j/k.woff2)} a{background:url(own.svg)}")
    assert build_docs.outside_resources(tmp_path) == [
        "page.html: loads //c/c.js from outside",
        "page.html: loads https://fonts.d/e from outside",
        "page.html: loads https://f/g from outside",
        "page.html: loads https://h/i.png from outside",
        "style.css: loads https://j/k.woff2 from outside",
    ]
