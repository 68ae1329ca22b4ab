"""What can be checked of an option file before a run of it is built, so that all its problems are told at once."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainauto.automations import AUTOMATIONS
from trainauto.builders.components import checked_arguments, locate_errors
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.memory import BOUNDS, MAX_TOKENS
from trainauto.builders.optimizers import check_trainer_optimizer
from trainauto.core.errors import InputError, Problem, collected
from trainauto.core.files import found_at
from trainauto.core.registry import Registry
from trainauto.data.dataset_roots import resolve_root
from trainauto.optim import OPTIMIZERS, SCHEDULES
from trainauto.options.component_schemas import SUPPLIED
from trainauto.options.fields import Component
from trainauto.options.load import LoadedOptions, OptionsError
from trainauto.options.nested import SECTION
from trainauto.options.run_options import FileOptions
from trainauto.options.source_locations import KeyPath
from trainauto.options.validation_errors import in_file_order

File = LoadedOptions[Any]
"""An option file. Its options may lack sections that are not valid: checks read values of the file alone."""

Check = Callable[[File, KeyPath, Any], None]
"""Raises InputError for a value of the file. A value of a wrong type passes: reading the options refuses it."""

Checks = Mapping[tuple[str, ...], Check]
"""Checks by the place of their values. Names of keys may have wildcards, ``*`` stands for positions of lists too."""

TRAIN = "train"
SETS = (TRAIN, "val", "val_*")


@dataclass(frozen=True)
class FileChecks:
    """What is checked of the option files of a task.

    Attributes:
        components: names and arguments of components.
        data: files that every run reads.
        weights: files that only a new run reads.
    """

    components: Checks = field(default_factory=dict)
    data: Checks = field(default_factory=dict)
    weights: Checks = field(default_factory=dict)

    def chosen(self, *, data: bool, weights: bool) -> "FileChecks":
        """Return the checks of components, and of the files that are to be there."""
        return replace(self, data=self.data if data else {}, weights=self.weights if weights else {})

    def without_plugins(self) -> "FileChecks":
        """Return those that hold where plugins are missing: what a set of a plugin's reads is not known."""
        return self.chosen(data=False, weights=False)

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Check]]:
        """Iterate over the checks, each with the place of its values; several may be of one place."""
        return chain.from_iterable(
            checks.items() for checks in (AUTOMATION_CHECKS, self.components, self.data, self.weights)
        )


def check_file(loaded: LoadedOptions[FileOptions], checks: FileChecks, error: OptionsError | None = None) -> None:
    """Check an option file before a run of it is built.

    Where a plugin cannot be imported, nothing is said of names that it may bring, nor of files.

    Args:
        loaded: the file.
        checks: which.
        error: what reading its options has found.

    Raises:
        InputError: with all problems, in file order.
    """
    problems, paths = ([*error.problems], error.paths) if error is not None else ([], frozenset())
    plugins: list[Problem] = []
    with collected(plugins):
        load_plugins(loaded)
    problems += [problem for problem in plugins if problem not in problems]
    lacks_plugins = bool(plugins) or any(path[:1] == ("plugins",) for path in paths)
    for pattern, check in checks.without_plugins() if lacks_plugins else checks:
        for path, value in _values(loaded.tree, pattern):
            problems += _found(check, loaded, path, value, problems) if path not in paths else ()
    if lacks_plugins:
        problems = [problem for problem in problems if not problem.may_be_of_plugin]
    if problems:
        refused = InputError(in_file_order(problems, loaded.file))
        refused.is_of_every_rank = True
        raise refused from error


def _found(check: Check, loaded: File, path: KeyPath, value: Any, earlier: Sequence[Problem]) -> Iterator[Problem]:
    """Yield what a check finds at places where nothing is wrong yet."""
    places, found = {problem.place for problem in earlier}, list[Problem]()
    with collected(found):
        check(loaded, path, value)
    return (problem for problem in found if problem.place not in places)


