"""What is checked of option files of super-resolution before a run of them is built."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from trainauto.archs import ARCHS, is_discriminator
from trainauto.builders.components import checked_arguments, locate_errors
from trainauto.builders.data import NOT_OF_THE_DATASET, READ
from trainauto.builders.discriminator import check_discriminator
from trainauto.builders.file_checks import (
    FOLDER_OF_RUNS,
    OPTIMIZER,
    SCHEDULE,
    SETS,
    TRAIN,
    Check,
    Checks,
    File,
    FileChecks,
    check_roots,
    is_read,
    named,
    of_component,
    set_name,
    value_at,
)
from trainauto.builders.image_model import judges_nothing, refuse_discriminator
from trainauto.builders.losses import check_loss
from trainauto.builders.metrics import check_metric
from trainauto.builders.network_bounds import refuse_sizes
from trainauto.builders.run_weights import named_weights
from trainauto.core.errors import InputError, Problem, collected
from trainauto.core.registry import Registry
from trainauto.models.weights_file import check_there
from trainauto.options.component_schemas import FILLED_IN
from trainauto.options.dataset_options import TrainDataset, ValDataset
from trainauto.options.degradation_options import KernelOptions
from trainauto.options.fields import Component, Section
from trainauto.options.source_locations import KeyPath
from trainauto.options.training_options import LossTermOptions
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.data.image_dataset import ImageDataset, names_in
from trainauto.tasks.sr.data.image_files import IMAGE_SUFFIXES
from trainauto.tasks.sr.losses import LOSSES
from trainauto.tasks.sr.losses.perceptual_loss import PerceptualLoss, VGGPerceptualLoss
from trainauto.tasks.sr.losses.quality_loss import DISTSLoss, LPIPSLoss
from trainauto.tasks.sr.metrics import METRICS
from trainauto.tasks.sr.metrics.lpips_dists import calculate_dists, calculate_lpips
from trainauto.tasks.sr.models import MODELS
from trainauto.tasks.sr.towers.load_tower import file_of_tower
from trainauto.tasks.sr.towers.lpips import TOWERS
from trainauto.tasks.sr.towers.tower import DESIGNS, VGG16, VGG19, Design

LOSS_KEYS = LossTermOptions.model_fields.keys() - Component.model_fields.keys()


def _check_network(loaded: File, path: KeyPath, chosen: Component) -> None:
    refuse_discriminator(loaded, chosen.type)
    checked_arguments(loaded, ARCHS, path, chosen.type, chosen.arguments, FILLED_IN["network"])
    refuse_sizes(loaded, path, chosen.arguments)


def _check_discriminator(loaded: File, path: KeyPath, chosen: Component) -> None:
    checked_arguments(loaded, ARCHS, path, chosen.type, chosen.arguments)
    refuse_sizes(loaded, path, chosen.arguments)
    constructor = ARCHS.get(chosen.type)
    if "scale" in inspect.signature(constructor).parameters and not is_discriminator(constructor):
        with locate_errors(loaded, path):
            raise judges_nothing(chosen.type)


def _check_set(loaded: File, path: KeyPath, section: Any) -> None:
    """Refuse a type that is not known, and options that sets of the type do not take."""
    model: type[Section] = TrainDataset if path[-1] == TRAIN else ValDataset
    kind = _kind_of(loaded, path)
    if not isinstance(section, dict) or not isinstance(kind, str) or not is_read(loaded, path[-1]):
        return
    with locate_errors(loaded, (*path, "type")):
        parameters = inspect.signature(DATASETS.get(kind)).parameters
    aside = NOT_OF_THE_DATASET | KernelOptions.model_fields.keys() | (READ if "reading" in parameters else frozenset())
    arguments = {key: section[key] for key in section.keys() & model.model_fields.keys() - aside}
    written = {key: value for key, value in arguments.items() if value is not None}
    checked_arguments(loaded, DATASETS, path, kind, written, parameters.keys())


def _check_images(loaded: File, path: KeyPath, roots: Any) -> None:
    if _has_files(loaded, path[:-1]):
        check_roots(loaded, path, roots, IMAGE_SUFFIXES, set_name(loaded, path[-2]))


def _check_list(loaded: File, path: KeyPath, file: Any) -> None:
    if _has_files(loaded, path[:-1]) and isinstance(file, str):
        with locate_errors(loaded, path[:-1]):
            names_in(file)


def _check_weights(loaded: File, path: KeyPath, file: Any) -> None:
    if isinstance(file, str) and file:
        with locate_errors(loaded, path):
            check_there(named_weights(file, "d" if path[-1] == "pretrain_network_d" else "g"))


_TOWERS: Mapping[Callable[..., Any], Callable[[Mapping[str, Any]], Design]] = {
    PerceptualLoss: lambda _arguments: VGG19,
    VGGPerceptualLoss: lambda arguments: DESIGNS[arguments["vgg_type"]],
    **dict.fromkeys((DISTSLoss, calculate_dists), lambda _arguments: VGG16),
    **dict.fromkeys((LPIPSLoss, calculate_lpips), lambda arguments: TOWERS[arguments["net"]][0]),
}
"""Towers whose features losses and metrics compare, by their arguments."""


def _has_tower(registry: Registry[Any]) -> Check:
    """Return the check that the weights are there which a loss or a metric reads."""

    def check(loaded: File, path: KeyPath, chosen: Component) -> None:
        counts = chosen.arguments.get("loss_weight") != 0 and is_read(loaded, path[0])
        if not counts or chosen.type not in registry or (component := registry.get(chosen.type)) not in _TOWERS:
            return
        defaults = {name: one.default for name, one in inspect.signature(component).parameters.items()}
        with suppress(KeyError), locate_errors(loaded, path):  # another tower is refused as an argument
            file_of_tower(_TOWERS[component](defaults | chosen.arguments), chosen.arguments.get("weights"))

    return of_component(check, aside=LOSS_KEYS)


def _has_files(loaded: File, path: KeyPath) -> bool:
    """Say whether a set reads images of folders; one of a plugin may take anything for a root."""
    kind = _kind_of(loaded, path)
    constructor = DATASETS.get(kind) if isinstance(kind, str) and kind in DATASETS else ImageDataset
    return is_read(loaded, path[-1]) and isinstance(constructor, type) and issubclass(constructor, ImageDataset)


def _kind_of(loaded: File, path: KeyPath) -> Any:
    model: type[Section] = TrainDataset if path[-1] == TRAIN else ValDataset
    section = value_at(loaded, *path)
    return section.get("type", model.model_fields["type"].default) if isinstance(section, dict) else None


def _network_and_weights(loaded: File, path: KeyPath, tree: Any) -> None:
    """Refuse a test file without a network, or without its weights, where no run brings them."""
    del path, tree
    missing: list[Problem] = []
    for key, example in ((NETWORK, "the network as it was trained"), (WEIGHTS, "the file of its weights")):
        if value_at(loaded, *key) is None:
            with collected(missing), locate_errors(loaded, key):
                raise InputError(Problem(f"'{key[-1]}' is missing", advice=f"Write {example}, or name a RUN."))
    if missing:
        raise InputError(missing)


def _no_second_network(loaded: File, path: KeyPath, value: Any) -> None:
    if value is not None:
        with locate_errors(loaded, path):
            message = f"{'.'.join(map(str, path))} is given, and the RUN brings its own network and weights"
            raise InputError(Problem(message, advice="Leave out one or the other."))


def checks_of_test(*, of_run: bool) -> FileChecks:
    """Return what is checked of a test file.

    Args:
        of_run: whether a run brings the network and its weights.
    """
    network: Checks = {NETWORK: _no_second_network, WEIGHTS: _no_second_network}
    if not of_run:
        network = {(): _network_and_weights, NETWORK: IMAGE_CHECKS.components[NETWORK]}
    sets: Checks = {("datasets", key): _check_set for key in TEST_SETS}
    return FileChecks(
        components={**network, **sets, METRIC: IMAGE_CHECKS.components[METRIC]},
        data={
            **{("datasets", key, "dataroot_[gl][tq]"): _check_images for key in TEST_SETS},
            **{("datasets", key, "meta_info"): _check_list for key in TEST_SETS},
            METRIC: _has_tower(METRICS),
        },
        weights={} if of_run else {WEIGHTS: _check_weights},
    )


NETWORK, WEIGHTS, METRIC = ("network_g",), ("path", "pretrain_network_g"), ("val", "metrics", "*")
TEST_SETS = ("test", "test_*", "val", "val_*")

IMAGE_CHECKS = FileChecks(
    components={
        (): check_discriminator,
        ("model_type",): named(MODELS),
        NETWORK: of_component(_check_network),
        ("network_d",): of_component(_check_discriminator),
        ("train", "losses", "*"): of_component(check_loss, aside=LOSS_KEYS),
        ("train", "optim_[gd]"): OPTIMIZER,
        ("train", "scheduler"): SCHEDULE,
        METRIC: of_component(check_metric),
        **{("datasets", key): _check_set for key in SETS},
    },
    data={
        **FOLDER_OF_RUNS,
        **{("datasets", key, "dataroot_[gl][tq]"): _check_images for key in SETS},
        **{("datasets", key, "meta_info"): _check_list for key in SETS},
        ("train", "losses", "*"): _has_tower(LOSSES),
        METRIC: _has_tower(METRICS),
    },
    weights={("path", "pretrain_network_[gd]"): _check_weights},
)
