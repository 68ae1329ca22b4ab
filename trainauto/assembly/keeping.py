"""What a run directory remembers of the options, and what has changed since."""

import json
from typing import Any

import torch

from trainauto.assembly.foresight import Foresight
from trainauto.core.files import write_json_atomically
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.reporting.run_directory import RunDirectory


def changed_options(directory: RunDirectory, options: Options) -> list[str]:
    """Compare with the options the run was last started with; one line a key that differs."""
    if not directory.config.is_file():
        return []
    before = _flat(json.loads(directory.config.read_text(encoding="utf-8")))
    now = _flat(options.model_dump(mode="json"))
    keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
    return [f"{key}: {before.get(key)} -> {now.get(key)}" for key in keys]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {key: leaf for name, child in value.items() for key, leaf in _flat(child, f"{prefix}{name}.").items()}
    return {prefix.removesuffix("."): value}


def keep_options(directory: RunDirectory, loaded: LoadedOptions, step: int) -> None:
    """Keep the option file as it is; one that it replaces stays beside it, named by the step up to which it held."""
    text = loaded.path.read_text(encoding="utf-8-sig")
    kept = directory.options_file
    if kept.is_file() and kept.read_text(encoding="utf-8") != text:
        kept.replace(kept.with_name(f"options_until_step_{step}.yml"))
    directory.write_options(text)
    directory.write_config(loaded.options.model_dump(mode="json"))


def keep_foresight(
    directory: RunDirectory, foresight: Foresight | None, limit_bytes: int | None, device: torch.device
) -> None:
    """Keep what was known of the run's memory before its first step, for who compares it with what was measured."""
    if foresight is not None:
        facts = {"device_type": device.type, "limit_bytes": limit_bytes}
        write_json_atomically(directory.foresight, {**foresight.to_dict(), **facts})
