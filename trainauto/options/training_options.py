"""Options of what is minimised, how and for how long, and of validation."""

from typing import Annotated, Literal

from pydantic import Field

from trainauto.options.fields import Component, Fraction, NonNegativeInt, PositiveInt, Section, option
from trainauto.options.run_options import RunTraining


class TrainOptions(RunTraining):
    """What is minimised, how, and for how long."""

    losses: Annotated[list[Component], Field(min_length=1)] = option(
        ...,
        "Loss terms of the generator; each takes loss_weight. A model with a discriminator needs one ganloss "
        "among them, from which its discriminator learns too.",
    )
    optim_g: Component = option(..., "Optimizer of the generator: Adam, AdamW or SGD with its arguments.")
    optim_d: Component | None = option(
        None,
        "Optimizer of the discriminator of SRGANModel or ESRGANModel; scheduler and grad_clip hold for it too.",
        reason="null: there is none",
    )
    net_d_iters: PositiveInt = option(
        1,
        "The generator steps in every so many steps of the run, the discriminator in all of them, on what the "
        "generator makes.",
        unit="steps",
    )
    net_d_init_iters: NonNegativeInt = option(
        0, "The generator does not step in the first so many steps of the run.", unit="steps"
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = option(
        "none",
        "Factor of the rate where a step has another number of samples than batch_size_per_gpu * accum_iter (or than "
        "a controller's target_batch_size): their ratio (linear) or its square root (sqrt, for Adam). ema_decay "
        "follows with either, as decay ** ratio.",
        reason="none: rates stay those of the file, whatever the batch",
    )
    ema_decay: Fraction = option(
        0.999,
        "Decay a step of the moving average of weights that is validated and saved, so that it averages over about "
        "1 / (1 - decay) steps: 1000 by default, and a run should be several times as long; 0 is off.",
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
