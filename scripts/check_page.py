"""Opens pages of runs as a person would and says what is wrong with them: headless Chromium, from disk, network off.

Looked at are 1280 and 390 px, light and dark: errors of the console and the policy, requests, empty canvases, width,
keyboard and mouse, faults that axe-core calls serious or critical, the time until everything is drawn, sizes.

python scripts/check_page.py experiments/quickstart_x4/current/dashboard.html
python scripts/check_page.py a.html b.html --screenshots build/screenshots --repeats 9

Needs Debian's chromium on the PATH, and npm, which installs axe-core under build/page_check/ once.
"""

import argparse
import base64
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devtools import Browser, BrowserError, Tab
from page_controls import control_faults, open_viewer

ROOT = Path(__file__).resolve().parent.parent
AXE = "axe-core@4.14.1"
BUILD = ROOT / "build/page_check"
SIZES = ((1280, 800), (390, 844))
THEMES = ("light", "dark")
LONGEST_OPENING_MS = 1000
LARGEST_BYTES, LARGEST_PICTURES_BYTES, MOST_PICTURES = 1_500_000, 1_000_000, 52
PICTURE = re.compile(rb"data:image/webp;base64,[A-Za-z0-9+/=]*")

READY = """new Promise((done, fail) => {
  const end = performance.now() + 20000;
  const look = () => {
    const { ready } = document.documentElement.dataset;
    if (ready !== undefined) done(Number(ready));
    else if (performance.now() > end) fail(new Error("page.js did not finish: no data-ready after 20 s"));
    else setTimeout(look, 5);
  };
  look();
})"""
BLANK_CANVASES = """[...document.querySelectorAll("canvas")].map((canvas, index) => {
  const { width, height } = canvas;
  if (!width || !height) return [index, 0];
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let drawn = 0;
  for (let at = 3; at < pixels.length; at += 4) drawn += pixels[at] > 0;
  return [index, drawn];
})"""
TOO_WIDE = """(() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return null;
  const far = [...document.querySelectorAll("body *")].find((one) => one.getBoundingClientRect().right > room + 1);
  const cause = far ? `, by <${far.tagName} class="${far.className}">` : "";
  return `${document.documentElement.scrollWidth} px on ${room} px` + cause;
})()"""
RUN_AXE = """axe.run(document, {preload: false, resultTypes: ["violations"]}).then(({violations}) => violations
  .filter(({impact}) => impact === "serious" || impact === "critical")
  .map(({id, impact, help, nodes}) =>
    `${impact}, ${id}: ${help}; ${nodes.length} times, first ${nodes[0].html.slice(0, 120)}`))"""


@dataclass
class Look:
    """What was seen of a page in one form."""

    page: Path
    form: str
    name: str
    opened_ms: list[float] = field(default_factory=list)
    requests: int = 0
    canvases: int = 0
    faults: list[str] = field(default_factory=list)

    def row(self) -> list[str]:
        """Cells of the table."""
        opened = f"{statistics.median(self.opened_ms):.0f}" if self.opened_ms else "–"
        return [self.page.name[:40], self.form, opened, str(self.requests), str(self.canvases), str(len(self.faults))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at every page in every form; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, help="pages, as files")
    parser.add_argument("--screenshots", type=Path, help="folder for a picture of each page in each form")
    parser.add_argument("--repeats", type=int, default=5, help="openings of which the median counts (default 5)")
    chosen = parser.parse_args(arguments)
    missing = [page for page in chosen.pages if not page.is_file()]
    if missing or chosen.repeats < 1:
        parser.error(f"no such file: {missing[0]}" if missing else "--repeats is at least 1")
    try:
        axe = axe_source()
        with Browser() as browser:
            looks = [look for page in chosen.pages for look in looks_at(browser, page, axe, chosen)]
    except BrowserError as error:
        print(f"check_page: {error}", file=sys.stderr)
        return 1
    return report(looks)


def axe_source() -> str:
    """Source of axe-core, installed by npm where it is not there yet."""
    source = BUILD / "node_modules/axe-core/axe.min.js"
    version = BUILD / "installed.txt"
    if not source.exists() or not version.exists() or version.read_text() != AXE:
        npm = shutil.which("npm")
        if npm is None:
            raise BrowserError(
                "no npm on the PATH, which installs axe-core; install Debian's package: apt-get install npm"
            )
        BUILD.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(BUILD), AXE], check=False
        )
        if done.returncode:
            raise BrowserError(f"npm could not install {AXE}; what it said stands above")
        version.write_text(AXE)
    return source.read_text(encoding="utf-8")


