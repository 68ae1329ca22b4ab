"""Runs of super-resolution: what they consist of, from options."""

from collections.abc import Sequence

import torch

from trainauto.builders.data import (
    build_axes,
    build_train_set,
    build_val_sets,
    build_validator,
    first_plan,
    refuse_flood,
    warn_of_shared_images,
)
from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.metrics import best_metric, build_metrics, warn_of_left_out_metrics
from trainauto.builders.schedules import run_length, warn_of_short_run
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.core.plan import Axis, Plan
from trainauto.engine.validation_set import ValidationSet
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.storage.run_directory import RunDirectory


class SuperResolutionParts(TaskParts):
    """A network that enlarges images, and the images.

    Args:
        loaded: the option file.
        request: how its parts are to be built.

    Raises:
        InputError: network or data cannot be used.
    """

    def __init__(self, loaded: LoadedOptions, request: PartsRequest) -> None:
        self.loaded = self._loaded = loaded
        options, sets = loaded.options, request.sets
        refuse_flood(loaded)
        warn_of_short_run(options, request.ranks.world_size)
        self.network = build_network(loaded, pretrained=request.pretrained)
        self.network_words = _words_of(options)
        self.train_set, scans = build_train_set(loaded, self.network, sets)
        request.check_samples(self.train_set)
        self._val_sets = build_val_sets(loaded, self.network, scans, sets)
        warn_of_shared_images(self.train_set, self._val_sets)
        warn_of_left_out_metrics(loaded)
        self._metrics = build_metrics(loaded)
        self.datasets, self.scans = [self.train_set, *self._val_sets], scans
        self.smallest_px = scans[self.train_set.name].smallest_size
        self.length = run_length(options)
        self.validates_every = options.val.val_freq if options.val.val_enabled else 0
        self.rate_scaling = options.train.lr_scaling
        self.metrics = tuple(self._metrics)
        self.best_metric = best_metric(loaded)

    def axes(self) -> tuple[Axis, ...]:
        """Return side of a crop and batch, bounded by the network and the smallest image."""
        return build_axes(self._loaded, self.network, self.scans[self.train_set.name])

    def first_plan(self) -> Plan:
        """Return the plan of the option file."""
        return first_plan(self._loaded.options)

    def build_model(self, precision: Precision, *, pretrained: bool, parallel: Parallel | None = None) -> BaseModel:
        """Return losses, optimizers and networks in one."""
        return build_model(self._loaded, self.network, precision, pretrained=pretrained, parallel=parallel)

    def build_validators(
        self, directory: RunDirectory, device: torch.device, *, in_step: bool = False
    ) -> Sequence[ValidationSet]:
        """Return what enlarges and measures the images of each set."""
        return [
            build_validator(self._loaded, dataset, self._metrics, self.network, device, directory, in_step=in_step)
            for dataset in self._val_sets
        ]


def _words_of(options: Options) -> str:
    default_scale = "" if "scale" in options.model_fields_set else " (the default: no scale is written)"
    against = f" against {options.network_d.type}" if options.network_d else ""
    return f"{options.network_g.type} x{options.scale}{default_scale}{against}"
