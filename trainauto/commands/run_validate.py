"""What ``python -m trainauto validate`` does: a dry run in a process of its own, reported in lines."""

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem, TrainautoError
from trainauto.core.files import nearest_folder
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.core.worker_process import WorkerDiedError, WorkerProcess
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.reporting.formatting import WIDTH, in_thousands, pairs_lines
from trainauto.reporting.step_stats import error_text

# Nothing here may import torch at the top: it is loaded by the child alone.

SERVER = "trainauto.commands.dry_run_worker"
BUILD_TIMEOUT_S = 1800.0
"""A look at every file of a large set on a network drive takes long."""
STEPS_TIMEOUT_S = 3600.0
TELL_EVERY_S = 15.0
"""Often enough to show that the command is running."""

Facts = dict[str, Any]
Pair = tuple[str, str]


class DryRunner:
    """The process of a dry run, and the folder that holds what it writes.

    Nothing stays: the run directory lies in a temporary folder, and so does a copy of what earlier runs learned.
    """

    def __init__(self, loaded: LoadedOptions[FileOptions]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="trainauto-validate-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        _copy_of_calibrations(folder / "cache")
        self._worker = WorkerProcess(SERVER, environment={"TRAINAUTO_CACHE": str(folder / "cache")})
        self._build = {
            "options": str(loaded.path),
            "overrides": list(loaded.overrides),
            "folder": str(folder / "experiments"),
        }

    def __enter__(self) -> "DryRunner":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._worker.end()
        self._folder.cleanup()

    def build(self) -> Facts:
        """Build the run; return what is known of it.

        Raises:
            InputError: it cannot be built.
            TrainautoError: building failed.
        """
        return self._asked(self._build, BUILD_TIMEOUT_S)

    def read(self) -> Facts:
        """Read some of the training set; return how long that took.

        Raises:
            InputError: an image cannot be decoded.
        """
        return self._asked({"read": True}, BUILD_TIMEOUT_S)

    def train(self, steps: int) -> Facts:
        """Train some steps, then validate; return what came of it.

        Raises:
            TrainautoError: as the run would fail.
        """
        return self._asked({"steps": steps}, STEPS_TIMEOUT_S)

    def _asked(self, request: Facts, timeout_s: float) -> Facts:
        try:
            answer = self._worker.request(request, timeout_s)
        except WorkerDiedError as error:
            advice = (
                "\n  The system kills processes when memory is short: set memory: budget."
                if "SIGKILL" in str(error)
                else ""
            )
            raise TrainautoError(f"the process of the dry run {error}{advice}") from None
        if "cannot" in answer:
            raise InputError(answer["cannot"]) if answer["exit_code"] == 2 else TrainautoError(answer["cannot"])
        return answer


def _copy_of_calibrations(cache: Path) -> None:
    """Let the dry run know what earlier runs learned, and keep what it learns to itself."""
    from trainauto.memory.cost.calibration import cache_folder

    calibrations = cache_folder() / "calibration"
    try:
        if calibrations.is_dir():
            shutil.copytree(calibrations, cache / "calibration")
    except (OSError, shutil.Error):
        return  # it learns anew, as a run that cannot read them


def check_experiments_root(loaded: LoadedOptions[FileOptions]) -> None:
    """See that run directories can be made; nothing stays.

    Raises:
        InputError: they cannot.
    """
    settings = loaded.options.settings
    reason = nearest_folder(settings.root)[1]
    if reason:
        with locate_errors(loaded, settings.root_key):
            raise InputError(Problem(f"the run directory cannot be made: {reason}", advice="Name another folder."))


@contextmanager
def tidy_when_terminated() -> Iterator[None]:
    """Let SIGTERM end this process as an error does: what is temporary is then removed."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def validate(loaded: LoadedOptions[FileOptions], steps: int, smaller: str) -> int:
    """Make a dry run and print its results; return the exit code.

    Args:
        loaded: the option file.
        steps: to train.
        smaller: options that make a step smaller, in words.

    Raises:
        InputError: the option file, or what it names, cannot be used.
        TrainautoError: the step failed as it would in the run.
    """
    with tidy_when_terminated(), DryRunner(loaded) as dry_runner:
        check_experiments_root(loaded)
        with _told_while("the run is being built"):
            built = dry_runner.build()
        _print(built_pairs(loaded, built))
        _print([("running", f"{counted(steps, 'step')}, then a validation ...")])
        with _told_while("steps and validation are running"):
            done = dry_runner.train(steps)
    _print(done_pairs(done, smaller))
    _print(_warnings([*built["warnings"], *done["warnings"]]))
    caches = loaded.options.caches
    beside = f", but decoded pixels in {' and '.join(caches)}" if caches else ""
    _print([("result", f"{loaded.options.name} can be trained; nothing of this was saved{beside}")])
    return 0


@contextmanager
def _told_while(words: str) -> Iterator[None]:
    """Say now and then that something is under way, and for how long."""
    is_over, start = threading.Event(), time.monotonic()

    def tell() -> None:
        while not is_over.wait(TELL_EVERY_S):
            _print([("", f"{words}, for {time.monotonic() - start:.0f} s")])

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _print(pairs: list[Pair]) -> None:
    for line in pairs_lines(pairs, _width()):
        print(line, flush=True)


def _width() -> int:
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, 120)


def _warnings(texts: list[str]) -> list[Pair]:
    return [("warning", text) for text in dict.fromkeys(texts)]


def built_pairs(loaded: LoadedOptions[FileOptions], built: Mapping[str, Any]) -> list[Pair]:
    """Return what is known before the first step."""
    plan = built["plan_text"]
    if plan != built["configured_plan_text"]:
        plan += f" (the file says {built['configured_plan_text']})"
    samples = ", ".join(f"{name} {number}" for name, number in built["samples"].items())
    return [
        ("options", f"{loaded.path}: no problem"),
        ("data", f"{samples}: every one was checked{_not_read(built['not_read'])}"),
        *([("smallest", f"image of {built['smallest_px']} px (of the input)")] if built["smallest_px"] else []),
        ("network", f"{built['network']}, {in_thousands(built['parameters'])} parameters"),
        ("device", f"{built['device']}, {built['precision']}, {counted(built['threads'], 'thread')}"),
        ("plan", plan),
        *((label, fact) for label, fact in built["facts"].items() if label not in ("curves", "trackers")),
        ("built in", f"{built['seconds']:.1f} s"),
    ]


def _not_read(kinds: Mapping[str, int]) -> str:
    """Return what is said of files of other kinds than samples are of."""
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"; files of other kinds, which are not read: {listed}" if kinds else ""


def done_pairs(done: Mapping[str, Any], smaller: str) -> list[Pair]:
    """Return what the steps gave, the validation, and what a controller would do next."""
    pairs = [pair for step in done["steps"] for pair in _step_pairs(step, done["limit_bytes"], smaller)]
    for validation in done["validations"]:
        scores = ", ".join(
            f"{name} {value:.4g}{_beside(validation, name)}" for name, value in validation["metrics"].items()
        )
        tiles = f", tiles of {validation['tile_px']} px" if validation["tile_px"] else ""
        peak = f", peak {size_text(validation['peak_bytes'])}" if validation["peak_bytes"] is not None else ""
        place = f"{validation['dataset']}/{validation['image']}" if validation["image"] else validation["dataset"]
        summary = f"{place} in {validation['seconds']:.2f} s{tiles}{peak}"
        pairs.append(("validation", f"{summary}: {scores}" if scores else summary))
    pairs.append(("checkpoint", f"{size_text(done['checkpoint_bytes'])}, written to a temporary folder"))
    return [*pairs, *(("controller", line) for line in done["decisions"])]


def _off_by(predicted_bytes: int | None, peak_bytes: int) -> str:
    if predicted_bytes is None:
        return ""
    return f"; predicted {size_text(predicted_bytes)}, off by {error_text(predicted_bytes, peak_bytes)}"


def _beside(validation: Mapping[str, Any], name: str) -> str:
    baseline = validation["baseline"].get(name)
    return "" if baseline is None else f" ({validation['baseline_name']} {baseline:.4g})"


def _step_pairs(step: Mapping[str, Any], limit_bytes: int | None, smaller: str) -> Iterator[Pair]:
    losses = ", ".join(f"{name} {value:.4g}" for name, value in step["losses"].items())
    norms = ", ".join(f"{value:.3g}" for value in step["grad_norms"].values())
    yield f"step {step['step']}", f"{losses}; gradient norm {norms}"
    yield "", f"{step['step_seconds']:.2f} s, waited {step['data_seconds']:.2f} s for data"
    if step["peak_bytes"] is not None:
        of = f" of {size_text(limit_bytes)}" if limit_bytes else ", all memory of the process"
        off_by = _off_by(step["predicted_bytes"], step["peak_bytes"])
        yield "memory", f"peak {size_text(step['peak_bytes'])}{of}{off_by}"
    if step["ooms"]:
        pieces = ", ".join(f"{name} in {counted(number, 'piece')}" for name, number in step["pieces"].items())
        message = f"{step['plan_text']} ran out of memory {counted(step['ooms'], 'time')}" + (
            f" and ran: {pieces}" if pieces else ""
        )
        yield "out of mem.", f"{message}. Take {smaller}, or a larger memory: budget."
