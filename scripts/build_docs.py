"""Builds the documentation as a site in build/site/html, strictly: nothing that is wrong stays quiet.

python3 scripts/build_docs.py            builds it; exit code 1 for a broken link or anchor, a page that nav lacks
python3 scripts/build_docs.py --serve    shows it with its search, and builds what changes
python3 scripts/build_docs.py --here     with this Python's own packages instead of .venv

Pages are docs/ and the README; their order stands in zensical.toml.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

from environment import ROOT, prepare_or_exit
from processes import exit_on_sigterm
from site_pages import FILES, Site, lay_out, source_of

BUILD = ROOT / "build" / "site"
CONFIG = "zensical.toml"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
PLACE = re.compile(r"\[ (\S+):(\d+):(\d+) \]")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}
OUTSIDE = re.compile(r"^(?:[a-z]+:)?//", re.IGNORECASE)
STYLE = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^'\")]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)")
POLL_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, or build and serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--serve", action="store_true", help="serve it on this machine, and rebuild what changes")
    parser.add_argument("--here", action="store_true", help="use the running Python's environment")
    parsed = parser.parse_args(arguments)
    exit_on_sigterm()
    environment = prepare_or_exit(["docs"], here=parsed.here)
    python, env = str(environment.python), environment.variables
    if parsed.serve:
        return serve(ROOT, BUILD, python, env)
    faults = build(ROOT, BUILD, python, env)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        print(f"the site was not built: {len(faults)} faults", file=sys.stderr)
        return 1
    print(f"{sum(1 for _ in (BUILD / 'html').rglob('*.html'))} pages in {BUILD / 'html'}; open index.html")
    return 0


def build(root: Path, folder: Path, python: str, env: Mapping[str, str]) -> list[str]:
    """Build the site into ``folder``/html; return what is wrong, a line each, with file, line and column."""
    broken = prepare(root, folder)
    shutil.rmtree(folder / "html", ignore_errors=True)
    missing = navigation_faults(tomllib.loads((root / CONFIG).read_text("utf-8")), folder / "pages")
    command = [python, "-m", "zensical", "build", "--strict", "--clean"]
    ended = subprocess.run(
        command, cwd=folder, env=tool_environment(root, env), capture_output=True, text=True, encoding="utf-8",
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    said = list(said_faults(ended.stdout + ended.stderr))
    if ended.returncode and not said:
        said.append(COLOUR.sub("", ended.stdout + ended.stderr).strip())
    return [*broken, *missing, *said] or outside_resources(folder / "html")


def prepare(root: Path, folder: Path) -> list[str]:
    """Lay pages and configuration out in ``folder``; return links to files that are not there."""
    site = Site(root)
    lay_out(site.gather(), folder / "pages")
    if not (folder / CONFIG).is_file() or (folder / CONFIG).read_bytes() != (root / CONFIG).read_bytes():
        shutil.copyfile(root / CONFIG, folder / CONFIG)
    return site.broken


def tool_environment(root: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Variables under which docstrings are read from this repository, and its extension for them is found."""
    paths = [str(root), str(root / "scripts"), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}


def said_faults(output: str) -> Iterator[str]:
    """Yield what the tool complained of as ``file:line:column: what``, of files of the repository."""
    what = ""
    for line in COLOUR.sub("", output).splitlines():
        if line.startswith(("Warning: ", "Error: ")):
            what = line.partition(": ")[2]
        elif what and (place := PLACE.search(line)):
            yield f"{source_of(place[1])}:{place[2]}:{place[3]}: {what}"
            what = ""
        elif what:
            yield what
            what = ""


def navigation_faults(config: Mapping[str, object], pages: Path) -> Iterator[str]:
    """Yield pages that the navigation lacks or names twice, and names in it that are no pages."""
    project = config["project"]
    listed = list(navigation_pages(project["nav"]))  # type: ignore[index]
    known = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    for page in sorted(known - set(listed)):
        if not page.startswith(f"{FILES}/"):
            yield f"{source_of(page)}: is missing from nav in {CONFIG}"
    for page in sorted(set(listed) - known):
        yield f"{CONFIG}: nav names {page}, which is no page"
    for page in sorted({page for page in listed if listed.count(page) > 1}):
        yield f"{CONFIG}: nav names {page} more than once"


def navigation_pages(entry: object) -> Iterator[str]:
    """Yield the pages of a navigation in their order."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for part in entry.values():
            yield from navigation_pages(part)
    elif isinstance(entry, list):
        for part in entry:
            yield from navigation_pages(part)


def outside_resources(html: Path) -> list[str]:
    """Return what a browser would load from another host to show a page: scripts, fonts, styles, pictures."""
    faults = []
    for path in sorted(html.rglob("*")):
        if path.suffix == ".html":
            reader = Resources()
            reader.feed(path.read_text("utf-8"))
            addresses = reader.outside
        elif path.suffix == ".css":
            addresses = ["".join(match) for match in STYLE.findall(path.read_text("utf-8"))]
        else:
            continue
        faults += [f"{path.relative_to(html).as_posix()}: loads {address} from outside" for address in addresses]
    return faults


class Resources(HTMLParser):
    """Collects the addresses of other hosts that a page loads when it is opened; links to follow are none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one tag."""
        given = {name: value or "" for name, value in attrs}
        address = given.get(LOADED.get(tag, ""), "")
        if tag == "link" and given.get("rel") not in NOT_LOADED:
            address = given.get("href", "")
        self.outside += [address] if OUTSIDE.match(address) else []
        self.outside += ["".join(match) for match in STYLE.findall(given.get("style", ""))]

    def handle_data(self, data: str) -> None:
        """Look into styles that stand in the page."""
        self.outside += ["".join(match) for match in STYLE.findall(data)] if "url(" in data or "@import" in data else []


def serve(root: Path, folder: Path, python: str, env: Mapping[str, str]) -> int:
    """Serve the site until Ctrl-C; pages that change are laid out anew, and the tool rebuilds them."""
    prepare(root, folder)
    command = [python, "-m", "zensical", "serve"]
    with subprocess.Popen(command, cwd=folder, env=tool_environment(root, env)) as server:
        try:
            while server.poll() is None:
                time.sleep(POLL_S)
                prepare(root, folder)
        except KeyboardInterrupt:
            return 130
        finally:
            server.terminate()
    return server.returncode


if __name__ == "__main__":
    sys.exit(main())
