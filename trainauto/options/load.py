"""From an option file to typed options, with every problem of the file reported at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainauto.core.errors import InputError, Place, Problem, nearest
from trainauto.options.checks import impossible_combinations
from trainauto.options.findings import Finding, described, findings_of, in_file_order
from trainauto.options.hints import hint
from trainauto.options.lookup import fields_of, section_at, sections
from trainauto.options.overrides import apply_overrides
from trainauto.options.places import KeyPath, Places, dotted, printable
from trainauto.options.schema import Options
from trainauto.options.yaml_file import read_yaml


@dataclass(frozen=True)
class LoadedOptions:
    """Options as typed, and as they stood in the file.

    Attributes:
        options: typed, with every default filled in.
        places: where each key and value stands, for problems that are found later.
        path: the file they come from.
        tree: the plain values that were given, overrides included.
        overrides: items of ``--force_yml``.
        folder: where its plugins lie; ``None`` is beside the file.
    """

    options: Options
    places: Places
    path: Path
    tree: dict[str, Any]
    overrides: tuple[str, ...] = ()
    folder: Path | None = None


def load_options(path: Path, overrides: Sequence[str] = ()) -> LoadedOptions:
    """Read, override and check an option file.

    Components' arguments are not checked here: their signatures are known to whoever builds them.

    Args:
        path: the YAML file.
        overrides: items of ``--force_yml``, e.g. ``train:total_iter=500``.

    Raises:
        InputError: with one problem for each thing that is wrong, in file order.
    """
    read = read_yaml(path)
    tree, places, file = read.value, read.places, printable(str(path))
    if tree is None:
        raise InputError(Problem("this file holds no options", Place(file), "Start from options/train/."))
    if not isinstance(tree, dict):
        what = f"an option file is a section of keys, but this is {'a list' if isinstance(tree, list) else 'one value'}"
        raise InputError(Problem(what, places.of_value(()), "Write 'key: value' lines at the top level, without '- '."))
    apply_overrides(tree, places, overrides)
    options = _validated(tree, places, file)
    return LoadedOptions(options, places, path, tree, tuple(overrides))


def _validated(tree: dict[str, Any], places: Places, file: str) -> Options:
    findings = [*_misnamed_sets(tree), *_misnamed_automations(tree)]
    options: Options | None = None
    valid = set(Options.model_fields)
    try:
        options = Options.model_validate(tree)
    except ValidationError as error:
        valid -= {str(raw["loc"][0]) for raw in error.errors(include_url=False)}
        # What stands under a name that is not known cannot be judged.
        misnamed = [finding.path for finding in findings]
        findings += [
            finding
            for finding in findings_of(
                error, Options, tree, unknown=lambda path: _unknown(path, tree), missing=_missing
            )
            if not any(finding.path[: len(path)] == path for path in misnamed)
        ]
    findings += impossible_combinations(options or _partial(tree, valid), valid)
    if options is None or findings:
        raise InputError(in_file_order((finding.problem(places) for finding in findings), file))
    return options


def _partial(tree: dict[str, Any], valid: set[str]) -> Options:
    """Return options that hold what is valid at the top level, and lack the rest."""
    fields = Options.model_fields
    return Options.model_construct(
        **{
            key: TypeAdapter(fields[key].rebuild_annotation()).validate_python(tree[key], strict=True)
            for key in valid
            if key in tree
        }
    )


def _misnamed_sets(tree: dict[str, Any]) -> list[Finding]:
    """Return the data sets that are neither ``train`` nor for validation, by their names."""
    datasets = tree.get("datasets")
    if not isinstance(datasets, dict):
        return []
    findings = []
    for key in datasets:
        if key in ("train", "val") or (key.startswith("val_") and len(key) > len("val_")):
            continue
        path = ("datasets", key)
        advice = _hint_or_nearest(path, tree, ["train", "val", "val_NAME"])
        findings.append(Finding(path, f"'{printable(key)}' is no data set", advice, at_key=True))
    return findings


def _misnamed_automations(tree: dict[str, Any]) -> list[Finding]:
    """Return what beside automations only looks like their switch, and automations that are there in two spellings.

    Any name may stand there, so that these would otherwise switch nothing off, and say nothing.
    """
    automations = tree.get("training_automations")
    if not isinstance(automations, dict):
        return []
    findings = []
    spelled: dict[str, str] = {}
    for key in automations:
        path, first = ("training_automations", key), spelled.setdefault(key.lower(), key)
        if key.lower() == "enabled" != key:
            findings.append(_unknown(path, tree))
        elif first != key:
            advice = f"Keep {printable(first)} or {printable(key)}, not both."
            findings.append(Finding(path, f"automation '{printable(key)}' is there twice", advice, at_key=True))
    return findings


def _unknown(path: KeyPath, tree: dict[str, Any]) -> Finding:
    section = section_at(Options, path[:-1])
    where = f" in {dotted(path[:-1])}" if len(path) > 1 else ""
    what = f"unknown key '{printable(str(path[-1]))}'{where}"
    return Finding(path, what, _hint_or_nearest(path, tree, list(fields_of(section)) if section else []), at_key=True)


def _hint_or_nearest(path: KeyPath, tree: dict[str, Any], known: list[str]) -> str:
    key = str(path[-1])
    homes = [dotted(home) for home, section in sections(Options) if key in fields_of(section)]
    if len(homes) in (1, 2):
        return f"Write it under {' or '.join(homes)}." if all(homes) else "Write it at the top level."
    return hint(path, tree) or nearest(key, known)


def _missing(path: KeyPath) -> Finding:
    where = f" in {dotted(path[:-1])}" if len(path) > 1 else ""
    return Finding(path, f"'{path[-1]}' is missing{where}", f"Add {described(Options, path)}", at_key=True)
