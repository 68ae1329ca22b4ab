"""A network that was trained: out of a run, or out of an option file and a file of weights."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from trainauto.builders.image_model import build_network, channels_of
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.pretrained import mismatch, modern_weights, without_a_network
from trainauto.core.errors import InputError, Place, Problem
from trainauto.core.json_text import read_object
from trainauto.engine.checkpoint import Checkpoints
from trainauto.models.usable_weights import check_values
from trainauto.models.weights import WeightDifferences, load_same, load_weights
from trainauto.models.weights_file import FileWeights
from trainauto.options.load import LoadedOptions, super_resolution_only
from trainauto.options.schema import Component, Options
from trainauto.options.source_locations import Places
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_options import options_of
from trainauto.tasks.sr.recognition import recognise
from trainauto.tasks.sr.spandrel_archs.library import INSTALL

logger = logging.getLogger(__name__)

WEIGHTS, AVERAGES = "net_g.safetensors", "net_g_ema.safetensors"
"""Files of a checkpoint: what the optimizer stepped, and its moving average where the run kept one."""

GREY_ALONE = "the network takes grey pictures (num_in_ch 1): colours are turned into grey"
"""What is said before pictures are read for a network of one channel."""

AVERAGED = "averaged weights"
"""What `export` says of a moving average, in the metadata of a .safetensors."""


@dataclass(frozen=True)
class LoadedNetwork:
    """A network to be used.

    Attributes:
        network: in evaluation mode, on the device asked for, float32; maps (N, ``channels``, h, w) in [0, 1] to
            (N, C, h * ``scale``, w * ``scale``).
        scale: enlargement factor.
        channels: channels of its input.
        name: of the experiment; of the weights file where there is no run.
        weights_file: what its weights were read from.
        is_average: whether they are a moving average; outside of a run as far as names say so.
        loaded: the options it was built from.
        step: the step its weights are of; ``None`` outside of a run.
        run: the folder of its run; ``None`` outside of one.
    """

    network: nn.Module
    scale: int
    channels: int
    name: str
    weights_file: Path
    is_average: bool
    loaded: LoadedOptions
    step: int | None = None
    run: Path | None = None

    @property
    def origin(self) -> str:
        """The run its weights are of, their step, and whether they are averages, in words; begins with a comma."""
        run = f", run {self.run.name}" if self.run is not None else ""
        step = f", step {self.step}" if self.step is not None else ""
        return f"{run}{step}{', averaged weights' if self.is_average else ''}"


def load_network(run: Path, checkpoint: str, device: torch.device) -> LoadedNetwork:
    """Return the network of a run, which may be running; its averaged weights where it keeps some.

    Args:
        run: folder of a run, or of an experiment for its newest run.
        checkpoint: ``best`` (the latest where no validation has chosen one), ``latest``, or the number of a step.
        device: where to put it.

    Raises:
        InputError: no run, no such checkpoint, or options that cannot be used.
        CheckpointError: the weights are damaged, or not of this network.
    """
    directory = RunDirectory.find(run)
    if directory.given.is_file():  # before its checkpoints are looked for: those of other tasks lie elsewhere
        super_resolution_only(options_of(directory))
    step, folder = Checkpoints(directory.checkpoints, keep=0).named(checkpoint)
    _note_unfinished(run, directory, step)
    loaded = super_resolution_only(options_of(directory, step))
    network = _bare_network(loaded)
    file = folder / (AVERAGES if (folder / AVERAGES).is_file() else WEIGHTS)
    load_weights(network, file)
    ready = _ready(network, loaded, loaded.options.name, file, device, is_average=file.name == AVERAGES)
    return replace(ready, step=step, run=directory.path)


def network_from_weights(loaded: LoadedOptions, weights: Path, key: str | None, device: torch.device) -> LoadedNetwork:
    """Return the network of an option file with weights of a .safetensors, .pth or .pt file.

    Args:
        loaded: the option file.
        weights: the file; names of old ESRGAN files are understood.
        key: entry that holds the weights; ``None`` takes the usual one, averages where there are some.
        device: where to put it.

    Raises:
        InputError: options or weights cannot be used, or do not fit each other.
    """
    file = weights.expanduser()
    network = _bare_network(loaded)
    found = modern_weights(file, key, network)
    if differences := WeightDifferences.between(network, found.tensors):
        scale = loaded.options.scale
        problem = mismatch(file, found, network, differences, "g", scale)
        raise InputError(replace(problem, advice=f"{loaded.path}: {problem.advice}"))
    load_same(network, found.tensors)
    return _ready(network, loaded, file.stem, file, device, is_average=_is_average(found, file))


def network_from_weights_alone(weights: Path, key: str | None, device: torch.device) -> LoadedNetwork:
    """Return the network that weights of a .safetensors, .pth or .pt file are of, told from their names and shapes.

    Args:
        weights: the file; names of old ESRGAN files are understood.
        key: entry that holds the weights; ``None`` takes the usual one, averages where there are some.
        device: where to put it.

    Raises:
        InputError: the weights cannot be read, or are of no network known here.
    """
    file = weights.expanduser()
    found = without_a_network(file, key)
    recognised = recognise(found.tensors, found.metadata)
    if recognised is None or not recognised.name or recognised.scale is None:
        kind = f"is {recognised.in_words()}, which" if recognised else "is of a network that"
        advice = f"Name an option file that builds it with -opt. spandrel, where installed, tells more: {INSTALL}"
        raise InputError(Problem(f"{file} {kind} is not known here as one that enlarges images", advice=advice))
    chosen = Component(type=recognised.name, **recognised.arguments)
    options = Options.model_construct(name=file.stem, scale=recognised.scale, network_g=chosen)
    loaded = LoadedOptions(options, Places(Place(str(file))), file, {})
    network = build_network(loaded, pretrained=False)
    found = found.without_made(network)
    check_values(file, found.tensors, network.state_dict())
    load_same(network, found.tensors)
    if recognised.unsure:
        logger.warning("%s: taken for %s; %s", file, recognised.in_words(), recognised.unsure)
    return _ready(network, loaded, file.stem, file, device, is_average=_is_average(found, file))


def _is_average(found: FileWeights, file: Path) -> bool:
    return found.is_average or found.metadata.get("weights") == AVERAGED or file.stem.endswith("_ema")


def _bare_network(loaded: LoadedOptions) -> nn.Module:
    load_plugins(loaded)
    return build_network(loaded, pretrained=False)


def _ready(
    network: nn.Module,
    loaded: LoadedOptions,
    name: str,
    file: Path,
    device: torch.device,
    *,
    is_average: bool,
) -> LoadedNetwork:
    network = network.to(device).eval().requires_grad_(requires_grad=False)
    return LoadedNetwork(network, loaded.options.scale, channels_of(network), name, file, is_average, loaded)


def _note_unfinished(named: Path, run: RunDirectory, step: int) -> None:
    """Warn where an experiment is named whose newest run did not come to its end, and an earlier one did."""
    is_named_itself = (Path.cwd() / named).name == run.path.name  # and not by a link
    if is_named_itself or _is_complete(run):
        return
    others = sorted(run.path.parent.iterdir(), reverse=True)
    complete = next((path for path in others if not path.is_symlink() and _is_complete(RunDirectory(path))), None)
    if complete is not None:
        words = "%s is the newest run of %s and did not come to its end: its step %d is used. %s did: name it instead"
        logger.warning(words, run.path.name, named, step, complete)


def _is_complete(run: RunDirectory) -> bool:
    return read_object(run.log_object).get("status") == "completed"
