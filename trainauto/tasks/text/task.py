"""Language models on local texts, as commands know them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainauto.commands.engine_task import EngineTask
from trainauto.forecast.task import CardsRequest
from trainauto.options.load import LoadedOptions
from trainauto.options.text_options import TextOptions

# Nothing here may import torch at the top: see trainauto/forecast/task.py.
if TYPE_CHECKING:
    from trainauto.builders.file_checks import FileChecks
    from trainauto.builders.task_parts import PartsRequest, TaskParts
    from trainauto.core.plan import Plan
    from trainauto.engine.traced_training import FakeTraining
    from trainauto.forecast.card_answer import CardPlans

Loaded = LoadedOptions[TextOptions]

OF_THE_MACHINE = ("path", "num_worker_per_gpu", "lookahead", "name")
"""Options of the training set that may differ in a replay: where its texts lie here, and how they are read."""


class LanguageModels(EngineTask[TextOptions]):
    """Option files of ``task: text``."""

    extra = "huggingface"
    smaller = "smaller tokens_per_batch or max_length"

    def needed(self, options: TextOptions) -> Sequence[str]:
        """Return transformers, and peft for adapters."""
        return ("transformers", *(["peft"] if options.model.lora is not None else []))

    def checks(self) -> "FileChecks":
        """Return the checks of components, texts, model and tokenizer."""
        from trainauto.builders.text_checks import TEXT_CHECKS

        return TEXT_CHECKS

    def parts(self, loaded: Loaded, request: "PartsRequest") -> "TaskParts":
        """Build model, tokenizer, texts and validation."""
        from trainauto.builders.language_model import LanguageModelParts

        return LanguageModelParts(loaded, request)

    def fake(self, loaded: Loaded, *, like_cuda: bool, world_size: int, known: Mapping[str, Any]) -> "FakeTraining":
        """Build the run on fake tensors."""
        from trainauto.builders.language_networks import fake_language_model
        from trainauto.builders.precision import choose_precision
        from trainauto.forecast.traced_run import fake_training, overlaps_in_trace, sums_after

        precision, together = choose_precision(loaded), (loaded.options.distributed, world_size)
        made = fake_language_model(loaded, precision, known, overlaps_in_trace(*together))
        clips, sums = loaded.options.settings.max_norm is not None, sums_after(*together)
        return fake_training(*made, precision, clips=clips, like_cuda=like_cuda, sums_after=sums)

    def first_plan(self, loaded: Loaded) -> "Plan":
        """Return the rows of the first batch, as long as they may be."""
        from trainauto.forecast.text_plans import first_rows

        return first_rows(loaded.options)

    def sample_options(self, loaded: Loaded) -> Mapping[str, Any]:
        """Return the options that say which tokens steps have."""
        options, train = loaded.options, loaded.options.datasets.train.model_dump()
        shares = {f"datasets:{key}:share": one.share for key, one in options.datasets.validation_sets.items()}
        return {
            "manual_seed": options.manual_seed,
            **{f"datasets:train:{name}": value for name, value in train.items() if name not in OF_THE_MACHINE},
            **shares,
            "tokenizer": options.tokenizer.model_dump(),
            "train:packed": options.train.packed,
            "train:row_length": options.train.row_length,
        }

    def plan(self, loaded: Loaded, request: CardsRequest) -> "CardPlans":
        """Say which batches fit at which length on each card."""
        from trainauto.forecast.text_plans import plan_language_model

        return plan_language_model(loaded, request)
