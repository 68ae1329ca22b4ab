"""What a run directory remembers of the options, and what has changed since."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from trainauto.core.files import read_text, write_text_atomically
from trainauto.core.json_text import from_json
from trainauto.data.dynamic_dataset import DynamicDataset
from trainauto.distributed.rendezvous import launch_of_now
from trainauto.options import file_text
from trainauto.options.load import LoadedOptions
from trainauto.options.lookup import field_at
from trainauto.options.run_options import FileOptions
from trainauto.options.source_locations import KeyPath, dotted
from trainauto.storage.run_directory import CHANGED_OPTIONS, SCHEDULE_STEP, TRAINING, RunDirectory

CURVES = "tensorboard"
"""Key of config.json that says where the event files are, seen from the run's folder."""


def changed_options(directory: RunDirectory, loaded: LoadedOptions[FileOptions], world_size: int = 1) -> list[str]:
    """Compare with the options and ranks the run was last started with; one line a key that differs.

    What was not written, neither then nor now, is no option that was changed: another card has another preset.
    """
    config = directory.read_config()
    if not config:
        return []
    origin = _origin(directory)
    before = _flat(config)
    now = _flat(loaded.options.model_dump(mode="json"))
    before.pop(CURVES, None)  # no option
    before["ranks"], now["ranks"] = origin.get("ranks", 1), world_size
    written = (before.keys() - origin.get("unwritten", ())) | (now.keys() - loaded.unwritten)
    # Options that the version of then did not know are changed where the file gives them.
    written -= now.keys() - before.keys() - {key for key, _, _ in written_options(loaded)}
    keys = [key for key in dict.fromkeys([*before, *now]) if key in written and before.get(key) != now.get(key)]
    return [f"{key}: {before.get(key)} -> {now.get(key)}" for key in keys]


def configured_samples(directory: RunDirectory, samples: int, samples_of_a_rank: int) -> int:
    """Return the samples of a step that rates and averages are counted from, for a run that resumes.

    They are those it began with, whatever the ranks of now, until the option file asks for another batch.

    Args:
        directory: the run.
        samples: of a step of the option file on the ranks of now.
        samples_of_a_rank: of one of them.
    """
    before = _origin(directory)
    is_the_same = before.get("configured_of_a_rank") == samples_of_a_rank
    return int(before["configured_samples"]) if is_the_same and "configured_samples" in before else samples


def step_of_schedule(directory: RunDirectory, step: float) -> float:
    """Return what a step counts in the schedule of a run that resumes: what it counted when the run began.

    Args:
        directory: the run.
        step: what it would count now, on other ranks perhaps.
    """
    return float(_origin(directory).get(SCHEDULE_STEP, step))


def with_blocks(loaded: LoadedOptions[FileOptions], blocks: Sequence[str] | None) -> LoadedOptions[FileOptions]:
    """Return resolved options that name the blocks which run again; ``None`` leaves them as they are."""
    if blocks is None:
        return loaded
    memory = loaded.options.memory.model_copy(update={"gradient_checkpointing": list(blocks)})
    return loaded.with_options(loaded.options.model_copy(update={"memory": memory}))