def looks_at(browser: Browser, page: Path, axe: str, chosen: argparse.Namespace) -> Iterator[Look]:
    """Look at a page in every form, and once at its file."""
    faults = size_faults(page.read_bytes())
    for width_px, height_px in SIZES:
        for theme in THEMES:
            name = f"{page.parent.name}_{page.stem}_{width_px}_{theme}"
            look = Look(page, f"{width_px} px, {theme}", name, faults=faults)
            faults = []
            tab = Tab(browser, width_px, height_px, theme)
            try:
                examine(tab, look, chosen.repeats)
                if chosen.screenshots:
                    photograph(tab, chosen.screenshots / f"{look.name}.png")
                look.faults += control_faults(tab)
                tab.value(axe + "; 0")  # last: now a table is open as well
                look.faults += [f"axe: {fault}" for fault in tab.value(RUN_AXE)]
                look.faults += enlarged_faults(tab, look, chosen.screenshots)
            except BrowserError as error:
                look.faults += [str(error).partition("\n")[0], *console_faults(tab)]
            tab.close()
            yield look


def examine(tab: Tab, look: Look, repeats: int) -> None:
    """Open the page as often as asked and look at it the last time."""
    for _ in range(repeats):
        tab.open(look.page)
        look.opened_ms.append(tab.value(READY))
    opened_ms = statistics.median(look.opened_ms)
    if opened_ms > LONGEST_OPENING_MS:
        look.faults.append(f"opens in {opened_ms:.0f} ms, more than {LONGEST_OPENING_MS}: fewer points or charts")
    tab.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    requests = [event["params"]["request"]["url"] for event in events_of(tab, "Network.requestWillBeSent")]
    requests = [url for url in requests if not url.startswith("data:")]
    look.requests = len(requests)
    if look.requests != 1:
        look.faults.append(f"{look.requests} requests instead of one: {', '.join(requests[:4])}")
    look.faults += console_faults(tab)
    canvases = tab.value(BLANK_CANVASES)
    look.canvases = len(canvases)
    look.faults += [
        f"canvas {number} is empty; did its chart get a width and values?" for number, drawn in canvases if drawn < 100
    ]
    if too_wide := tab.value(TOO_WIDE):
        look.faults.append(f"the page scrolls sideways: {too_wide}; let it wrap or scroll by itself")


def enlarged_faults(tab: Tab, look: Look, screenshots: Path | None) -> Iterator[str]:
    """Look at an enlarged picture, where the page has any."""
    if not tab.value("document.querySelector('.crop') !== null"):
        return
    open_viewer(tab)
    if screenshots:
        photograph(tab, screenshots / f"{look.name}_enlarged.png", whole=False)
    if tab.value("document.querySelector('dialog[open]')?.scrollWidth > innerWidth"):
        yield "the enlarged view scrolls sideways"
    yield from (f"axe, enlarged: {fault}" for fault in tab.value(RUN_AXE))


def events_of(tab: Tab, method: str) -> list[dict]:
    """Events of the page since it was opened."""
    return [
        event for event in tab.browser.events if event["method"] == method and event.get("sessionId") == tab.session
    ]


def console_faults(tab: Tab) -> Iterator[str]:
    """Errors and warnings of the console, of scripts, of the policy."""
    for event in events_of(tab, "Runtime.exceptionThrown"):
        details = event["params"]["exceptionDetails"]
        yield f"script failed: {details.get('exception', {}).get('description', details['text'])}"
    for event in events_of(tab, "Runtime.consoleAPICalled"):
        if event["params"]["type"] in ("error", "warning", "assert"):
            yield f"console: {' '.join(str(argument.get('value')) for argument in event['params']['args'])}"
    for event in events_of(tab, "Log.entryAdded"):
        entry = event["params"]["entry"]
        if entry["level"] in ("error", "warning"):
            yield f"browser: {entry['text'][:300]}"


def size_faults(content: bytes) -> list[str]:
    """What of the file is larger than a page may be."""
    pictures = PICTURE.findall(content)
    pictures_bytes = sum(map(len, pictures))
    rest = len(content) - pictures_bytes
    faults = []
    if rest > LARGEST_BYTES:
        faults.append(
            f"{rest:,} bytes without pictures, more than {LARGEST_BYTES:,}: fewer points a chart, fewer digits"
        )
    if pictures_bytes > LARGEST_PICTURES_BYTES:
        faults.append(
            f"{pictures_bytes:,} bytes of pictures, more than {LARGEST_PICTURES_BYTES:,}: smaller or fewer ones"
        )
    if len(pictures) > MOST_PICTURES:
        faults.append(f"{len(pictures)} pictures, more than {MOST_PICTURES}")
    return faults


def photograph(tab: Tab, path: Path, *, whole: bool = True) -> None:
    """Write a picture of the whole page, or of what the window shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = tab.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
    path.write_bytes(base64.b64decode(answer["data"]))


def report(looks: Sequence[Look]) -> int:
    """Print a table and all faults."""
    head = ["page", "form", "opened ms", "requests", "canvases", "faults"]
    rows = [head, *(look.row() for look in looks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) if at < 2 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
    for look in looks:
        for fault in look.faults:
            print(f"{look.page} ({look.form}): {fault}")
    faults = sum(len(look.faults) for look in looks)
    print(f"check_page: {len(looks)} looks, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
