"""Towers with the weights that torchvision publishes, from a file or from where torch.hub keeps them."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from trainauto.core.errors import InputError, Problem
from trainauto.tasks.sr.towers.fixed_weights import read_fixed_weights
from trainauto.tasks.sr.towers.tower import Design, Tower

logger = logging.getLogger(__name__)


def load_tower(design: Design, wanted: Iterable[str], file: str | Path | None, **how: Any) -> Tower:
    """Return a tower with its weights.

    Args:
        design: which tower.
        wanted: names of the layers whose features are compared.
        file: its weights; ``None`` looks where torch.hub keeps them. A file may hold the classifier as well, or a
            tower with fewer channels throughout, which is said.
        how: further arguments of :class:`Tower`.

    Raises:
        InputError: there is no such file, or it holds another network.
        ValueError: a layer that the tower does not have.
    """
    path = file_of_tower(design, file)
    weights = read_fixed_weights(path)
    divisor = _divisor(design, weights, path)
    tower = Tower(design, wanted, divisor=divisor, **how)
    names = tower.published_names()
    state = {name: weights[key] for name, key in names.items() if key in weights}
    for name, expected in tower.state_dict().items():
        found = state.get(name)
        if found is None or found.shape != expected.shape:
            what = "is missing" if found is None else f"has the shape {tuple(found.shape)}, not {tuple(expected.shape)}"
            raise _other_network(design, path, f"{names[name]} {what}")
    tower.load_state_dict(state)
    if divisor > 1:
        logger.warning(
            "the weights of %s in %s have %d times fewer channels than the published ones: losses and metrics that "
            "use them are not comparable with those of others",
            design.name,
            path,
            divisor,
        )
    return tower


def file_of_tower(design: Design, file: str | Path | None) -> Path:
    """Return the file of a tower's weights; ``None`` looks where torch.hub keeps them.

    Raises:
        InputError: there is no such file.
    """
    path = Path(file) if file is not None else Path(torch.hub.get_dir()) / "checkpoints" / design.file
    if not path.is_file():
        advice = f"{_source(design)} Put it there, or write `weights`, the path of one that you have."
        raise InputError(Problem(f"the weights of {design.name} are not here: {path}", advice=advice))
    return path


def _divisor(design: Design, weights: dict[str, torch.Tensor], path: Path) -> int:
    """Return how many times fewer channels a file has than the published one."""
    first = next(design.convolutions())
    key = f"features.{first.index}.weight"
    if key not in weights:
        raise _other_network(design, path, f"{key} is missing")
    channels = len(weights[key])
    return first.channels // channels if 0 < channels < first.channels and not first.channels % channels else 1


def _other_network(design: Design, path: Path, reason: str) -> InputError:
    message = f"{path} does not hold the weights of {design.name}: {reason}"
    return InputError(Problem(message, advice=_source(design)))


def _source(design: Design) -> str:
    return (
        f"It is torchvision's {design.file} ({design.mib:.0f} MiB), from models/ of PyTorch's download site; on a "
        f"machine with torchvision, torchvision.models.{design.name}(weights='IMAGENET1K_V1') fetches it."
    )
