"""The file of weights that an option file names: itself, or by the folder of a run that has trained it."""

from pathlib import Path
from typing import Literal

from trainauto.core.errors import InputError, Problem
from trainauto.engine.checkpoint import Checkpoints
from trainauto.storage.run_directory import RunDirectory


def named_weights(chosen: str, which: Literal["g", "d"]) -> Path:
    """Return the file of weights that is meant.

    Of a run, its best checkpoint is taken, or the latest where no validation has chosen one, and in it the averages
    where the run kept some.

    Args:
        chosen: a file, which need not be there; or the folder of a run, of an experiment for its newest run, or of one
            checkpoint.
        which: letter of the network in names of files.

    Raises:
        InputError: the folder is none of these, or has no such network.
    """
    path = Path(chosen).expanduser()
    if not path.is_dir():
        return path
    names = (f"net_{which}_ema.safetensors", f"net_{which}.safetensors")
    if found := _first_in(path, names):
        return found
    step, folder = Checkpoints(RunDirectory.find(path).checkpoints, keep=0).named("best")
    if found := _first_in(folder, names):
        return found
    message = f"{path} has no {names[-1]} in its checkpoint of step {step}"
    raise InputError(Problem(message, advice="Name a run that has trained such a network, or a file of weights."))


def _first_in(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)
