"""One model on samples of several tasks, as commands know it."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainauto.commands.engine_task import EngineTask, refuse_accepted_samples
from trainauto.forecast.task import CardsRequest
from trainauto.options.load import LoadedOptions
from trainauto.options.multitask_options import MultitaskOptions

# Nothing here may import torch at the top: see trainauto/forecast/task.py.
if TYPE_CHECKING:
    from trainauto.builders.file_checks import FileChecks
    from trainauto.builders.task_parts import PartsRequest, TaskParts
    from trainauto.core.plan import Plan
    from trainauto.engine.traced_training import FakeTraining
    from trainauto.forecast.card_answer import CardPlans

Loaded = LoadedOptions[MultitaskOptions]

OF_THE_BATCHES = (
    "base_batch_size",
    "target_batch_size",
    "use_gradient_accumulation",
    "task_distribution",
    "sampling",
    "task_diversity_weight",
)


class SeveralTasks(EngineTask[MultitaskOptions]):
    """Option files of ``task: multitask``."""

    extra = "multitask"
    smaller = "a smaller base_batch_size"

    def train(self, loaded: Loaded, parsed: argparse.Namespace) -> int:
        """Train with the arguments of the command; return the exit code."""
        refuse_accepted_samples(parsed)
        return super().train(loaded, parsed)

    def needed(self, options: MultitaskOptions) -> Sequence[str]:
        """Return transformers for tokenizers, and matplotlib for pictures."""
        del options
        return ("transformers", "accelerate", "matplotlib")

    def checks(self) -> "FileChecks":
        """Return the checks of components and tokenizer."""
        from trainauto.builders.multitask_checks import MULTITASK_CHECKS

        return MULTITASK_CHECKS

    def parts(self, loaded: Loaded, request: "PartsRequest") -> "TaskParts":
        """Build model, tokenizer and samples."""
        from trainauto.builders.multitask import MultitaskParts

        return MultitaskParts(loaded, request)

    def first_plan(self, loaded: Loaded) -> "Plan":
        """Return the samples of a pass of the option file."""
        from trainauto.core.plan import Plan

        return Plan.of(batch_size=loaded.options.train.base_batch_size)

    def fake(self, loaded: Loaded, *, like_cuda: bool, world_size: int, known: Mapping[str, Any]) -> "FakeTraining":
        """Build the run on fake tensors; where nothing is known of its samples, they are read here."""
        from trainauto.builders.multitask_data import build_task_data
        from trainauto.builders.multitask_networks import (
            SAMPLE,
            build_network,
            facts_of,
            fake_task_model,
            shared_names,
        )
        from trainauto.builders.precision import choose_precision
        from trainauto.forecast.traced_run import fake_network, fake_training, overlaps_in_trace, sums_after

        precision, together = choose_precision(loaded), (loaded.options.distributed, world_size)
        if SAMPLE not in known:
            data = build_task_data(loaded)
            known = facts_of(data, shared_names(loaded.options, data, build_network(loaded, data)), None)
        clips, sums = loaded.options.settings.max_norm is not None, sums_after(*together)
        made = fake_task_model(loaded, precision, known, fake_network, overlaps_in_trace(*together))
        return fake_training(*made, precision, clips=clips, like_cuda=like_cuda, sums_after=sums)

    def sample_options(self, loaded: Loaded) -> Mapping[str, Any]:
        """Return the options that say which samples steps have."""
        options = loaded.options
        return {
            "manual_seed": options.manual_seed,
            "datasets:train": options.datasets.train.model_dump(),
            "tokenizer": options.tokenizer.model_dump(),
            **{f"train:{name}": getattr(options.train, name) for name in OF_THE_BATCHES},
        }

    def plan(self, loaded: Loaded, request: CardsRequest) -> "CardPlans":
        """Say how many samples fit into a pass on each card."""
        from trainauto.builders.multitask import settings_of_controller
        from trainauto.builders.multitask_networks import largest_step
        from trainauto.core.plan import BATCH_SIZE, Axis
        from trainauto.forecast.step_plans import plan_steps

        settings, options = settings_of_controller(loaded), loaded.options
        target = (settings or {}).get("target_vram_usage", 1 - options.memory.margin)
        return plan_steps(
            loaded,
            request,
            options.model.type,
            (Axis(BATCH_SIZE, "samples", 1, max(MOST_SAMPLES, largest_step(options))),),
            target,
            most_samples=largest_step(options),
            kept=self.first_plan(loaded) if settings is None else None,
            notes=("Planned for samples as large as the largest of the training set.",),
        )


MOST_SAMPLES = 4096
"""Of a pass, that are looked at: more is more than a step is worth."""
