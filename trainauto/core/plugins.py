"""Components from outside the package: modules an option file names, and installed packages with an entry point."""

import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from trainauto.core.errors import InputError, Problem, nearest

ENTRY_POINT_GROUP = "trainauto.plugins"

OWN_SCRIPTS = ("train", "test")
"""Files of the repository's root, which are no plugins."""


def import_installed_plugins() -> list[str]:
    """Import every installed package that registers under the entry-point group; return their names.

    Raises:
        InputError: one of them fails to import.
    """
    points = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)
    for point in points:
        try:
            point.load()
        except Exception as error:
            advice = "Update or uninstall the package that brings it."
            raise InputError(_failure(f"installed plugin '{point.value}'", error, advice)) from error
    return [point.value for point in points]


def import_plugin(name: str, folders: Sequence[Path]) -> None:
    """Import a module found in one of ``folders``, else an installed one.

    The folder stays on the module search path, so that worker processes that start afresh find the module too.

    Raises:
        InputError: there is no such module, or it fails to import; the message names the line in it.
    """
    for folder in folders:
        if str(folder) not in sys.path:
            # At the end, so that a file of the user's never hides a module of a package; the plugin itself goes first.
            sys.path.append(str(folder))
    home = next((f for f in folders if (f / f"{name}.py").is_file() or (f / name / "__init__.py").is_file()), None)
    if home is not None:
        sys.path.insert(0, str(home))
    try:
        importlib.invalidate_caches()
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise InputError(_failure(f"plugin '{name}'", error, "Install what it needs.")) from error
        beside = [path.stem for folder in folders for path in folder.glob("*.py") if path.stem not in OWN_SCRIPTS]
        places = " or ".join(str(folder) for folder in folders)
        raise InputError(
            Problem(
                f"there is no plugin '{name}' in {places}, nor installed",
                advice=nearest(name, beside, "Save it beside the option file."),
            )
        ) from error
    except Exception as error:
        raise InputError(_failure(f"plugin '{name}'", error, "Mend it, or take it out of plugins.")) from error
    finally:
        if home is not None:
            sys.path.remove(str(home))


def _failure(plugin: str, error: Exception, advice: str) -> Problem:
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}:{error.lineno})"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return Problem(f"{plugin} failed to import: {type(error).__name__}: {error}{where}", advice=advice)
