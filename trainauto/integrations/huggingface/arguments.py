"""What the Trainer of transformers is told, with what batches by memory add to it."""

import logging
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from transformers import TrainingArguments

from trainauto.core.errors import InputError

logger = logging.getLogger(__name__)

OPTIONAL_COUNTS = (
    "max_batch_size",
    "tokens_per_batch",
    "max_tokens_per_batch",
    "eval_max_batch_size",
    "logging_samples",
    "eval_samples",
    "save_samples",
)
COUNTS = ("per_device_train_batch_size", "min_batch_size", *OPTIONAL_COUNTS)
"""Arguments that are whole numbers, 1 or more."""


@dataclass
class MemoryAwareTrainingArguments(TrainingArguments):  # type: ignore[misc]  # mypy does not follow transformers
    """Arguments of transformers, and those of batches by memory.

    ``per_device_train_batch_size`` is what batches begin with where memory is not known before.
    ``gradient_accumulation_steps`` above 1 fixes the samples of a step, their product: memory then decides in how many
    passes they run.

    Attributes:
        max_batch_size: most samples of a forward pass; not beside ``tokens_per_batch``. Without it a pass grows to the
            samples of a step, and steps keep the number of samples they have: a run gives what it gave before.
        min_batch_size: fewest, under pressure only.
        tokens_per_batch: padded tokens of a step in place of samples, to begin with; lengths come from the dataset's
            ``length_column_name``, else from its rows.
        max_tokens_per_batch: most padded tokens.
        memory_budget: ``"2GiB"``: on CUDA of the card, on a CPU what steps take beside what is held before.
        eval_max_batch_size: most samples of an evaluation batch; ``per_device_eval_batch_size`` stays without it.
        memory_settings: of the controller: ``{"target_vram_usage": 0.9}``; see
            :class:`~trainauto.control.control_settings.ControlSettings`.
        training_automations: what watches the run, as in option files: ``{"StopFile": {}}``; see docs/automations.md.
        run_directory: folder of runs for logs, curves and decisions; ``memory`` in ``output_dir``; empty writes none.
        logging_samples: logs after so many samples, beside ``logging_steps``.
        eval_samples: evaluates after so many samples.
        save_samples: saves after so many samples.
        warmup_ratio: share of the run in which rates rise: ``warmup_steps`` below 1, as transformers calls it now.
        group_by_length: ``train_sampling_strategy="group_by_length"``, as transformers calls it now.
        overwrite_output_dir: has no effect, as in transformers now.

    Raises:
        InputError: two arguments say different things, or one is no number that it can be.
    """

    max_batch_size: int | None = field(default=None, metadata={"help": "Most samples of a forward pass."})
    min_batch_size: int = field(default=1, metadata={"help": "Fewest samples of a forward pass, under pressure only."})
    tokens_per_batch: int | None = field(default=None, metadata={"help": "Padded tokens of a step to begin with."})
    max_tokens_per_batch: int | None = field(default=None, metadata={"help": "Most padded tokens of a step."})
    memory_budget: str | None = field(default=None, metadata={"help": "Memory that steps may take, such as 2GiB."})
    eval_max_batch_size: int | None = field(default=None, metadata={"help": "Most samples of an evaluation batch."})
    memory_settings: dict[str, Any] | str | None = field(default=None, metadata={"help": "Of the controller."})
    training_automations: dict[str, Any] | str | None = field(default=None, metadata={"help": "Watch the run."})
    run_directory: str | None = field(default=None, metadata={"help": "Folder of runs; output_dir/memory."})
    logging_samples: int | None = field(default=None, metadata={"help": "Logs after so many samples."})
    eval_samples: int | None = field(default=None, metadata={"help": "Evaluates after so many samples."})
    save_samples: int | None = field(default=None, metadata={"help": "Saves after so many samples."})
    warmup_ratio: float | None = field(default=None, metadata={"help": "Share of the run in which rates rise."})
    group_by_length: bool = field(default=False, metadata={"help": "Batches of similar lengths."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Has no effect."})

    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "memory_settings", "training_automations"]  # noqa: RUF012

    gives_direction = False
    """Whether ``greater_is_better`` was given, and not filled in by transformers."""

    def __post_init__(self) -> None:
        self.gives_direction = getattr(self, "greater_is_better") is not None  # noqa: B009
        self._check_counts()
        self._map_former_names()
        self._check_tokens()
        super().__post_init__()

    def _check_counts(self) -> None:
        for name in COUNTS:
            value = getattr(self, name)
            if value is None and name in OPTIONAL_COUNTS:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral):
                number = f": write {value.strip()}" if isinstance(value, str) and value.strip().isdigit() else ""
                raise InputError(f"{name} is a whole number, got {value!r}{number}")
            if value < 1:
                raise InputError(f"{name} must be 1 or more, got {value}")

    def _check_tokens(self) -> None:
        if self.tokens_per_batch is not None and self.max_batch_size is not None:
            raise InputError(
                "max_batch_size bounds batches counted in samples, and tokens_per_batch counts them in tokens: "
                "write max_tokens_per_batch, or leave tokens_per_batch out"
            )
        if self.max_tokens_per_batch is None:
            return
        if self.tokens_per_batch is None:
            raise InputError("max_tokens_per_batch bounds tokens_per_batch: give both, or count in samples")
        if self.max_tokens_per_batch < self.tokens_per_batch:
            raise InputError(
                f"tokens_per_batch begins with {self.tokens_per_batch}, above max_tokens_per_batch, "
                f"{self.max_tokens_per_batch}"
            )

    def _map_former_names(self) -> None:
        strategy: str = getattr(self, "train_sampling_strategy")  # noqa: B009  # mypy does not follow transformers
        if self.warmup_ratio is not None:
            if getattr(self, "warmup_steps"):  # noqa: B009
                raise InputError("warmup_ratio and warmup_steps both say how long rates rise: leave one of them out")
            if not 0 <= self.warmup_ratio < 1:
                raise InputError(f"warmup_ratio is a share of the run below 1, got {self.warmup_ratio:g}")
            self.warmup_steps = self.warmup_ratio
            self.warmup_ratio = None  # copies of the arguments would have both
        if self.group_by_length:
            if strategy not in ("random", "group_by_length"):
                raise InputError(
                    f"group_by_length and train_sampling_strategy='{strategy}' ask for different "
                    "orders: leave one of them out"
                )
            self.train_sampling_strategy = "group_by_length"
        if self.overwrite_output_dir:
            logger.info("overwrite_output_dir has no effect: transformers overwrites what lies in output_dir anyway")


def own_argument(args: Any, name: str) -> Any:
    """Return one of our arguments; its default where ``args`` are plain ones of transformers."""
    return getattr(args, name, getattr(MemoryAwareTrainingArguments, name, None))
