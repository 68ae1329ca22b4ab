"""Components from outside, registered before anything is built."""

from pathlib import Path

from trainauto.builders.components import locate_errors
from trainauto.core.plugins import import_installed_plugins, import_plugin
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions


def load_plugins(loaded: LoadedOptions[FileOptions]) -> None:
    """Import installed plugins and those the option file names.

    Raises:
        InputError: one is missing or fails to import.
    """
    import_installed_plugins()
    for position, name in enumerate(loaded.options.plugins):
        with locate_errors(loaded, ("plugins", position)):
            import_plugin(name, [loaded.folder or loaded.path.resolve().parent, Path.cwd()])
