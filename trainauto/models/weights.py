"""Weights in and out: safetensors, and the .pth files of other frameworks, without running pickled code."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trainauto.core.errors import CheckpointError, InputError, NetworkMismatchError, Problem, nearest
from trainauto.models.parallel import is_sharded, whole_weights

USUAL_KEYS = ("params_ema", "params")


def save_weights(network: nn.Module, file: Path) -> None:
    """Write a network's state as safetensors, in the default memory format, shared tensors written out.

    Of a network that is spread over ranks, every rank must ask, and the first writes.
    """
    state = whole_weights(network) if is_sharded(network) else network.state_dict()
    if not state:
        return  # another rank has it
    file.touch()
    mode = file.stat().st_mode  # as the umask has it: save_file replaces the file by one that only its owner may read
    save_file({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}, file)
    file.chmod(mode)


def load_weights(network: nn.Module, file: Path) -> None:
    """Read what :func:`save_weights` wrote, exactly.

    Raises:
        CheckpointError: the file is damaged.
        NetworkMismatchError: it is missing, or of another network.
    """
    try:
        state = load_file(file)
    except FileNotFoundError:
        raise NetworkMismatchError(f"the checkpoint {file.parent} holds no {file.name}") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot load {file}: {error}") from error
    if differences := _Differences.between(network, state).text():
        raise NetworkMismatchError(f"the checkpoint {file.parent} is of another network: {file.stem} has {differences}")
    network.load_state_dict(state)


@dataclass(frozen=True)
class _Differences:
    """Names in which weights in a file differ from those of a network, and both shapes where only those do."""

    missing: list[str]
    unknown: list[str]
    reshaped: dict[str, str]

    @classmethod
    def between(cls, network: nn.Module, state: Mapping[str, Tensor]) -> "_Differences":
        own = network.state_dict()
        shapes = {
            name: f"{name}: {tuple(state[name].shape)} in the file, {tuple(own[name].shape)} here"
            for name in own
            if name in state and own[name].shape != state[name].shape
        }
        return cls([name for name in own if name not in state], [name for name in state if name not in own], shapes)

    def text(self) -> str:
        """Return how many of each kind there are, and the first three; empty where nothing differs."""
        shapes = list(self.reshaped.values())
        parts = (("missing in the file", self.missing), ("unknown here", self.unknown), ("of another shape", shapes))
        return "; ".join(f"{len(names)} {label} ({', '.join(names[:3])})" for label, names in parts if names)


def read_weights(file: Path, key: str | None = None) -> dict[str, Tensor]:
    """Read the weights in a .safetensors, .pth or .pt file.

    Args:
        file: what to read; pickled code in it is refused.
        key: entry that holds the weights where there are several; ``None`` tries ``params_ema``, ``params``, then the
            file itself.

    Raises:
        InputError: missing, damaged, with code inside, or without that key.
    """
    if not file.is_file():
        raise InputError(Problem(f"there is no weights file {file}", advice=_what_is_there(file)))
    try:
        content = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            Problem(
                f"cannot read weights from {file}: {first_line}", advice="Only plain tensors are read, no pickled code."
            )
        ) from error
    return _tensors_under(content, key, file)


def _what_is_there(file: Path) -> str:
    """Return advice for a file that is missing: the nearest beside it, or that a run has yet to write it."""
    folder = file.parent
    if folder.is_dir():
        return nearest(file.name, (path.name for path in folder.iterdir()), f"{folder} is empty.")
    if folder.parent.name == "checkpoints":
        return f"There is no folder {folder} either: the run that writes it has not come so far. Train it first."
    return f"There is no folder {folder} either."


def load_pretrained(
    network: nn.Module, state: Mapping[str, Tensor], *, file: Path, strict: bool, which: Literal["g", "d"] = "g"
) -> list[str]:
    """Copy weights into a network; return the names that were left out (none if ``strict``).

    Args:
        network: what to copy into.
        state: the weights by name.
        file: where they come from, for messages.
        strict: refuse weights whose names or shapes differ.
        which: letter of the network in the keys of an option file.

    Raises:
        InputError: ``strict``, and names or shapes differ; lists the first of each kind.
    """
    differences = _Differences.between(network, state)
    if strict and (differences_text := differences.text()):
        raise InputError(
            Problem(
                f"the weights in {file} are not of this network: {differences_text}",
                advice=f"Check the arguments of network_{which}, "
                f"or set `path: strict_load_{which}: false` to load what fits.",
            )
        )
    left_out = [*differences.missing, *differences.unknown, *differences.reshaped]
    network.load_state_dict({name: tensor for name, tensor in state.items() if name not in left_out}, strict=False)
    return left_out


def _tensors_under(content: object, key: str | None, file: Path) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        raise InputError(f"{file} holds a {type(content).__name__}, not weights by name")
    if key is not None and key not in content:
        raise InputError(Problem(f"{file} has no entry '{key}'", advice=nearest(key, map(str, content))))
    for candidate in (key,) if key is not None else USUAL_KEYS:
        if isinstance(content.get(candidate), Mapping):
            return _tensors_of(content[candidate], file)
    return _tensors_of(content, file)


def _tensors_of(content: Mapping[str, object], file: Path) -> dict[str, Tensor]:
    weights = {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    if not weights:
        raise InputError(Problem(f"{file} holds no tensors", advice=nearest("params", map(str, content))))
    return weights
