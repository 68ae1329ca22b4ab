"""The options of a run, read back from its directory."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text
from trainauto.core.json_text import from_json
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.run_options import FileOptions
from trainauto.storage.run_directory import RunDirectory

# Nothing here may import torch at the top: commands set the environment first.


def options_of(
    directory: RunDirectory, step: int | None = None, overrides: Sequence[str] = ()
) -> LoadedOptions[FileOptions]:
    """Return the options that a run was given, its plugins to be looked for where it found them.

    Args:
        directory: the run.
        step: at which they held; ``None`` takes the newest.
        overrides: items of ``--force_yml``.

    Raises:
        InputError: there are none, or they cannot be used.
    """
    given, origin = directory.given, directory.origin
    if step is not None:
        given, origin = directory.kept_at(given, step), directory.kept_at(origin, step)
    if not given.is_file():
        what = f"{directory.path} has no {given.name}"
        advice = "It was written by an older version: name its option file and weights with -opt and --weights."
        raise InputError(Problem(what, advice=advice))
    folder = Path.cwd()  # also where the run comes from another machine
    with suppress(OSError, ValueError, KeyError, TypeError):
        recorded = Path(from_json(read_text(origin))["folder"])
        folder = recorded if recorded.is_dir() else folder
    return load_options(given, overrides, folder)
