"""Option files of traiNNer-redux, BasicSR and neosr: how they are read and recognised; ``convert`` translates them."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Place, Problem
from trainauto.core.program import program_words
from trainauto.options.file_text import read_text
from trainauto.options.scalars import LARGEST_INTEGER
from trainauto.options.source_locations import Places, Source, printable
from trainauto.options.yaml_file import LARGEST_DEPTH, YamlTree, parse_yaml

SUFFIXES = (".yml", ".yaml", ".toml", ".json")
"""Of option files that are read; those of trainauto are YAML."""


class Project(StrEnum):
    """A project whose option files are translated, as it writes its name."""

    REDUX = "traiNNer-redux"
    BASICSR = "BasicSR"
    NEOSR = "neosr"


OWN_KEYS = frozenset(
    {"task", "device", "num_threads", "plugins", "memory", "distributed", "training_automations", "degradation_preset"}
)
"""Keys of the top level that only trainauto has."""

REQUIRED = frozenset({"name", "num_gpu", "network_g", "path"})
"""Keys without which traiNNer-redux and BasicSR read no file."""

FEWEST_SIGNS = 3
"""Different keys of theirs that make a file one of theirs: a file of trainauto may hold one or two by mistake."""

_TOP = frozenset(
    {"num_gpu", "dist_params", "find_unused_parameters", "onnx", "detect_anomaly", "gt_size", "suffix", "crop_border"}
)
_OF_SETS = frozenset(
    {"io_backend", "dataset_enlarge_ratio", "prefetch_mode", "gt_size", "meta_info_file", "pin_memory", "clip_size"}
)
_OF_SECTIONS = {
    "path": frozenset({"resume_state", "pretrain_network_g_ema", "ignore_resume_networks"}),
    "train": frozenset({"warmup_iter", "grad_clip_max_norm", "adaptive_d", "fix_flow"}),
    "val": frozenset({"metrics_enabled", "suffix", "pbar"}),
    "logger": frozenset({"save_checkpoint_format"}),
}
_NEOSR_MODELS = ("image", "otf")
_NEOSR_SETS = ("otf", "paired", "single")


def read_foreign(path: Path) -> YamlTree:
    """Read a YAML, TOML or JSON file.

    Raises:
        InputError: it cannot be read, or is not what its suffix says; the problem has its place where there is one.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        message = f"this is no option file: its name ends in '{suffix}'" if suffix else "its name has no suffix"
        raise InputError(Problem(message, Place(printable(str(path))), f"Name one that ends in {', '.join(SUFFIXES)}."))
    text, file = read_text(path), printable(str(path))
    if suffix in (".yml", ".yaml"):
        return parse_yaml(text, file)
    source = Source(file, text)
    places = Places(source.place(len(text) - len(text.lstrip())))
    value = _toml(text, source) if suffix == ".toml" else _json(text, source)
    _check(value, source)
    return YamlTree(value, places)


def recognised(tree: Any) -> Project | None:
    """Return the project that an option file belongs to; ``None`` where it is not recognised, or may be trainauto's.

    Files of trainauto have most keys of traiNNer-redux. So only keys count that trainauto does not have.

    Args:
        tree: values of the file.
    """
    if not isinstance(tree, dict) or OWN_KEYS & tree.keys():
        return None
    if tree.get("model_type") in _NEOSR_MODELS and _is_of_neosr(tree):
        return Project.NEOSR
    if not tree.keys() >= REQUIRED or len(set(_signs(tree))) < FEWEST_SIGNS:
        return None
    return Project.BASICSR if "model_type" in tree else Project.REDUX


def refuse_foreign(path: Path, tree: Any, places: Places) -> None:
    """Refuse a file of another project, and say how it is translated.

    Raises:
        InputError: it is one.
    """
    project = recognised(tree)
    if project is not None:
        advice = f"Convert it with: {program_words()} convert {shlex.quote(printable(str(path)))}"
        message = f"this is an option file of {project}"
        raise InputError(Problem(message, Place(places.of_key(()).file), advice))


def _is_of_neosr(tree: Mapping[str, Any]) -> bool:
    sets = _section(tree, "datasets")
    has_its_sets = any(_section(sets, key).get("type") in _NEOSR_SETS for key in sets)
    return has_its_sets or "bfloat16" in tree or "degradations" in tree


def _signs(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys that trainauto does not have."""
    yield from _TOP & tree.keys()
    if "onnx" in tree:
        yield "onnx.shape"  # a section of its own says more than a key
    for name, keys in _OF_SECTIONS.items():
        section = _section(tree, name)
        yield from (f"{name}.{key}" for key in keys & section.keys())
        if name == "train":
            yield from (key for key in section if key.endswith("_opt") and isinstance(section[key], dict))
            yield from (key for key in ("grad_clip",) if isinstance(section.get(key), bool))
    sets = _section(tree, "datasets")
    for key in sets:
        yield from (f"datasets.{sign}" for sign in _OF_SETS & _section(sets, key).keys())
    yield from (key for key in ("resume_id",) if key in _section(_section(tree, "logger"), "wandb"))


def _section(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def _check(value: Any, source: Source, depth: int = 0) -> None:
    """Refuse what YAML refuses, too, so that whatever is read can be written.

    Raises:
        InputError: it is nested too deeply, a number is too large, or text holds half a character.
    """
    if depth > LARGEST_DEPTH:
        raise InputError(Problem(_TOO_DEEP, source.place(0), _FEW_LEVELS))
    if isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check(item, source, depth + 1)
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        place = source.place(source.text.find(str(value)))
        raise InputError(Problem("this is a whole number of more than 64 bits", place, "No option needs one."))
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        message = f"'{printable(value)}' holds an escape that is half a character"
        raise InputError(Problem(message, source.place(0), "Write the character itself."))


_TOO_DEEP, _FEW_LEVELS = "this is nested too deeply", "Option files need less than ten levels."
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)\Z")


def _toml(text: str, source: Source) -> Any:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(Problem(_TOO_DEEP, source.place(0), _FEW_LEVELS)) from None
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.search(str(error))
        index = len(text)
        if found and found[1]:
            lines = text.splitlines(keepends=True)[: int(found[1]) - 1]
            index = sum(map(len, lines)) + int(found[2]) - 1
        said = _TOML_PLACE.sub("", str(error))
        is_escape = "escape" in said or "'\\\\" in said
        advice = "In TOML, paths with backslashes stand in single quotes." if is_escape else "Correct this line."
        raise InputError(
            Problem(f"this is not TOML: {said[:1].lower()}{said[1:]}", source.place(index), advice)
        ) from None


def _json(text: str, source: Source) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source))
    except RecursionError:
        raise InputError(Problem(_TOO_DEEP, source.place(0), _FEW_LEVELS)) from None
    except json.JSONDecodeError as error:
        message = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        is_comment = text.startswith(("//", "/*", "#"), error.pos)
        advice = "JSON has no comments: remove it." if is_comment else "Correct this line."
        raise InputError(Problem(message, source.place(error.pos), advice)) from None


def _unique(pairs: list[tuple[str, Any]], source: Source) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        index = source.text.find(f'"{twice}"')
        message = f"the key '{printable(twice)}' is given twice"
        raise InputError(Problem(message, source.place(index), "Remove one of the two."))
    return read
