"""Super-resolution, as commands know it: a network that enlarges images."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainauto.commands.doctor_checks import training
from trainauto.commands.engine_task import EngineTask
from trainauto.core.errors import TrainautoError
from trainauto.forecast.task import CardsRequest
from trainauto.options.degradation_options import NOT_USED, DegradationOptions
from trainauto.options.load import LoadedOptions
from trainauto.options.schema import Options
from trainauto.reporting.finding import BROKEN, Finding

# Nothing here may import torch at the top: see trainauto/forecast/task.py.
if TYPE_CHECKING:
    from trainauto.builders.file_checks import FileChecks
    from trainauto.builders.task_parts import PartsRequest, TaskParts
    from trainauto.commands.run_validate import DryRunner
    from trainauto.core.plan import Plan
    from trainauto.engine.traced_training import FakeTraining
    from trainauto.forecast.card_answer import CardPlans
    from trainauto.storage.run_directory import RunDirectory

OF_THE_SAMPLES = (
    "manual_seed",
    "scale",
    "input_pixel_format",
    *DegradationOptions.model_fields.keys() - set(NOT_USED),
)
OF_THE_AUGMENTATIONS = ("use_moa", "moa_augs", "moa_probs")
OF_THE_MACHINE = (
    "dataroot_gt",
    "dataroot_lq",
    "cache_dir",
    "meta_info",
    "decode_all",
    "num_worker_per_gpu",
    "lookahead",
    "name",
)
"""Options of the training set that may differ: where its files lie here, and how they are read."""


class SuperResolution(EngineTask[Options]):
    """Option files of ``task: super_resolution``, and those that name no task."""

    smaller = "a smaller batch_size_per_gpu or lq_size"

    def checks(self) -> "FileChecks":
        """Return the checks of components, image folders and weights."""
        from trainauto.builders.image_checks import IMAGE_CHECKS

        return IMAGE_CHECKS

    def parts(self, loaded: LoadedOptions, request: "PartsRequest") -> "TaskParts":
        """Build network, images and validation."""
        from trainauto.builders.super_resolution import SuperResolutionParts

        return SuperResolutionParts(loaded, request)

    def fake(
        self, loaded: LoadedOptions, *, like_cuda: bool, world_size: int, known: Mapping[str, Any]
    ) -> "FakeTraining":
        """Build the run on fake tensors."""
        from trainauto.forecast.traced_run import FakeRun

        del known
        return FakeRun.of(loaded, like_cuda=like_cuda, world_size=world_size)

    def first_plan(self, loaded: LoadedOptions) -> "Plan":
        """Return crop and batch of the option file."""
        from trainauto.builders.data import first_plan

        return first_plan(loaded.options)

    def plan(self, loaded: LoadedOptions, request: CardsRequest) -> "CardPlans":
        """Say which crops and batches fit on each card."""
        from trainauto.forecast.option_plans import plan_super_resolution

        return plan_super_resolution(loaded, request)

    def findings_of_samples(
        self, loaded: LoadedOptions, dry_runner: "DryRunner", built: Mapping[str, Any]
    ) -> Sequence[Finding]:
        """Return whether images are read as fast as steps need them."""
        try:
            read = dry_runner.read()
        except TrainautoError as error:
            return [Finding("reading", BROKEN, str(error))]
        return [training.reading_finding(read, built["plan"]["batch_size"], loaded.options.loading[0])]

    def sample_options(self, loaded: LoadedOptions) -> Mapping[str, Any]:
        """Return the options that say which crops steps have."""
        options = loaded.options
        train = options.datasets.train.model_dump()
        return {
            **{name: getattr(options, name, None) for name in OF_THE_SAMPLES},
            **{f"datasets:train:{name}": value for name, value in train.items() if name not in OF_THE_MACHINE},
            **{f"train:{name}": getattr(options.train, name) for name in OF_THE_AUGMENTATIONS},
        }

    def test(self, directory: "RunDirectory", loaded: LoadedOptions, parsed: argparse.Namespace) -> int:
        """Measure the network of a run on sets of images."""
        from trainauto.commands.test import test_images

        del directory, loaded
        return test_images(parsed)

    def export(self, directory: "RunDirectory", loaded: LoadedOptions, parsed: argparse.Namespace) -> str:
        """Write the network of a run as safetensors, .pth or ONNX."""
        from trainauto.commands.export import export_network

        del directory, loaded
        return export_network(parsed)
