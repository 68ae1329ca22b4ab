"""A task of your own, second file: what a run consists of, and what commands do with it."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import cv2
import torch
from image_classes import ClassifierOptions
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainauto.builders.automations import controller_arguments
from trainauto.builders.components import locate_errors
from trainauto.builders.optimizers import checkpoint_gradients, optimizer_maker
from trainauto.builders.precision import choose_precision
from trainauto.builders.schedules import run_length
from trainauto.builders.task_parts import PartsRequest, TaskParts
from trainauto.commands.common_arguments import check_free, refuse_given
from trainauto.commands.engine_task import EngineTask
from trainauto.core.errors import InputError, Problem
from trainauto.core.files import write_atomically
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import BATCH_SIZE, Axis, Plan
from trainauto.core.stacked_samples import StackedSamples
from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey
from trainauto.data.sample_files import SampleFiles
from trainauto.distributed.communicator import SINGLE_PROCESS
from trainauto.engine.batched_validation import BatchedValidation
from trainauto.engine.checkpoint import Checkpoints
from trainauto.engine.signals import StopSignals
from trainauto.engine.traced_training import FakeTraining, empty_batch
from trainauto.engine.validation_set import ValidationSet
from trainauto.forecast.card_answer import CardPlans
from trainauto.forecast.step_plans import plan_steps
from trainauto.forecast.task import CardsRequest
from trainauto.forecast.traced_run import fake_training
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel
from trainauto.models.weights import load_weights, save_weights
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.storage.run_directory import RunDirectory

Loaded = LoadedOptions[ClassifierOptions]
NETWORK, ACCURACY, LARGEST_BATCH = "net", "accuracy", 4096


def samples_of(options: ClassifierOptions) -> StackedSamples:
    """Return what a sample is: a grey image and the number of its class."""
    side = options.image_size
    return StackedSamples({"image": ((1, side, side), torch.uint8), "label": ((), torch.int64)})


class FolderImages(DynamicDataset):
    """Images of which each lies in the folder of its class."""

    def __init__(self, name: str, folder: Path, options: ClassifierOptions) -> None:
        self.name, self.workload, self._options = name, samples_of(options), options
        self._files = [
            (path, label)
            for label, kind in enumerate(options.classes)
            for path in sorted((folder / kind).glob("*.png"))
        ]
        if not self._files:
            raise InputError(Problem(f"{folder} has no images", advice="Write FOLDER/CLASS/NAME.png."))

    def __len__(self) -> int:
        return len(self._files)

    def sample_name(self, index: int) -> str:
        return str(self._files[index][0])

    def sample_key(self, index: int) -> str:
        return f"{self._files[index][0].parent.name}/{self._files[index][0].stem}"

    def sample_files(self) -> SampleFiles:
        sizes = tuple(path.stat().st_size for path, _ in self._files)
        return SampleFiles(tuple(map(self.sample_key, range(len(self)))), sizes)

    def scan(self) -> DatasetScan:
        return DatasetScan(len(self), 0, self.sample_name(0), len(self) * self._options.image_size**2)

    def __getitem__(self, key: SampleKey) -> dict[str, Tensor]:
        return self.full_sample(key.sample)

    def full_sample(self, index: int) -> dict[str, Tensor]:
        path, label = self._files[index]
        pixels = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        if pixels is None:
            raise InputError(f"{path} is no image")
        side = self._options.image_size
        return {"image": torch.from_numpy(cv2.resize(pixels, (side, side)))[None], "label": torch.tensor(label)}


def build_network(options: ClassifierOptions) -> nn.Module:
    """Return a small convolutional network: GroupNorm, so that a batch may run in parts."""
    layers: list[nn.Module] = []
    for channels, width in ((1, options.width), (options.width, 2 * options.width)):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.GroupNorm(1, width), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * options.width, len(options.classes))
    )


def words_of(options: ClassifierOptions) -> str:
    """Return the network in words."""
    return f"classifier, width {options.width}"


class Classifier(BaseModel):
    """The network, its optimizer, and what it minimises."""

    def __init__(self, loaded: Loaded, network: nn.Module, precision: Precision) -> None:
        super().__init__(precision.device)
        self._precision = precision
        self.networks[NETWORK] = network.to(self.device).train()
        self.optimizers[NETWORK] = optimizer_maker(loaded, ("train", "optim"), loaded.options.train.optim, network)(
            network.parameters()
        )
        self._objective = Objective(NETWORK, self.optimizers[NETWORK], self._loss, scaler=precision.new_scaler())
        checkpoint_gradients(loaded, self)

    def objectives(self) -> Sequence[Objective]:
        return (self._objective,)

    def scores(self, images: Tensor) -> Tensor:
        with self._precision.autocast():
            return self.networks[NETWORK](images.float() / 255).float()

    def _loss(self, batch: MicroBatch) -> LossTerms:
        return {"cross_entropy": cross_entropy(self.scores(batch["image"]), batch["label"])}


class Accuracy(BatchedValidation):
    """The share of images that are taken for what they are."""

    sample, smaller = "image", "a smaller image_size"
    better_is_higher = MappingProxyType({ACCURACY: True})

    def batch(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        return self.dataset.collate([self.dataset.full_sample(index) for index in indices])

    def measure(self, model: Classifier, tensors: Mapping[str, Tensor]) -> Mapping[str, float]:
        hits = model.scores(tensors["image"]).argmax(1) == tensors["label"]
        return {ACCURACY: float(hits.float().mean())}


def accuracy_on(images: FolderImages) -> Accuracy:
    """Return what measures a set."""
    return Accuracy(images, most=256, seen=f"{len(images)} images", samples=images.identity())


class ClassifierParts(TaskParts):
    """What a run consists of."""

    def __init__(self, loaded: Loaded, request: PartsRequest) -> None:
        self.loaded, options = loaded, loaded.options
        self.network, self.network_words = build_network(options), words_of(options)
        with locate_errors(loaded, ("train_images", "folder")):
            self.train_set = FolderImages("train", Path(options.train_images.folder), options)
        request.check_samples(self.train_set)
        with locate_errors(loaded, ("val_images", "folder")):
            self._val_set = FolderImages("val", Path(options.val_images.folder), options)
        self.datasets = [self.train_set, self._val_set]
        self.scans = {dataset.name: dataset.scan() for dataset in self.datasets}
        self.length = run_length(options)
        self.validates_every, self.best_metric, self.metrics = options.val_freq, ACCURACY, (ACCURACY,)

    def axes(self) -> tuple[Axis, ...]:
        return planned_axes()

    def first_plan(self) -> Plan:
        return Plan.of(batch_size=self.loaded.options.train.batch_size)

    def build_model(self, precision: Precision, *, pretrained: bool, parallel: Parallel | None = None) -> BaseModel:
        return Classifier(self.loaded, self.network, precision)

    def build_validators(
        self, directory: RunDirectory, device: torch.device, *, in_step: bool = False
    ) -> Sequence[ValidationSet]:
        return [accuracy_on(self._val_set)]


def planned_axes() -> tuple[Axis, ...]:
    """Return what memory follows: the number of images."""
    return (Axis(BATCH_SIZE, "images", 1, LARGEST_BATCH),)


class ImageClasses(EngineTask[ClassifierOptions]):
    """Option files of ``task: image_classes``, as commands know them."""

    smaller = "a smaller batch_size or image_size"

    def parts(self, loaded: Loaded, request: PartsRequest) -> TaskParts:
        return ClassifierParts(loaded, request)

    def fake(self, loaded: Loaded, *, like_cuda: bool, world_size: int, known: Mapping[str, Any]) -> FakeTraining:
        options, precision = loaded.options, choose_precision(loaded)
        return fake_training(
            lambda _mode: Classifier(loaded, build_network(options), precision),
            lambda plan: empty_batch(plan, samples_of(options)),
            precision,
            clips=options.train.grad_clip is not None,
            like_cuda=like_cuda,
        )

    def first_plan(self, loaded: Loaded) -> Plan:
        return Plan.of(batch_size=loaded.options.train.batch_size)

    def plan(self, loaded: Loaded, request: CardsRequest) -> CardPlans:
        steering = controller_arguments(loaded.options)
        given = steering or {}
        return plan_steps(
            loaded,
            request,
            words_of(loaded.options),
            planned_axes(),
            given.get("target_vram_usage"),
            most_samples=given.get("max_batch_size"),
            kept=self.first_plan(loaded) if steering is None else None,
        )

    def sample_options(self, loaded: Loaded) -> Mapping[str, Any]:
        options = loaded.options
        return {"manual_seed": options.manual_seed, "classes": options.classes, "image_size": options.image_size}

    def test(self, directory: RunDirectory, loaded: Loaded, parsed: argparse.Namespace) -> int:
        others = {"-opt": parsed.opt, "--lq": parsed.lq, "--device": parsed.device, "--answers": parsed.answers}
        refuse_given(others, "means nothing to a classifier", "test RUN, or test RUN FOLDER.")
        step, model = _trained(directory, loaded, parsed)
        images = FolderImages("test", Path(parsed.folder or loaded.options.val_images.folder), loaded.options)
        record, _ = accuracy_on(images).validate(model, step, SINGLE_PROCESS, StopSignals()) or (None, [])
        if record is not None:
            print(f"step {step}: accuracy {record.metrics[ACCURACY]:.1%} of {record.seen}")
        return 0

    def export(self, directory: RunDirectory, loaded: Loaded, parsed: argparse.Namespace) -> str:
        others = {"--format": parsed.format, "--half": parsed.half, "--size": parsed.size, "--merge": parsed.merge}
        refuse_given(others, "means nothing to a classifier", "export RUN OUT.safetensors")
        step, model = _trained(directory, loaded, parsed)
        out = parsed.out or Path(f"{loaded.options.name}_{step}.safetensors")
        check_free(out, overwrite=parsed.overwrite)
        write_atomically(out, lambda temporary: save_weights(model.networks[NETWORK], temporary))
        return f"{out}: classifier of step {step}"


def _trained(directory: RunDirectory, loaded: Loaded, parsed: argparse.Namespace) -> tuple[int, Classifier]:
    step, folder = Checkpoints(directory.checkpoints, keep=0).named(parsed.checkpoint or "best")
    network = build_network(loaded.options)
    load_weights(network, folder / f"{NETWORK}.safetensors")
    return step, Classifier(loaded, network, choose_precision(loaded))
