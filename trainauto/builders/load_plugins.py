"""Components from outside, registered before anything is built."""

from trainauto.options.load import LoadedOptions, plugin_folders
from trainauto.options.run_options import FileOptions
from trainauto.options.tasks import import_plugins


def load_plugins(loaded: LoadedOptions[FileOptions]) -> None:
    """Import installed plugins and those the option file names.

    Raises:
        InputError: one is missing or fails to import.
    """
    import_plugins(loaded.options.plugins, loaded.places, plugin_folders(loaded.path, loaded.folder))