def _values(value: Any, pattern: Sequence[str], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the values that a pattern means, with their paths."""
    if not pattern:
        yield path, value
        return
    below: Collection[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        below = value.items()
    elif isinstance(value, list):
        below = list(enumerate(value))
    for key, inner in below:
        if fnmatchcase(str(key), pattern[0]):
            yield from _values(inner, pattern[1:], (*path, key))


def of_component(check: Callable[[File, KeyPath, Component], object], aside: Set[str] = frozenset()) -> Check:
    """Return the check of a component.

    Args:
        check: takes it with its name and arguments.
        aside: keys that are none of its arguments.
    """

    def checked(loaded: File, path: KeyPath, value: Any) -> None:
        if not isinstance(value, dict):
            return
        try:
            chosen = Component.model_validate({key: inner for key, inner in value.items() if key not in aside})
        except ValidationError:
            return
        check(loaded, path, chosen)

    return checked


def registered(registry: Registry[Any], *, filled_in: Set[str] = frozenset(), later: Set[str] = frozenset()) -> Check:
    """Return the check of a component's name and arguments; arguments as of :func:`checked_arguments`."""

    def check(loaded: File, path: KeyPath, chosen: Component) -> None:
        checked_arguments(loaded, registry, path, chosen.type, chosen.arguments, filled_in, later)

    return of_component(check)


def named(registry: Registry[Any]) -> Check:
    """Return the check of a name."""

    def check(loaded: File, path: KeyPath, value: Any) -> None:
        if isinstance(value, str):
            with locate_errors(loaded, path):
                registry.get(value)

    return check


def check_roots(loaded: File, path: KeyPath, roots: Any, suffixes: Collection[str], set_name: str) -> None:
    """Refuse roots of a data set that do not exist; arguments as of :func:`resolve_root`.

    Raises:
        InputError: names all of them.
    """
    missing: list[Problem] = []
    for root in [roots] if isinstance(roots, str) else roots if isinstance(roots, list) else ():
        with collected(missing):
            if isinstance(root, str):
                resolve_root(root, suffixes, set_name, "")
    if missing:
        with locate_errors(loaded, path):
            raise InputError(missing)


def check_folder_of_runs(loaded: File, path: KeyPath, root: Any) -> None:
    """Refuse a folder of runs in the place of which there is a file.

    Raises:
        InputError: names that file.
    """
    if not isinstance(root, str):
        return
    above = next((one for one in (Path(root), *Path(root).parents) if found_at(one)), None)
    if above is not None and found_at(above) != "folder":
        with locate_errors(loaded, path):
            raise InputError(Problem(f"the run directory cannot be made: {above} is a file", advice="Name a folder."))


def value_at(loaded: File, *path: str | int) -> Any:
    """Return a value of the file; ``None`` where it has none."""
    value: Any = loaded.tree
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def is_valid(loaded: File, key: str) -> bool:
    """Say whether a section or option at the top of the file may be read as typed."""
    options = loaded.options
    is_given = key in options.model_fields_set
    return is_given or (key not in loaded.tree and not type(options).model_fields[key].is_required())


def is_read(loaded: File, key: Any) -> bool:
    """Say whether the runs of a file read the set under this key: those for validation where there is one."""
    return key == TRAIN or value_at(loaded, "val", "val_enabled") is not False


def set_name(loaded: File, key: Any) -> str:
    """Return the name of the set under this key; those of a test file without a name are called by their keys."""
    name = value_at(loaded, "datasets", key, "name")
    return name if isinstance(name, str) else key if key == TRAIN or str(key).startswith("test") else "val"


def _check_automation(loaded: File, path: KeyPath, value: Any) -> None:
    if not isinstance(value, dict):
        return
    name = str(path[-1])
    with locate_errors(loaded, path):
        AUTOMATIONS.get(name)
    is_active = value_at(loaded, SECTION, "enabled") is not False and value.get("enabled", True) is not False
    if is_active:
        arguments = {key: inner for key, inner in value.items() if key != "enabled"}
        checked_arguments(loaded, AUTOMATIONS, path, name, arguments, frozenset((*BOUNDS, MAX_TOKENS)))


def _check_optimizer_beside_rate(loaded: File, path: KeyPath, chosen: Component) -> None:
    decay = value_at(loaded, *path[:-1], "weight_decay")
    check_trainer_optimizer(loaded, path, chosen, decay if isinstance(decay, int | float) else 0.0)


FOLDER_OF_RUNS: Checks = {("path", "experiments_root"): check_folder_of_runs}
"""Of the files of all tasks but fine-tuning, which names it elsewhere."""

AUTOMATION_CHECKS: Checks = {(SECTION, "*"): _check_automation}
"""Of the files of all tasks."""

OPTIMIZER_BESIDE_RATE = of_component(_check_optimizer_beside_rate)


def _check_optimizer(loaded: File, path: KeyPath, chosen: Component) -> None:
    checked_arguments(loaded, OPTIMIZERS, path, chosen.type, chosen.arguments, later=SUPPLIED["optimizer"])
    rate = chosen.arguments.get("lr")
    if isinstance(rate, int | float) and rate < 0:
        with locate_errors(loaded, path):
            raise InputError(
                Problem(f"a learning rate of {rate} increases the loss instead of reducing it", argument="lr")
            )


OPTIMIZER = of_component(_check_optimizer)
SCHEDULE = registered(SCHEDULES, filled_in=SUPPLIED["schedule"])
