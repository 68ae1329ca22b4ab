"""Options of what a run may use: memory, cards, machines."""

from typing import Literal

from pydantic import field_validator

from trainauto.core.process import parse_size_bytes
from trainauto.options.fields import Section, option


class DistributedOptions(Section):
    """Training on several cards or machines (``--launcher pytorch`` under torchrun)."""

    batches: Literal["equal", "memory"] = option(
        "equal",
        "How a plan's batch is divided among ranks: `equal` gives each as many samples, so that the smallest card "
        "decides; `memory` gives each a share by the memory it may use, and losses are weighted by samples.",
        reason="equal cards finish together",
    )
    ddp_overlap: bool = option(
        False,
        "Sum gradients while the backward pass runs (DistributedDataParallel). A rank that runs out of memory then "
        "ends all of them, and torchrun --max-restarts starts them again from the last checkpoint. Of images: SRModel.",
        reason="without it such a rank runs its batch again in pieces, and nothing is lost",
    )
    fully_shard: bool = option(
        False,
        "Spread weights, gradients and optimizer state over the ranks (FSDP2), for networks that do not fit one card. "
        "Running out of memory ends all ranks, as with ddp_overlap. Of images: SRModel. Not of several tasks.",
        reason="gathering weights for every step costs time",
    )


AUTO = "auto"
"""Of gradient checkpointing: as few blocks as let the file's plan fit."""


_LEAST_BUDGET_BYTES = 2**20


class MemoryOptions(Section):
    """How much memory a run may take."""

    budget: str | None = option(
        None,
        "Memory the run may have, e.g. 600MiB or 10GiB: on CUDA of the card, on the CPU what training adds to the "
        "process, enforced by the operating system where it can (Linux).",
        reason="null: all of the card; no limit on the CPU",
    )
    cpu_budget: str | None = option(
        None,
        "As budget, where the run trains on a CPU: for files that are used on both, where a card should be filled.",
        reason="null: budget holds on both",
    )

    calibration: bool = option(
        True,
        "Start where an earlier run of the same kind settled (network, optimizer, precision, device, versions), and "
        "keep what this one learns: JSON files in the user's cache folder, or in TRAINAUTO_CACHE. `policy: jump` only.",
        reason="saves the trace and the search; false for runs whose plans must not depend on earlier ones",
    )
    gradient_checkpointing: bool | Literal["auto"] | list[str] = option(
        False,
        "Keep only what goes into the repeated blocks of a network, and run them again in the backward pass: less "
        "memory, the same results, about a third more time. Not with use_compile. `auto`: as few of them as let the "
        "file's batch and size fit with 99 % probability, by traces; the log names them, and resumes keep them. A list "
        "of such names: these.",
        reason="off: it costs time",
    )
    allow_gradient_checkpointing: bool = option(
        False,
        "Let the run switch gradient_checkpointing on when not even its smallest crop and batch fit; otherwise it ends "
        "and says what that would cost.",
        reason="a step takes longer from then on, and only its owner knows whether that is worth it",
    )

    @field_validator("budget", "cpu_budget")
    @classmethod
    def _is_a_size(cls, text: str | None) -> str | None:
        if text is not None and parse_size_bytes(text) < _LEAST_BUDGET_BYTES:
            raise ValueError(f"'{text}' is less than any step takes; write 1MiB at least")
        return text

    @property
    def may_checkpoint(self) -> bool:
        """Whether the run may have more blocks run again where not even its smallest plan fits."""
        return self.allow_gradient_checkpointing or self.gradient_checkpointing == AUTO

    @property
    def has_budget(self) -> bool:
        """Whether a budget holds on some device."""
        return self.budget is not None or self.cpu_budget is not None

    def budget_bytes(self, device_type: str) -> int | None:
        """Return the budget that holds on a kind of device (``cpu``, ``cuda``), in bytes."""
        text = self.cpu_budget if device_type == "cpu" and self.cpu_budget is not None else self.budget
        return None if text is None else parse_size_bytes(text)
