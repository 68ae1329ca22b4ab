"""Every key of an option file: type, default, unit, and why the default is what it is.

The JSON Schema for editors and docs/options.md are generated from this module. Arguments of components (networks,
losses, optimizers, ...) are not here: they are checked against the signature of the component that ``type`` names.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator

from trainauto.core.process import parse_size_bytes


def whole(value: Any) -> Any:
    """Return a float without a fraction as an int: BasicSR files write ``total_iter: !!float 5e5``."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Bounds come first, so that pydantic applies them to the int and shows them in the JSON Schema.
Whole = Annotated[int, BeforeValidator(whole)]
PositiveInt = Annotated[int, Field(ge=1), BeforeValidator(whole)]
NonNegativeInt = Annotated[int, Field(ge=0), BeforeValidator(whole)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Roots = str | list[str]
FolderName = Annotated[str, StringConstraints(pattern=r"^\w[\w.\- ]*$")]
"""A name that is also that of a folder, on every file system."""


def option(default: Any, description: str, *, unit: str = "", reason: str = "") -> Any:
    """Declare an option: what it is, its unit, and the reason for its default. ``...`` marks a required one."""
    extra: dict[str, Any] = {name: text for name, text in (("unit", unit), ("reason", reason)) if text}
    return Field(default, description=description, json_schema_extra=extra)


class Section(BaseModel):
    """Base of every section: unknown keys are refused, numbers are not taken from strings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Component(BaseModel):
    """A component by its registered name, with the arguments of its constructor beside it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: Annotated[str, StringConstraints(min_length=1)] = option(..., "Registered name, in any case.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything beside ``type``."""
        return dict(self.model_extra or {})


class TrainDataset(Section):
    """Where training samples come from and how many are drawn."""

    type: str = option(
        "PairedImageDataset",
        "PairedImageDataset (gt + lq folders) or GTImageDataset (lq is made from gt by antialiased bicubic).",
    )
    name: str = option("train", "Name of the set in messages.")
    dataroot_gt: Roots = option(
        ...,
        "Folder of high-quality images (searched recursively), an image file, or a list of them. `package:NAME/PATH` "
        "means PATH inside the installed Python package NAME.",
    )
    dataroot_lq: Roots | None = option(
        None, "Folder(s) of low-quality images, paired with dataroot_gt by relative path without the extension."
    )
    lq_size: PositiveInt = option(
        64, "Side of a training crop of the low-quality image.", unit="px", reason="fits 12 GB for most networks at x4"
    )
    batch_size_per_gpu: PositiveInt = option(
        8, "Samples in one forward pass at the start of the run.", unit="samples", reason="fits 12 GB for most networks"
    )
    accum_iter: PositiveInt = option(
        1,
        "Micro-batches in one optimizer step; a step draws batch_size_per_gpu * accum_iter samples.",
        unit="micro-batches",
        reason="1: no accumulation",
    )
    num_worker_per_gpu: NonNegativeInt = option(
        2, "Processes that decode images; 0 decodes in the training process.", unit="processes", reason="two cores"
    )
    lookahead: PositiveInt = option(
        8,
        "Batches drawn ahead of the step, the same for any number of workers: a larger plan acts after so many steps.",
        unit="batches",
        reason="hides decoding hiccups of 8 workers; at least num_worker_per_gpu",
    )
    use_hflip: bool = option(True, "Flip crops left to right at random.", reason="doubles the data at no cost")
    use_rot: bool = option(
        True, "Flip and rotate crops by quarter turns at random.", reason="eightfold data with hflip"
    )
    cache_dir: str | None = option(
        None,
        "Folder for a memory-mapped cache of decoded pixels, relative to the working directory; needs width * height * "
        "channels bytes an image.",
        reason="off: it costs disk",
    )
    decode_all: bool = option(
        False,
        "Decode every image before the run and refuse damaged ones. Without it, a JPEG that is damaged in its middle "
        "is named in the log when it is first read.",
        reason="off: it takes as long as reading the set once",
    )
    filename_tmpl: str | None = option(
        None,
        "Name of a low-quality image without its extension, where `{}` is that of its partner (BasicSR's meaning): "
        "'{}x4' pairs 0001.png with 0001x4.png. Without it, names are the same, or end in x2 to x9.",
        reason="DIV2K's names pair without it",
    )


class ValDataset(Section):
    """A set of whole images to validate on."""

    type: str = option("PairedImageDataset", "PairedImageDataset or GTImageDataset, as for training.")
    name: FolderName = option("val", "Name of the set in logs, curves and folders.")
    dataroot_gt: Roots = option(..., "As for training.")
    dataroot_lq: Roots | None = option(None, "As for training.")
    cache_dir: str | None = option(None, "As for training.")
    decode_all: bool = option(False, "As for training.")
    filename_tmpl: str | None = option(None, "As for training.")


class Datasets(BaseModel):
    """Training set and validation sets (`val`, and any number of `val_*`)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, ValDataset]

    train: TrainDataset = option(..., "Training set.")
    val: ValDataset | None = option(None, "First validation set.")

    @property
    def validation_sets(self) -> dict[str, ValDataset]:
        """All validation sets by key, in file order."""
        sets = {"val": self.val} if self.val else {}
        return {**sets, **(self.__pydantic_extra__ or {})}


class PathOptions(Section):
    """Where weights come from and where runs go."""

    experiments_root: str = option("experiments", "Folder of runs, relative to the working directory.")
    pretrain_network_g: str | None = option(None, "Weights to start from: .safetensors, .pth or .pt (no pickled code).")
    param_key_g: str | None = option(
        None,
        "Key of the weights inside a .pth that holds several.",
        reason="null tries params_ema, params, then the file itself",
    )
    strict_load_g: bool = option(
        True, "Refuse weights whose names or shapes differ; false loads what fits and lists the rest."
    )
    pretrain_network_d: str | None = option(None, "As pretrain_network_g, for the discriminator.")
    param_key_d: str | None = option(None, "As param_key_g.")
    strict_load_d: bool = option(True, "As strict_load_g.")


class TrainOptions(Section):
    """What is minimised, how, and for how long."""

    total_iter: PositiveInt | None = option(
        None, "Length of the run; schedules count steps too.", unit="optimizer steps"
    )
    total_samples: PositiveInt | None = option(
        None,
        "Length of the run; schedules count samples too, so that a changing batch does not distort them.",
        unit="samples",
    )
    losses: Annotated[list[Component], Field(min_length=1)] = option(
        ...,
        "Loss terms of the generator; each takes loss_weight. SRGANModel needs one ganloss among them, from which its "
        "discriminator learns too.",
    )
    optim_g: Component = option(..., "Optimizer of the generator: Adam, AdamW or SGD with its arguments.")
    optim_d: Component | None = option(
        None,
        "Optimizer of the discriminator of SRGANModel; scheduler and grad_clip hold for it too.",
        reason="null: there is none",
    )
    scheduler: Component = option(
        Component(type="constant"),
        "multistep, cosine, linear or constant; counted in steps with total_iter, in samples with total_samples.",
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = option(
        "none",
        "Factor of the rate where a step has another number of samples than batch_size_per_gpu * accum_iter (or than "
        "a controller's target_batch_size): their ratio (linear) or its square root (sqrt, for Adam). ema_decay "
        "follows with either, as decay ** ratio.",
        reason="none: rates stay those of the file, whatever the batch",
    )
    warmup_steps: NonNegativeInt = option(0, "Linear warm-up of the rate.", unit="optimizer steps", reason="off")
    warmup_ratio: Fraction = option(0.0, "Linear warm-up as a share of the run.", unit="share of the run", reason="off")
    ema_decay: Fraction = option(
        0.999,
        "Decay a step of the moving average of weights that is validated and saved; 0 is off.",
        reason="BasicSR's value",
    )
    grad_clip: Annotated[float, Field(gt=0.0)] | None = option(
        None, "Largest gradient norm; larger gradients are scaled down to it.", reason="off: SR losses rarely need it"
    )


TILE_SIZE = option(
    0, "Side of the tiles an image is cut into; 0 runs images whole until one does not fit.", unit="px of the input"
)
TILE_OVERLAP = option(
    16,
    "Pixels each tile sees beyond its own on every side.",
    unit="px of the input",
    reason="hides seams of small networks",
)


class ValOptions(Section):
    """When and how validation runs."""

    val_enabled: bool = option(True, "Run validation.")
    val_freq: PositiveInt = option(1000, "Steps between validations; one more runs at the end.", unit="optimizer steps")
    save_img: bool = option(True, "Keep the pictures of each validation in the run directory.")
    metrics: dict[str, Component] = option(
        {}, "Metrics by the name to log them under, e.g. `psnr: {type: calculate_psnr}`."
    )
    tile_size: NonNegativeInt = TILE_SIZE
    tile_overlap: NonNegativeInt = TILE_OVERLAP


class LoggerOptions(Section):
    """What is written, and how often."""

    print_freq: PositiveInt = option(100, "Steps between lines on the console.", unit="optimizer steps")
    save_checkpoint_freq: PositiveInt = option(
        1000, "Steps between checkpoints; one more is written at the end.", unit="optimizer steps"
    )
    keep_checkpoints: PositiveInt = option(
        3, "Newest checkpoints to keep, beside the best.", unit="checkpoints", reason="room for one that went wrong"
    )
    best_metric: str | None = option(
        None, "Name under val.metrics that decides which checkpoint is the best.", reason="null takes the first metric"
    )
    use_tb_logger: bool = option(True, "Write TensorBoard curves.")


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
        "Sum gradients while the backward pass goes on (DistributedDataParallel). A rank that runs out of memory then "
        "ends all of them, and torchrun --max-restarts starts them again from the last checkpoint. SRModel only.",
        reason="without it such a rank runs its batch again in pieces, and nothing is lost",
    )
    fully_shard: bool = option(
        False,
        "Spread weights, gradients and optimizer state over the ranks (FSDP2), for networks that do not fit one card. "
        "Running out of memory ends all ranks, as with ddp_overlap. SRModel only.",
        reason="gathering weights for every step costs time",
    )


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
    gradient_checkpointing: bool = option(
        False,
        "Keep only what goes into the repeated blocks of a network, and run them again in the backward pass: less "
        "memory, the same results, about a third more time. Not with use_compile.",
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
        if text is not None:
            parse_size_bytes(text)
        return text

    @property
    def has_budget(self) -> bool:
        """Whether a budget holds on some device."""
        return self.budget is not None or self.cpu_budget is not None

    def budget_bytes(self, device_type: str) -> int | None:
        """Return the budget that holds on a kind of device (``cpu``, ``cuda``), in bytes."""
        text = self.cpu_budget if device_type == "cpu" and self.cpu_budget is not None else self.budget
        return None if text is None else parse_size_bytes(text)


class AutomationSwitch(BaseModel):
    """An automation's own switch, with its arguments beside it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    enabled: bool = option(True, "Whether this automation runs.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything beside ``enabled``."""
        return dict(self.model_extra or {})


class Automations(BaseModel):
    """Automations by registered name, e.g. `PlanSchedule: {changes: [...]}`."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, AutomationSwitch]

    enabled: bool = option(True, "Master switch of all automations.")

    @property
    def active(self) -> dict[str, AutomationSwitch]:
        """The automations to run, in file order."""
        if not self.enabled:
            return {}
        return {name: switch for name, switch in (self.__pydantic_extra__ or {}).items() if switch.enabled}


class Options(Section):
    """One training run."""

    name: FolderName = option(..., "Name of the experiment and of its folder: letters, digits, space, . _ -")
    model_type: str = option(
        "SRModel", "Registered model: what is minimised. SRModel trains network_g alone, SRGANModel against network_d."
    )
    scale: Annotated[int, Field(ge=1, le=16), BeforeValidator(whole)] = option(4, "Enlargement factor.", unit="times")
    device: Literal["auto", "cpu", "cuda"] = option("auto", "Where to train; auto takes CUDA where there is one.")
    num_threads: PositiveInt | None = option(
        None,
        "Threads of one CPU operation; CPU results are repeatable for a fixed number.",
        unit="threads",
        reason="null: torch decides",
    )
    manual_seed: Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(whole)] = option(
        0, "Seed of weights, order, crops and flips."
    )
    deterministic: bool = option(False, "Only deterministic kernels; slower on CUDA.", reason="speed")
    use_amp: bool = option(False, "Run forward and loss under autocast.", reason="fp32 is the safe start")
    amp_bf16: bool = option(
        True, "With use_amp: bfloat16; false takes float16 with loss scaling.", reason="no overflow"
    )
    use_channels_last: bool = option(False, "Keep images as NHWC in memory; faster with autocast on recent GPUs.")
    use_compile: bool = option(
        False, "Run network_g through torch.compile with dynamic shapes.", reason="compiling costs minutes"
    )
    plugins: list[str] = option(
        [], "Python modules to import first (beside this file, or installed); they register components of your own."
    )
    datasets: Datasets = option(..., "Training and validation sets.")
    network_g: Component = option(..., "The network to train, with its arguments; scale is filled in.")
    network_d: Component | None = option(
        None,
        "The discriminator of SRGANModel, with its arguments, e.g. `{type: unetdiscriminatorsn}`.",
        reason="null: there is none",
    )
    path: PathOptions = option(PathOptions(), "Weights in, runs out.")
    train: TrainOptions = option(..., "Losses, optimizer, schedule, length.")
    val: ValOptions = option(ValOptions(), "Validation.")
    logger: LoggerOptions = option(LoggerOptions(), "Console, checkpoints, curves.")
    memory: MemoryOptions = option(MemoryOptions(), "Memory budget.")
    distributed: DistributedOptions = option(DistributedOptions(), "Several cards or machines.")
    training_automations: Automations = option(Automations(), "What steers the run while it goes.")
