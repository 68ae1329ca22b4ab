"""Experiment trackers of a run, from options; what cannot be had is found before anything is built."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.options.source_locations import KeyPath, printable
from trainauto.options.tracker_options import TrackerOptions
from trainauto.reporting.sinks import Sink
from trainauto.storage.run_directory import RunDirectory

LOGGER = "logger"
"""Section that they are in."""


def check_trackers(loaded: LoadedOptions[FileOptions], options: TrackerOptions) -> None:
    """Refuse trackers whose packages are not installed, or that would prompt for input.

    Raises:
        InputError: says what is missing, and how to get it.
    """
    problems = [_located(loaded, *finding) for finding in _findings(options)]
    if problems:
        raise InputError(problems)


def tracker_sinks(options: TrackerOptions, directory: RunDirectory, root: Path, name: str, every: int) -> list[Sink]:
    """Return the sink that tells the trackers of a file; none where it has none.

    Args:
        options: of the file.
        directory: of the run, with its options and what trackers call it.
        root: folder of runs, for what stays on this machine.
        name: of the run.
        every: steps between points.
    """
    if not _wanted(options):
        return []
    from trainauto.reporting.trackers.mlflow_tracker import MlflowTracker
    from trainauto.reporting.trackers.sink import Trackers
    from trainauto.reporting.trackers.tracker_ids import TrackerIds
    from trainauto.reporting.trackers.trackio_tracker import TrackioTracker
    from trainauto.reporting.trackers.wandb_tracker import WandbTracker

    ids = TrackerIds(directory.trackers)
    wandb, mlflow, trackio = options.wandb, options.mlflow, options.trackio
    trackers = [
        *(
            [WandbTracker(wandb.project, root, ids, is_online=wandb.mode == "online")]
            if wandb is not None and wandb.project is not None
            else []
        ),
        *([MlflowTracker(mlflow.experiment, mlflow.tracking_uri, root, ids)] if mlflow is not None else []),
        *([TrackioTracker(trackio.project, trackio.server, ids)] if trackio is not None else []),
    ]
    return [Trackers(trackers, directory, ids, f"{name} {directory.path.name}", every)]


def tracker_words(options: TrackerOptions, root: Path) -> str:
    """Return the trackers of the run, and where they send it; empty without any."""
    return ", ".join(_words(options, root))


def _words(options: TrackerOptions, root: Path) -> Iterator[str]:
    wandb, mlflow, trackio = options.wandb, options.mlflow, options.trackio
    if wandb is not None and wandb.project is not None:
        yield "wandb online" if wandb.mode == "online" else f"wandb offline in {root / 'wandb'}"
    if mlflow is not None:
        # An address may hold a password.
        yield "mlflow on its server" if mlflow.tracking_uri else f"mlflow in {root / 'mlflow.db'}"
    if trackio is not None:
        yield "trackio on its server" if trackio.server else "trackio on this machine"


def _wanted(options: TrackerOptions) -> list[str]:
    wandb = options.wandb is not None and options.wandb.project is not None
    switches = {"wandb": wandb, "mlflow": options.mlflow is not None, "trackio": options.trackio is not None}
    return [name for name, is_on in switches.items() if is_on]


def _is_installed(package: str) -> bool:
    # A folder of this name in the working directory, such as wandb makes, counts as a package that comes from nowhere.
    found = find_spec(package)
    return found is not None and found.origin is not None


Found = tuple[KeyPath, str, str]
"""Which option, what is wrong, and what to do."""


def _findings(options: TrackerOptions) -> Iterator[Found]:
    lacking = [name for name in _wanted(options) if not _is_installed(name)]
    for name in lacking:
        yield (LOGGER, name), f"{name} is not installed", f"pip install 'trainauto[{name}]', or remove it."
    wandb, mlflow, trackio = options.wandb, options.mlflow, options.trackio
    if wandb is not None and wandb.project is not None and wandb.mode == "online" and "wandb" not in lacking:
        yield from _login_findings()
    uri = mlflow.tracking_uri if mlflow is not None else None
    if uri is not None and "://" not in uri and not uri.startswith("databricks"):
        advice = "Write http://HOST:PORT of a server, or sqlite:///FILE.db; MLflow keeps nothing in folders any more."
        yield (LOGGER, "mlflow", "tracking_uri"), f"{printable(uri)} is no address", advice
    server = trackio.server if trackio is not None else None
    if server is not None and not server.startswith(("http://", "https://")) and server.count("/") != 1:
        advice = "Write USER/NAME of a Space, or http://HOST:PORT of a server."
        yield (LOGGER, "trackio", "server"), f"{printable(server)} is no place that trackio knows", advice


def _login_findings() -> Iterator[Found]:
    """Yield that no user is logged in, where wandb would ask for a key in the middle of a run."""
    import wandb

    if not wandb.login(prompt=False, verify=False):
        advice = "Run `wandb login` first, set WANDB_API_KEY, or write mode: offline."
        yield (LOGGER, "wandb", "mode"), "no user is logged in to wandb here", advice


def _located(loaded: LoadedOptions[FileOptions], path: KeyPath, message: str, advice: str) -> Problem:
    return Problem(message, loaded.places.of_value(path), advice)