def recomputed_blocks_of(directory: RunDirectory) -> tuple[str, ...] | None:
    """Return the blocks that run again in a run, as :func:`with_blocks` named them; ``None`` where nothing did."""
    try:
        memory = from_json(read_text(directory.config))["memory"]
        blocks = memory["gradient_checkpointing"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return tuple(map(str, blocks)) if isinstance(blocks, list) else None


def was_launched_as(directory: RunDirectory, launch: str) -> bool:
    """Say whether a run was last started by this launcher."""
    return bool(launch) and _origin(directory).get("launch") == launch


def _origin(directory: RunDirectory) -> dict[str, Any]:
    try:
        content: dict[str, Any] = from_json(read_text(directory.origin))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {key: leaf for name, child in value.items() for key, leaf in _flat(child, f"{prefix}{name}.").items()}
    return {prefix.removesuffix("."): value}


def write_run_metadata(
    directory: RunDirectory,
    loaded: LoadedOptions[FileOptions],
    dataset: DynamicDataset,
    configured: tuple[int, int],
    step: int,
    world_size: int = 1,
    schedule_step: float = 1.0,
) -> None:
    """Keep the options: as they stand in the file, as given (with what the command line set), and as resolved.

    What they replace stays beside them, named by the step up to which it held. What a replay needs besides is kept too.

    Args:
        directory: the run.
        loaded: its options.
        dataset: its training set.
        configured: samples of a step that rates and averages are counted from, and those the option file has a rank
            train.
        step: the step it stands at.
        world_size: how many train it together.
        schedule_step: what a step counts in the schedule.
    """
    origin = origin_of(loaded, dataset) | {
        SCHEDULE_STEP: schedule_step,
        "configured_samples": configured[0],
        "configured_of_a_rank": configured[1],
        "ranks": world_size,
        "launch": launch_of_now(),
        "unwritten": sorted(loaded.unwritten),
    }
    keep_options(
        directory,
        loaded,
        origin,
        step,
        curves=directory.tensorboard if loaded.options.settings.has_curves else None,
    )


def keep_options(
    directory: RunDirectory,
    loaded: LoadedOptions[FileOptions],
    origin: Mapping[str, Any],
    step: int,
    curves: Path | None,
) -> None:
    """Keep the options as they stand in the file, as given and as resolved, and where the run comes from.

    Args:
        directory: the run.
        loaded: its options.
        origin: plain values; see :func:`origin_of`.
        step: the step it stands at: what this replaces held up to there, and is named by it.
        curves: where event files go; ``None`` where there are none.
    """
    texts = {
        directory.options_file: file_text.read_text(loaded.path),
        directory.given: as_yaml(loaded.tree),
        directory.origin: json.dumps({**origin, CHANGED_OPTIONS: written_options(loaded)}, indent=2, ensure_ascii=False)
        + "\n",
    }
    for file, text in texts.items():
        until = directory.until_step(file, step)
        # Where a run is resumed from the same step twice, the first is what led to it.
        if file.is_file() and file.read_text(encoding="utf-8") != text and not until.exists():
            file.replace(until)
        write_text_atomically(file, text)
    config = loaded.options.model_dump(mode="json")
    config = {**config.get(TRAINING, {}), **config}
    if curves is not None:
        config[CURVES] = Path(os.path.relpath(curves, directory.path)).as_posix()
    directory.write_config(config)


def written_options(loaded: LoadedOptions[FileOptions]) -> list[list[str]]:
    """Return the options that were given and are not what they would be otherwise: key, value and default of each.

    Where there is no default, since the option must be given or is an argument of some part, it is empty.
    """
    model = type(loaded.options)
    found = []
    for path, value in _leaves(loaded.tree):
        field = field_at(model, path)
        has_default = field is not None and not field.is_required()
        default = field.get_default(call_default_factory=True) if field is not None and has_default else None
        if has_default and default == value:
            continue
        found.append([dotted(path), _text_of(value), _text_of(default) if has_default else ""])
    return found


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(child, (*path, key))
    else:
        yield path, value


class _Plain(yaml.SafeDumper):
    """Writes every text in quotes, and nothing as a reference to something above."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        """Write values that occur twice twice."""
        return True


# Unquoted, `1e-4` would be text to the writer (YAML 1.1) and a number to our reader (YAML 1.2).
_Plain.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def as_yaml(tree: Mapping[str, Any]) -> str:
    """Return plain values as a file that our reader reads back as the same values."""
    return str(yaml.dump(dict(tree), Dumper=_Plain, sort_keys=False, allow_unicode=True))


def origin_of(loaded: LoadedOptions[FileOptions], dataset: DynamicDataset) -> dict[str, Any]:
    """Return where a run comes from: folders, versions, and its samples with a digest of their names."""
    origin = places_of(loaded) | {"samples": len(dataset), "names_sha256": names_sha256(dataset)}
    return origin | ({"identity": dataset.identity()} if dataset.checksums() else {})


def places_of(loaded: LoadedOptions[FileOptions]) -> dict[str, Any]:
    """Return the folders and versions that a run comes from."""
    return {
        "folder": str(loaded.folder or loaded.path.resolve().parent),
        "working_directory": str(Path.cwd()),
        "torch": torch.__version__,
    }


def names_sha256(dataset: DynamicDataset) -> str:
    """Return a digest of the names of all samples, in order; it does not depend on where they lie."""
    digest = hashlib.sha256()
    for index in range(len(dataset)):
        digest.update(dataset.sample_key(index).encode() + b"\0")
    return digest.hexdigest()
