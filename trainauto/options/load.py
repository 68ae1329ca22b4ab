"""From an option file to typed options, with every problem of the file reported at once."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from trainauto.core.errors import InputError, Place, Problem, collected, nearest
from trainauto.core.program import program_words
from trainauto.core.registry import in_one_word
from trainauto.options.combination_checks import impossible_combinations
from trainauto.options.file_text import read_text
from trainauto.options.foreign_files import read_foreign, refuse_foreign
from trainauto.options.lookup import fields_of, section_at, sections
from trainauto.options.nested import SECTION, unnest
from trainauto.options.overrides import apply_overrides
from trainauto.options.run_checks import impossible_in_any_run
from trainauto.options.run_options import FileOptions
from trainauto.options.schema import Options
from trainauto.options.source_locations import KeyPath, Places, dotted, printable
from trainauto.options.tasks import KEY, SUPER_RESOLUTION, TASKS, TaskOptions, kind_of, named_task, nearest_task
from trainauto.options.test_schema import OptionsToMeasure
from trainauto.options.validation_errors import Finding, described, findings_of, in_file_order
from trainauto.options.yaml_file import YamlTree, parse_yaml, read_yaml

OfTask = TypeVar("OfTask", bound=FileOptions, default=Options, covariant=True)
"""Options of a task; super-resolution by default."""
Other = TypeVar("Other", bound=FileOptions)


@dataclass(frozen=True)
class LoadedOptions(Generic[OfTask]):
    """Options as typed, and as they stood in the file.

    Attributes:
        options: typed, with every default filled in.
        places: where each key and value stands, for problems that are found later.
        path: the file they come from.
        tree: the plain values that were given, overrides included.
        overrides: items of ``--force_yml``.
        folder: where its plugins lie; ``None`` is beside the file.
        unwritten: arguments of automations that the builder filled in and the file does not hold, as dotted keys; none
            before the run is built.
    """

    options: OfTask
    places: Places
    path: Path
    tree: dict[str, Any]
    overrides: tuple[str, ...] = ()
    folder: Path | None = None
    unwritten: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """Name of the file in messages."""
        return printable(str(self.path))

    def with_options(self, options: Other) -> "LoadedOptions[Other]":
        """Return the same with other options: resolved ones, or these as what they are known to be."""
        return LoadedOptions(options, self.places, self.path, self.tree, self.overrides, self.folder, self.unwritten)

    def of(self, model: type[Other]) -> "LoadedOptions[Other]":
        """Return these as options of the task that they are known to be of.

        Raises:
            TypeError: they are options of another task, which is an error of the caller.
        """
        if not isinstance(self.options, model):
            raise TypeError(f"{self.path} is of {kind_of(self.options).words}")
        return self.with_options(self.options)

    def changed(self, changes: Mapping[str, Any]) -> "LoadedOptions[FileOptions]":
        """Return these options with some values changed, checked as a whole again.

        Args:
            changes: values by key as ``--force_yml`` writes keys, e.g. ``{"train:total_iter": 500}``. ``None`` is
                YAML's null.

        Raises:
            InputError: with one problem for each thing that is wrong.
        """
        items = [f"{key}={json.dumps(value, default=str)}" for key, value in changes.items()]
        return load_options(self.path, [*self.overrides, *items], self.folder)


class OptionsError(InputError):
    """Options that were read, and that cannot be used.

    Args:
        findings: what is wrong.
        loaded: the file. Its options hold the sections that are valid, and may lack the others.
        earlier: what reading it found wrong before its options were looked at.

    Attributes:
        paths: what is wrong, as paths in the file.
    """

    def __init__(
        self, findings: Sequence[Finding], loaded: LoadedOptions[FileOptions], earlier: Sequence[Problem] = ()
    ) -> None:
        super().__init__(_in_one(earlier, findings, loaded.places, loaded.file))
        self.loaded = loaded
        self.paths = frozenset(finding.path for finding in findings)


@dataclass(frozen=True)
class LoadedTest:
    """A test file: as typed, and as the options of a run that validates so, which lack what only training reads."""

    test: OptionsToMeasure
    as_run: LoadedOptions


def load_options(path: Path, overrides: Sequence[str] = (), folder: Path | None = None) -> LoadedOptions[FileOptions]:
    """Read, override and check an option file.

    Components' arguments are not checked here: the builders know their signatures.

    Args:
        path: the YAML file.
        overrides: items of ``--force_yml``, e.g. ``train:total_iter=500``.
        folder: where its plugins lie; ``None`` is beside the file.

    Raises:
        OptionsError: with one problem for each thing that is wrong, in file order.
        InputError: the file cannot be read, or is of no task, nor of one whose name is near.
    """
    begin = f"Write one with: {program_words()} init sr NAME (or init text, finetune, multitask)."
    problems: list[Problem] = []
    tree, places, _ = _read(path, begin, problems)
    twice = unnest(tree, places)
    with collected(problems):
        apply_overrides(tree, places, overrides)
    twice += unnest(tree, places)  # an override may have set train as a whole
    try:
        task = named_task(tree, places, plugin_folders(path, folder))
    except InputError as error:
        problems += error.problems
        is_unknown = error.problems[0].place == places.of_value((KEY,))  # a plugin that fails may bring the task
        if not is_unknown or (meant := nearest_task(tree)) is None:
            raise InputError(in_file_order(problems, printable(str(path)))) from error
        task = meant
    options, findings = _validated(tree, twice, task)
    loaded = LoadedOptions(options, places, path, tree, tuple(overrides), folder)
    if findings or problems:
        raise OptionsError(findings, loaded, problems)
    return loaded


def plugin_folders(path: Path, folder: Path | None) -> list[Path]:
    """Return where the plugins of an option file are looked for: in ``folder``, else beside it, then here."""
    return [folder or path.resolve().parent, Path.cwd()]


def load_test_options(path: Path, overrides: Sequence[str] = ()) -> LoadedTest:
    """Read, override and check a test file, as :func:`load_options` does an option file of a run.

    Raises:
        OptionsError: with one problem for each thing that is wrong, in file order.
        InputError: the file cannot be read, or is of another task.
    """
    problems: list[Problem] = []
    tree, places, _ = _read(path, "Name sets of images under datasets, and metrics under val.metrics.", problems)
    with collected(problems):
        apply_overrides(tree, places, overrides)
    _check_measured_task(tree, places, plugin_folders(path, None))
    findings = _misnamed_sets(tree, OptionsToMeasure)
    test: OptionsToMeasure | None = None
    try:
        test = OptionsToMeasure.model_validate(tree)
    except ValidationError as error:
        findings += _worded(error, OptionsToMeasure, tree, [finding.path for finding in findings])
    as_run = test.as_of_a_run() if test is not None else None
    if test is not None and as_run is not None:
        # Each for itself: what a run must have in both is not what a test must have.
        for keys in ({"datasets", "scale", "path"}, {"val"}):
            findings += impossible_combinations(as_run, keys)
        findings += _nothing_to_do(test)
    if as_run is None:
        plugins = tree.get("plugins")
        names = [name for name in plugins if isinstance(name, str)] if isinstance(plugins, list) else []
        as_run = Options.model_construct({"plugins"}, plugins=names)
    loaded = LoadedOptions(as_run, places, path, tree, tuple(overrides))
    if test is None or findings or problems:
        raise OptionsError(findings, loaded, problems)
    return LoadedTest(test, loaded)


def _check_measured_task(tree: Mapping[str, Any], places: Places, folders: Sequence[Path]) -> None:
    """Refuse what the command does not measure.

    Raises:
        InputError: the file is of another task than super-resolution.
    """
    if KEY in tree and (task := named_task(tree, places, folders)).name != SUPER_RESOLUTION:
        advice = task.elsewhere or (
            "A run of a language model measures loss and perplexity itself: datasets.val, and the log of the run."
        )
        message = f"test measures pictures, and this file is of {task.words}"
        raise InputError(Problem(message, places.of_value((KEY,)), advice))


MODELS_ELSEWHERE = "Transformers loads a trained language model: from_pretrained(the folder of a checkpoint)."


def super_resolution_only(
    loaded: LoadedOptions[FileOptions], action: str = "this command", advice: str = MODELS_ELSEWHERE
) -> LoadedOptions:
    """Return options of super-resolution.

    Args:
        loaded: options of any task.
        action: what knows no others, e.g. ``export``.
        advice: what there is for others.

    Raises:
        InputError: they are of another task.
    """
    if kind_of(loaded.options).name == SUPER_RESOLUTION:
        return loaded.of(Options)
    raise not_of_images(loaded, action, advice)


def not_of_images(
    loaded: LoadedOptions[FileOptions], action: str = "this command", advice: str = MODELS_ELSEWHERE
) -> InputError:
    """Return the error of a command that knows networks of super-resolution alone; arguments as above."""
    task = kind_of(loaded.options)
    message = f"{action} is for networks of super-resolution, and this file is of {task.words}"
    return InputError(Problem(message, loaded.places.of_value((KEY,)), task.elsewhere or advice))


def _nothing_to_do(test: OptionsToMeasure) -> list[Finding]:
    findings = []
    if not test.datasets.sets:
        advice = "Add test_1: {type: PairedImageDataset, dataroot_gt: ..., dataroot_lq: ...} to it."
        findings.append(Finding(("datasets",), "datasets names no set of images", advice, at_key=True))
    if not test.val.metrics and not test.val.save_img:
        message = "the test would leave nothing: no metrics, and save_img is false"
        findings.append(Finding(("val",), message, "Add val.metrics, or write save_img: true.", at_key=True))
    return findings


def _in_one(earlier: Sequence[Problem], findings: Sequence[Finding], places: Places, file: str) -> list[Problem]:
    """Return in file order what reading a file found wrong, and what else is wrong in other places."""
    known = {problem.place for problem in earlier}
    others = (finding for finding in findings if places.of_value(finding.path) not in known)
    later = [problem for problem in (finding.problem(places) for finding in others) if problem.place not in known]
    return in_file_order([*earlier, *later], file)


def _read(path: Path, begin: str, problems: list[Problem]) -> tuple[dict[str, Any], Places, str]:
    """Return the values of a file, their places, and the name of the file for people.

    Args:
        path: the file.
        begin: advice where it is empty.
        problems: gets what is wrong with single keys and values.

    Raises:
        InputError: it cannot be read, or is no section of keys.
    """
    is_toml = path.suffix.lower() == ".toml"
    # TOML is read only to say how a file of neosr is converted.
    read = read_foreign(path) if is_toml else _read_yaml_or_json(path, problems)
    tree, places, file = read.value, read.places, printable(str(path))
    refuse_foreign(path, tree, places)
    if is_toml:
        advice = f"A file of neosr is converted by: {program_words()} convert {shlex.quote(file)} --from neosr. {begin}"
        raise InputError(Problem("an option file is YAML, and this is TOML", Place(file), advice))
    if tree is None:
        raise InputError(Problem("this file holds no options", Place(file), begin))
    if not isinstance(tree, dict):
        message = (
            f"an option file is a section of keys, but this is {'a list' if isinstance(tree, list) else 'one value'}"
        )
        raise InputError(
            Problem(message, places.of_value(()), "Write 'key: value' lines at the top level, without '- '.")
        )
    return tree, places, file


def _read_yaml_or_json(path: Path, problems: list[Problem]) -> YamlTree:
    """Read an option file. JSON is YAML, but its mistakes have other words, and tabs may stand in it."""
    try:
        return read_yaml(path, problems)
    except InputError:
        if path.suffix.lower() != ".json":
            raise
        read_foreign(path)
        return parse_yaml(read_text(path).replace("\t", " "), printable(str(path)), problems)


def _validated(
    tree: dict[str, Any], more_findings: Sequence[Finding], task: TaskOptions
) -> tuple[FileOptions, list[Finding]]:
    """Return the options as far as they are valid, and what is wrong with the others."""
    findings = [*more_findings, *_misnamed_sets(tree, task.model), *_misnamed_automations(tree, task.model)]
    options: FileOptions | None = None
    valid = set(task.model.model_fields)
    try:
        options = task.model.model_validate(tree)
    except ValidationError as error:
        valid -= {str(raw["loc"][0]) for raw in error.errors(include_url=False)}
        findings += _worded(error, task.model, tree, [finding.path for finding in findings])
    checked = options or _partial(tree, valid, task.model)
    findings += [*impossible_in_any_run(checked, valid), *task.check(checked, valid)]
    return checked, findings


def _worded(
    error: ValidationError, model: type[BaseModel], tree: dict[str, Any], misnamed: Sequence[KeyPath]
) -> list[Finding]:
    """Return what validation found, but for what stands under a name that is not known: that cannot be judged."""
    findings = findings_of(
        error,
        model,
        tree,
        unknown=lambda path: _unknown(path, tree, model),
        missing=lambda path: _missing(path, model),
    )
    return [finding for finding in findings if not any(finding.path[: len(path)] == path for path in misnamed)]


def _partial(tree: dict[str, Any], valid: set[str], model: type[FileOptions]) -> FileOptions:
    """Return options that hold what is valid at the top level, and lack the rest."""
    fields = model.model_fields
    return model.model_construct(
        **{
            key: TypeAdapter(fields[key].rebuild_annotation()).validate_python(tree[key], strict=True)
            for key in valid
            if key in tree
        }
    )


def _misnamed_sets(tree: dict[str, Any], model: type[BaseModel]) -> list[Finding]:
    """Return the data sets that are neither ``train`` nor for validation (in a test file: nor for that)."""
    firsts = ("train", "val") if issubclass(model, FileOptions) else ("test", "val")
    datasets = tree.get("datasets")
    if not isinstance(datasets, dict):
        return []
    findings = []
    for key in datasets:
        begins = [f"{first}_" for first in firsts if first != "train"]
        if key in firsts or any(key.startswith(begin) and len(key) > len(begin) for begin in begins):
            continue
        path = ("datasets", key)
        advice = _hint_or_nearest(path, tree, [*firsts, *(f"{begin}NAME" for begin in begins)], model)
        findings.append(Finding(path, f"'{printable(key)}' is no data set", advice, at_key=True))
    return findings


def _misnamed_automations(tree: dict[str, Any], model: type[BaseModel]) -> list[Finding]:
    """Return what beside automations only looks like their switch, and automations that are there in two spellings.

    Any name may stand there, so that these would otherwise switch nothing off, and say nothing.
    """
    automations = tree.get(SECTION)
    if not isinstance(automations, dict):
        return []
    findings = []
    spelled: dict[str, str] = {}
    for key in automations:
        path, first = (SECTION, key), spelled.setdefault(in_one_word(key), key)
        if key.lower() == "enabled" != key:
            findings.append(_unknown(path, tree, model))
        elif first != key:
            advice = f"Keep {printable(first)} or {printable(key)}, not both."
            findings.append(Finding(path, f"automation '{printable(key)}' is there twice", advice, at_key=True))
    return findings


def _unknown(path: KeyPath, tree: dict[str, Any], model: type[BaseModel]) -> Finding:
    section = section_at(model, path[:-1])
    where = f" in {dotted(path[:-1])}" if len(path) > 1 else ""
    message = f"unknown key '{printable(str(path[-1]))}'{where}"
    keys = list(fields_of(section)) if section else []
    keys += [SECTION] if any(section is task.train for task in TASKS.values()) else []
    return Finding(path, message, _hint_or_nearest(path, tree, keys, model), at_key=True)


def _hint_or_nearest(path: KeyPath, tree: dict[str, Any], keys: list[str], model: type[BaseModel]) -> str:
    key = str(path[-1])
    own = next((task for task in TASKS.values() if task.model is model), None)
    hint = (own or TASKS[SUPER_RESOLUTION]).hint(path, tree)
    homes = [dotted(home) for home, section in sections(model) if key in fields_of(section)]
    if len(homes) in (1, 2) and not hint:
        return f"Write it under {' or '.join(homes)}." if all(homes) else "Write it at the top level."
    if own is None and any(key in fields_of(section) for _, section in sections(Options)):
        return "Remove it: it is an option of runs, and a test does not train."
    advice = hint or nearest(key, keys)
    others = [task for task in TASKS.values() if own not in (None, task) and _knows(task, key)]
    if own is not None and others and not homes and not advice.startswith(("Write", "Remove", "Did")):
        return f"It is an option of {others[0].words} (task: {others[0].name}), and this file is of {own.words}."
    return advice


def _knows(task: TaskOptions, key: str) -> bool:
    return any(key in fields_of(section) for _, section in sections(task.model))


def _missing(path: KeyPath, model: type[BaseModel]) -> Finding:
    where = f" in {dotted(path[:-1])}" if len(path) > 1 else ""
    return Finding(path, f"'{path[-1]}' is missing{where}", f"Add {described(model, path)}", at_key=True)
