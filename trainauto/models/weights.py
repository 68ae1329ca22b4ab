"""Weights of a network: written as safetensors, read back exactly, compared with others, loaded as far as they fit."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trainauto.core.errors import CheckpointError, NetworkMismatchError
from trainauto.core.words import visible
from trainauto.models.parallel import is_sharded, whole_weights
from trainauto.models.usable_weights import check_values

MOST_NAMES = 12
"""Names of weights that are listed one by one; of more, those of a part are counted together."""


def save_weights(
    network: nn.Module, file: Path, without: Collection[str] = (), *, whole: Mapping[str, Tensor] | None = None
) -> None:
    """Write a network's state as safetensors, in the default memory format, shared tensors written out.

    Of a network that is spread over ranks, every rank must ask, and the first writes, unless ``whole`` is given.

    Args:
        network: its state is written.
        file: is replaced.
        without: names of weights that are left out.
        whole: the state, where it has been gathered.
    """
    if whole is None:
        whole = whole_weights(network) if is_sharded(network) else network.state_dict()
    state = {name: tensor for name, tensor in whole.items() if name not in without}
    if not state:
        return  # another rank has it
    file.touch()
    mode = file.stat().st_mode  # as the umask has it: save_file replaces the file by one that only its owner may read
    save_file({name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}, file)
    file.chmod(mode)


def load_weights(network: nn.Module, file: Path, without: Collection[str] = ()) -> None:
    """Read what :func:`save_weights` wrote, exactly.

    Args:
        network: gets the weights.
        file: that holds them.
        without: names of weights that the file may lack.

    Raises:
        CheckpointError: the file is damaged.
        NetworkMismatchError: it is missing, or of another network.
        InputError: its values are NaN or infinite.
    """
    try:
        state = load_file(file)
    except FileNotFoundError:
        raise NetworkMismatchError(f"the checkpoint {file.parent} holds no {file.name}") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot load {file}: {error}") from error
    found = WeightDifferences.between(network, state)
    found = replace(found, missing=[name for name in found.missing if name not in without])
    if differences := found.text():
        raise NetworkMismatchError(f"the checkpoint {file.parent} is of another network: {file.stem} has {differences}")
    check_values(file, state, network.state_dict())
    network.load_state_dict(state, strict=False)


@dataclass(frozen=True)
class WeightDifferences:
    """Where weights in a file differ from those of a network.

    Attributes:
        missing: names of the network that the file lacks.
        unknown: names in the file that the network lacks.
        reshaped: both shapes in words, by names that both have.
        same: how many have the same name and shape.
    """

    missing: list[str]
    unknown: list[str]
    reshaped: dict[str, str]
    same: int

    @classmethod
    def between(cls, network: nn.Module, state: Mapping[str, Tensor]) -> "WeightDifferences":
        """Compare names and shapes; what a network lists as ``optional_weights`` may be missing."""
        own = network.state_dict()
        optional: Collection[str] = getattr(network, "optional_weights", ())
        shapes = {
            name: f"{name}: {tuple(state[name].shape)} in the file, {tuple(own[name].shape)} here"
            for name in own
            if name in state and own[name].shape != state[name].shape
        }
        missing = [name for name in own if name not in state and name not in optional]
        unknown = [name for name in state if name not in own]
        return cls(missing, unknown, shapes, len(state) - len(unknown) - len(shapes))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.missing or self.unknown or self.reshaped)

    def text(self) -> str:
        """Return how many of each kind there are, and the first three; empty where nothing differs."""
        shapes = list(self.reshaped.values())
        parts = (("missing in the file", self.missing), ("unknown here", self.unknown), ("of another shape", shapes))
        return "; ".join(
            f"{len(names)} {label} ({', '.join(map(visible, names[:3]))})" for label, names in parts if names
        )

    def lines(self) -> list[str]:
        """Return all that is left out where only the rest is loaded, a line for each kind."""
        parts = (
            ("of another shape, which begin anew", self.reshaped.values()),
            ("missing in the file, which begin anew", self.missing),
            ("of the file without a place here", self.unknown),
        )
        return [f"{len(names)} {label}: {listed(names)}" for label, names in parts if names]


def listed(names: Iterable[str]) -> str:
    """Return all names where they are few, else the parts of the network that hold them, with their number."""
    names = list(names)
    if len(names) <= MOST_NAMES:
        return ", ".join(map(visible, names))
    counts: dict[str, int] = {}
    for name in names:
        part = ".".join(name.split(":")[0].split(".")[:2])
        counts[part] = counts.get(part, 0) + 1
    return ", ".join(f"{visible(part)} ({count})" for part, count in counts.items())


def load_same(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy weights that have the name and shape of the network's own; the others of both stay as they are."""
    own = network.state_dict()
    same = {name: state[name] for name in own if name in state and own[name].shape == state[name].shape}
    network.load_state_dict(same, strict=False)
