"""What ``report --html`` and ``report --serve`` do: the page of a run or of several, as a file or served."""

import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from trainauto.commands.common_arguments import check_free
from trainauto.core.errors import InputError, Problem
from trainauto.core.words import visible
from trainauto.reporting.dashboard.live_page import LivePage
from trainauto.reporting.dashboard.page_file import write_page
from trainauto.reporting.dashboard.server import PageServer
from trainauto.reporting.runs.comparison import find_runs
from trainauto.reporting.runs.listing import is_folder_of_runs
from trainauto.storage.run_directory import RunDirectory

COMPARISON = Path("comparison.html")
"""Where the page of several runs goes; that of one lies in its folder."""


def write_html(paths: Sequence[Path], file: Path | None, *, opens: bool) -> None:
    """Write the page of runs as their logs have them now, and say where it is.

    Args:
        paths: the runs.
        file: where to; ``None`` is dashboard.html in the folder of a run, or comparison.html here.
        opens: whether to show it in a browser.

    Raises:
        InputError: there is no run, a log cannot be read, or the file cannot be written.
    """
    runs = _runs(paths)
    file = file or (runs[0].dashboard if len(runs) == 1 else COMPARISON)
    check_free(file, overwrite=True, example="page.html")
    if file.exists() and not file.is_file():  # a device would be replaced by a file
        raise InputError(Problem(f"{visible(str(file))} is no file", advice="Name one that is, or a new one."))
    page, _ = LivePage(runs).page()
    try:
        write_page(file, page)
    except OSError as error:
        message = f"{visible(str(file))} cannot be written: {error.strerror or error}"
        raise InputError(Problem(message, advice="Name another file with --out.")) from error
    print(visible(str(file)))
    if opens:
        webbrowser.open(file.resolve().as_uri())


def _runs(paths: Sequence[Path]) -> list[RunDirectory]:
    if len(paths) == 1 and is_folder_of_runs(paths[0]):
        message = f"{visible(str(paths[0]))} has several runs: a page is of one, or of some that are named"
        raise InputError(Problem(message, advice=f"Look for one: python -m trainauto report {paths[0]}"))
    return find_runs(paths)


def serve(paths: Sequence[Path], port: int | None, *, opens: bool) -> None:
    """Serve the page of runs until the person stops it; the runs hear nothing of it.

    Args:
        paths: the runs.
        port: to listen at; ``None`` takes a free one.
        opens: whether to show it in a browser.

    Raises:
        InputError: there is no run, a log cannot be read, or the port is taken.
    """
    runs = _runs(paths)
    live = LivePage(runs)
    live.page()  # what is wrong with the runs is said here, not in a browser
    try:
        with PageServer(live, runs[0].whole.path if len(runs) == 1 else None, port) as server:
            shown = visible(", ".join(map(str, paths)))
            print(f"{server.address} shows {shown} as it is now.\nCtrl-C ends this, not the run.", flush=True)
            if opens:  # a browser of the terminal stays until it is left
                threading.Thread(target=webbrowser.open, args=[server.address], daemon=True).start()
            server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print("\nended; the run is left as it is")
