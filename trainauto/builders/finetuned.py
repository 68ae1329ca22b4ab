"""The model of a fine-tuning run, as it was after an epoch: to measure it, or to write it for others."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.components import locate_errors
from trainauto.builders.finetune_data import padding_id, processor_of
from trainauto.builders.load_plugins import load_plugins
from trainauto.core.files import read_text
from trainauto.core.json_text import from_json
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.storage.run_directory import RunDirectory
from trainauto.tasks.finetune.encoding import ConversationEncoder
from trainauto.tasks.finetune.epoch_models import chosen_epoch, steps_of
from trainauto.tasks.finetune.four_bits import FourBits
from trainauto.tasks.finetune.models import ADAPTER_FILE, ModelSettings, load_model, with_adapters
from trainauto.tasks.finetune.processors import limit_pixels, pixel_bounds, saved_pixels
from trainauto.tasks.text.training.hub import is_local

Loaded = LoadedOptions[FinetuneOptions]


@dataclass(frozen=True)
class FinetunedModel:
    """A model that was fine-tuned.

    Attributes:
        model: in evaluation mode; with its adapters beside it where it has some.
        processor: of it.
        encoder: of conversations, by the processor.
        folder: of its epoch.
        step: after which it was written.
        base: the model that its adapters are for; the folder itself where it has none.
        loaded: the options of its run.
    """

    model: nn.Module
    processor: Any
    encoder: ConversationEncoder
    folder: Path
    step: int
    base: str
    loaded: Loaded

    @property
    def has_adapters(self) -> bool:
        """Whether adapters were trained, not the whole model."""
        return (self.folder / ADAPTER_FILE).is_file()

    @property
    def padding_id(self) -> int:
        """Token that rows are padded with."""
        return padding_id(self.processor)


def load_finetuned(
    directory: RunDirectory,
    loaded: Loaded,
    which: str,
    device: torch.device,
    dtype: torch.dtype | None,
    four_bits: FourBits | None = None,
) -> FinetunedModel:
    """Return the model of an epoch of a run.

    Args:
        directory: the run.
        loaded: its options.
        which: ``best``, ``latest``, or the number of an epoch.
        device: where to put it.
        dtype: of its weights; ``None`` for that in which they were saved.
        four_bits: how the linear layers beside adapters are kept in 4 bits; ``None`` for not at all.

    Raises:
        InputError: there is no such epoch, or the model that adapters are for is gone.
    """
    load_plugins(loaded)
    folder = chosen_epoch(directory.checkpoints, which, _measured_losses(directory))
    processor = processor_of(loaded)
    trained_pixels = saved_pixels(folder)
    if trained_pixels < pixel_bounds(processor)[1]:  # memory had asked for smaller pictures
        limit_pixels(processor, trained_pixels)
    attention = loaded.options.model.attention
    if (folder / ADAPTER_FILE).is_file():
        with locate_errors(loaded, ("model",)):
            base = _base_of(folder, loaded)
            model = with_adapters(load_model(ModelSettings(base, attention, dtype, four_bits)), folder)
    else:
        base = str(folder)
        model = load_model(ModelSettings(folder, attention, dtype))
    model = model.to(device).eval().requires_grad_(requires_grad=False)
    return FinetunedModel(model, processor, ConversationEncoder(processor), folder, steps_of(folder), base, loaded)


def _measured_losses(directory: RunDirectory) -> dict[int, float]:
    """Return what was measured on conversations set aside, by step; the last where a step was measured twice."""
    try:
        lines = read_text(directory.validations).splitlines()
    except OSError:
        return {}
    losses = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):  # a line that was cut short by a kill is none
            record = from_json(line)
            losses[int(record["step"])] = float(record["metrics"]["loss"])
    return losses


def _base_of(folder: Path, loaded: Loaded) -> str:
    """Return the model that adapters were trained beside: where it really lay, since ``current`` leads on."""
    with suppress(OSError, ValueError, KeyError):
        base = str(from_json(read_text(folder / ADAPTER_FILE))["base_model_name_or_path"])
        if Path(base).is_dir():
            return base
    return loaded.options.model.name


def as_seen_from_here(directory: RunDirectory, loaded: Loaded) -> Loaded:
    """Return options whose relative paths hold here: the run may have been started in another folder."""
    origin: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        origin = from_json(read_text(directory.origin))
    start = Path(str(origin.get("working_directory", ".")))
    options = loaded.options

    def found(path: str) -> str:
        return str(start / path) if not Path(path).exists() and (start / path).exists() else path

    name = options.model.name
    if is_local(found(name)):
        name = found(name)
    dataset = options.dataset
    roots = {
        key: [found(root) for root in ([value] if isinstance(value, str) else value)]
        for key in ("path", "val")
        if (value := getattr(dataset, key)) is not None
    }
    options = options.model_copy(
        update={
            "model": options.model.model_copy(update={"name": name}),
            "dataset": dataset.model_copy(update=roots),
        }
    )
    folder = Path(str(origin.get("folder", ".")))
    return replace(loaded, options=options, folder=folder if folder.is_dir() else Path.cwd())
