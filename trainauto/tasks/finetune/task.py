"""Fine-tuning of vision-language models, as commands know it."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainauto.commands.doctor_checks.finetuning import PACKAGES, finetuning_findings
from trainauto.commands.engine_task import EngineTask, refuse_accepted_samples
from trainauto.forecast.task import CardsRequest
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import LoadedOptions
from trainauto.reporting.finding import Finding, guarded

# Nothing here may import torch at the top: see trainauto/forecast/task.py.
if TYPE_CHECKING:
    from trainauto.builders.file_checks import FileChecks
    from trainauto.builders.task_parts import PartsRequest, TaskParts
    from trainauto.core.plan import Plan
    from trainauto.core.worker_process import WorkerProcess
    from trainauto.engine.traced_training import FakeTraining
    from trainauto.forecast.card_answer import CardPlans
    from trainauto.options.cards import CardPreset
    from trainauto.storage.run_directory import RunDirectory

Loaded = LoadedOptions[FinetuneOptions]

OF_THE_MACHINE = ("path", "val")
"""Options of the conversations that may differ in a replay: where they lie here."""


class FineTuning(EngineTask[FinetuneOptions]):
    """Option files of ``task: finetune``, and those with a section ``training``."""

    extra = "finetune"
    smaller = "a smaller per_device_train_batch_size, max_length or max_pixels"

    def train(self, loaded: Loaded, parsed: argparse.Namespace) -> int:
        """Train with the arguments of the command; return the exit code."""
        refuse_accepted_samples(parsed)
        return super().train(loaded, parsed)

    def needed(self, options: FinetuneOptions) -> Sequence[str]:
        """Return transformers, and peft for adapters."""
        del options
        return PACKAGES

    def checks(self) -> "FileChecks":
        """Return the checks of the model, its chat template and conversations."""
        from trainauto.builders.finetune_checks import FINETUNE_CHECKS

        return FINETUNE_CHECKS

    def parts(self, loaded: Loaded, request: "PartsRequest") -> "TaskParts":
        """Build model, processor and conversations."""
        from trainauto.builders.finetune import FinetuneParts

        return FinetuneParts(loaded, request)

    def replayed_as(self, options: FinetuneOptions, suffix: str) -> Sequence[str]:
        """Return another name, and another folder of runs: runs lie right in theirs."""
        folder = options.training.output_dir.rstrip("/\\")
        return [*super().replayed_as(options, suffix), f"training:output_dir={folder}{suffix}"]

    def sample_options(self, loaded: Loaded) -> Mapping[str, Any]:
        """Return the options that say which tokens and pictures steps have."""
        options = loaded.options
        dataset = options.dataset.model_dump()
        return {
            "manual_seed": options.manual_seed,
            **{f"dataset:{name}": value for name, value in dataset.items() if name not in OF_THE_MACHINE},
            **{f"model:{name}": getattr(options.model, name) for name in ("max_pixels", "chat_template")},
        }

    def first_plan(self, loaded: Loaded) -> "Plan":
        """Return the conversations of a pass of the option file."""
        from trainauto.core.plan import Plan

        return Plan.of(batch_size=loaded.options.training.per_device_train_batch_size)

    def fake(self, loaded: Loaded, *, like_cuda: bool, world_size: int, known: Mapping[str, Any]) -> "FakeTraining":
        """Build the run on fake tensors."""
        from trainauto.builders.finetune_networks import fake_finetuning
        from trainauto.builders.precision import choose_precision
        from trainauto.forecast.traced_run import fake_training, overlaps_in_trace, sums_after

        precision, together = choose_precision(loaded), (loaded.options.distributed, world_size)
        build, batch_of, told = fake_finetuning(loaded, precision, known, overlaps_in_trace(*together))
        clips, sums = bool(loaded.options.training.max_grad_norm), sums_after(*together)
        return fake_training(build, batch_of, precision, clips=clips, like_cuda=like_cuda, sums_after=sums, told=told)

    def plan(self, loaded: Loaded, request: CardsRequest) -> "CardPlans":
        """Say how many conversations fit on each card."""
        from trainauto.forecast.finetune_plans import plan_finetuning

        return plan_finetuning(loaded, request)

    def recipes(self, loaded: Loaded, cards: "Sequence[CardPreset]", child: "WorkerProcess", *, as_json: bool) -> str:
        """Return what each number format takes, with gradient checkpointing and without, in 4 bits and not."""
        from trainauto.commands.recipes_table import recipes_json, recipes_table
        from trainauto.forecast.finetune_recipes import plan_recipes

        answer = plan_recipes(loaded, cards, child)
        return recipes_json(answer) if as_json else recipes_table(answer)

    def findings(self, loaded: Loaded, built: dict[str, Any]) -> Iterator[Finding]:
        """Yield what ``doctor`` finds of packages, the model's folder and the data."""
        del built
        yield from guarded("run", lambda: list(finetuning_findings(loaded.options)))

    def test(self, directory: "RunDirectory", loaded: Loaded, parsed: argparse.Namespace) -> int:
        """Measure the model of a run, and show some of its answers."""
        from trainauto.builders.finetuned import as_seen_from_here
        from trainauto.commands.test import test_answers

        return test_answers(parsed, directory, as_seen_from_here(directory, loaded))

    def export(self, directory: "RunDirectory", loaded: Loaded, parsed: argparse.Namespace) -> str:
        """Write the model of a run, or its adapters."""
        from trainauto.builders.finetuned import as_seen_from_here
        from trainauto.commands.export import export_adapters

        return export_adapters(parsed, directory, as_seen_from_here(directory, loaded))
