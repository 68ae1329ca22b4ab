"""Option files as commands read them: all that is wrong with one is told at once."""

from collections.abc import Sequence
from pathlib import Path

from trainauto.core.errors import InputError
from trainauto.forecast.task import task_of
from trainauto.options.load import LoadedOptions, LoadedTest, OptionsError, load_options, load_test_options
from trainauto.options.run_options import FileOptions

# Nothing here may import torch at the top: a file without problems is read before it.


def load_whole(
    path: Path, overrides: Sequence[str], *, data: bool = False, weights: bool = False
) -> LoadedOptions[FileOptions]:
    """Read and check an option file as :func:`load_options` does; where it is refused, check the rest of it too.

    The rest is what building a run checks first: names and arguments of components, and which files are there. It takes
    torch, which is loaded for files that are refused.

    Args:
        path: the option file.
        overrides: items of ``--force_yml``.
        data: whether the command reads the samples.
        weights: whether it reads the files that only a new run does.

    Raises:
        InputError: with one problem for each thing that is wrong, in file order.
    """
    try:
        return load_options(path, overrides)
    except OptionsError as error:
        raise whole_error(error, data=data, weights=weights) from None
    except InputError as error:
        error.is_of_every_rank = True
        raise


def whole_error(error: OptionsError, *, data: bool, weights: bool) -> InputError:
    """Return the error of an option file that is refused, with all that is wrong with the file."""
    from trainauto.builders.file_checks import check_file

    try:
        check_file(error.loaded, task_of(error.loaded).checks().chosen(data=data, weights=weights), error)
    except InputError as whole:
        return whole
    return error


def load_whole_test(path: Path, overrides: Sequence[str], *, of_run: bool) -> LoadedTest:
    """Read and check a test file as :func:`load_whole` does an option file of a run, and its components and files, too.

    Args:
        path: the test file.
        overrides: items of ``--force_yml``.
        of_run: whether a run brings the network and its weights.

    Raises:
        InputError: with one problem for each thing that is wrong, in file order.
    """
    from trainauto.builders.file_checks import check_file
    from trainauto.builders.image_checks import checks_of_test

    checks = checks_of_test(of_run=of_run)
    try:
        test = load_test_options(path, overrides)
    except OptionsError as error:
        check_file(error.loaded, checks, error)
        raise
    check_file(test.as_run, checks)
    return test


def check_components(loaded: LoadedOptions[FileOptions]) -> None:
    """Check names and arguments of all components of an option file.

    Raises:
        InputError: with one problem for each thing that is wrong, in file order.
    """
    from trainauto.builders.file_checks import check_file

    check_file(loaded, task_of(loaded).checks().chosen(data=False, weights=False))
