"""Options of the resources of a run: memory, GPUs, machines."""

from typing import Literal

from pydantic import field_validator

from trainauto.core.process import parse_size_bytes
from trainauto.options.fields import Section, option


class DistributedOptions(Section):
    """Training on several GPUs or machines (``--launcher pytorch`` under torchrun)."""

    batches: Literal["equal", "memory"] = option(
        "equal",
        "How each step's batch is divided among ranks. `equal` gives every rank the same number of samples, so the "
        "GPU with the least memory limits all. `memory` gives each rank a share in proportion to the memory it may "
        "use, and weights losses by samples.",
        reason="equal GPUs finish together",
    )
    ddp_overlap: bool = option(
        False,
        "Sum gradients during the backward pass (DistributedDataParallel). If a rank runs out of memory, all ranks "
        "end, and `torchrun --max-restarts` restarts them from the last checkpoint. In super-resolution, SRModel "
        "only.",
        reason="without it, a rank that runs out of memory repeats its batch in micro-batches, and no step is lost",
    )
    fully_shard: bool = option(
        False,
        "Shard weights, gradients and optimizer state across ranks (FSDP2), for networks that do not fit on one "
        "GPU. If a rank runs out of memory, all ranks end, as with ddp_overlap. In super-resolution, SRModel only. "
        "Not available with `task: multitask`.",
        reason="gathering weights for every step costs time",
    )


AUTO = "auto"
"""Value of gradient_checkpointing: checkpoint as few blocks as let the file's plan fit."""


_LEAST_BUDGET_BYTES = 2**20


class MemoryOptions(Section):
    """How much memory a run may use."""

    budget: str | None = option(
        None,
        "Memory budget of the run, e.g. 600MiB or 10GiB. On CUDA it limits GPU memory. On the CPU it limits what "
        "training adds to the process; the operating system enforces it where it can (Linux).",
        reason="null: the whole GPU; no limit on the CPU",
    )
    cpu_budget: str | None = option(
        None,
        "Replaces budget where the run trains on a CPU. Set it in files that you use on both devices and that "
        "should fill the GPU.",
        reason="null: budget holds on both",
    )

    calibration: bool = option(
        True,
        "Start with the plan that an earlier run of the same kind settled on (same network, optimizer, precision, "
        "device and versions), and save what this run learns. The JSON files are in the user's cache folder, or in "
        "TRAINAUTO_CACHE. `policy: jump` only.",
        reason="saves the trace and the search; set false for runs whose plans must not depend on earlier ones",
    )
    gradient_checkpointing: bool | Literal["auto"] | list[str] = option(
        False,
        "Recompute the activations of a network's repeated blocks in the backward pass: less memory, the same "
        "results, about a third more time. Not with use_compile. `auto` checkpoints as few blocks as let the file's "
        "batch and crop size fit with 99 % probability, predicted by traces. The log names these blocks, and a "
        "resumed run keeps them. A list of block names checkpoints exactly those.",
        reason="off: it costs time",
    )
    allow_gradient_checkpointing: bool = option(
        False,
        "Let the run enable gradient_checkpointing if not even its smallest batch and crop size fit. Otherwise the "
        "run ends and reports what it would cost.",
        reason="steps take longer from then on; you decide whether that is worth it",
    )

    @field_validator("budget", "cpu_budget")
    @classmethod
    def _is_a_size(cls, text: str | None) -> str | None:
        if text is not None and parse_size_bytes(text) < _LEAST_BUDGET_BYTES:
            raise ValueError(f"'{text}' is less than any step takes; write 1MiB at least")
        return text

    @property
    def may_checkpoint(self) -> bool:
        """Whether the run may checkpoint more blocks if not even its smallest plan fits."""
        return self.allow_gradient_checkpointing or self.gradient_checkpointing == AUTO

    @property
    def has_budget(self) -> bool:
        """Whether a budget holds on some device."""
        return self.budget is not None or self.cpu_budget is not None

    def budget_bytes(self, device_type: str) -> int | None:
        """Return the budget that holds on a kind of device (``cpu``, ``cuda``), in bytes."""
        text = self.cpu_budget if device_type == "cpu" and self.cpu_budget is not None else self.budget
        return None if text is None else parse_size_bytes(text)
