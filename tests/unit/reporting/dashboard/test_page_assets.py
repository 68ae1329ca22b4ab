"""The browser side of a run's page as far as it can be judged without a browser; scripts/check_page.py has one."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from tests.unit.reporting.dashboard import sample_pages
from trainauto.reporting.dashboard import page_file
from trainauto.reporting.dashboard.page_file import SCRIPTS, STYLES, page_text

ASSETS = Path(page_file.__file__).parent / "assets"

LARGEST_BYTES = 1_500_000
LONGEST_SCRIPT = 350  # lines
LARGEST_ASSETS_BYTES = 140_000
UPLOT_SHA256 = {  # of version 1.6.32, as published
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.fixture(scope="module", params=sorted(sample_pages.SAMPLES))
def sample(request: pytest.FixtureRequest) -> tuple[dict, str]:
    """A page as data and as a file."""
    page = sample_pages.SAMPLES[request.param]()
    return page, page_text(page)


def test_data_arrive_as_they_were_and_end_no_script(sample):
    page, text = sample
    (data,) = re.findall(r'<script type="application/json" id="page">(.*?)</script>', text, re.DOTALL)
    assert "<" not in data
    assert json.loads(data) == page


def test_page_stays_below_its_limit(sample):
    _page, text = sample
    without_pictures = re.sub(r"data:image/webp;base64,[A-Za-z0-9+/=]*", "", text)
    assert len(without_pictures.encode()) < LARGEST_BYTES


def test_assets_are_small_and_files_to_be_read():
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < LARGEST_ASSETS_BYTES
    own = [path for path in ASSETS.glob("*.js") if not path.name.startswith("uPlot")]
    assert {path.name for path in own} | set(UPLOT_SHA256) == {*SCRIPTS, STYLES[0]}
    for path in own:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_SCRIPT, path.name


def test_uplot_is_the_published_one_with_its_licence():
    for name, digest in UPLOT_SHA256.items():
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == digest
    assert "Permission is hereby granted, free of charge" in (ASSETS / "uPlot.LICENSE.txt").read_text(encoding="utf-8")


MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc")
ADDRESS = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[\w-]+\.[\w.]+")


def test_nothing_is_made_from_markup_and_nothing_is_loaded():
    for name in (*SCRIPTS, *STYLES, "page.html"):
        text = (ASSETS / name).read_text(encoding="utf-8")
        assert not MARKUP.search(text), name
        assert "</script" not in text.lower() or name == "page.html"
        if not name.startswith("uPlot"):  # its banner names its site
            assert not ADDRESS.search(text), name
    assert " style=" not in (ASSETS / "page.html").read_text(encoding="utf-8")


def themes() -> dict[str, dict[str, str]]:
    """Colours of both themes by name, as the style sheet gives them."""
    light, dark = re.findall(r":root \{(.*?)\}", (ASSETS / "page.css").read_text(encoding="utf-8"), re.DOTALL)
    colours = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in (light, dark)]
    return dict(zip(("light", "dark"), colours, strict=True))


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2 from 0 to 1."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2.2, 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_and_texts_stand_out(theme):
    colours = themes()[theme]
    assert set(colours) == set(themes()["light"])
    lines = [name for name in colours if name.startswith("series-")]
    texts = [
        "text",
        "muted",
        "accent",
        "good",
        "warn",
        "bad",
        "neutral",
        *(name for name in colours if name.startswith("mark-")),
    ]
    assert len(lines) == 8
    faint = [name for name in lines if contrast(colours[name], colours["card"]) < 3]
    grounds = ("card", "page", "hover")
    faint += [
        f"{name} on {ground}" for name in texts for ground in grounds if contrast(colours[name], colours[ground]) < 4.5
    ]
    assert not faint
