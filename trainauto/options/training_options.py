"""Options of losses, optimizers, schedule, length and validation."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from trainauto.options.degradation_options import AugmentationKind, Weights
from trainauto.options.fields import Component, Fraction, NonNegativeInt, PositiveInt, Section, option
from trainauto.options.run_options import AveragedTraining, is_schedule_free


class WeightSchedule(Section):
    """Steps in which a loss counts. Option files of other frameworks do not have this key.

    The loss is computed in every step, so that the first step needs as much memory as any later one.
    """

    start_iter: NonNegativeInt = option(0, "The weight of the loss is 0 up to and including this step.", unit="steps")
    ramp_iters: NonNegativeInt = option(
        0, "Number of steps after start_iter over which the weight rises linearly to loss_weight.", unit="steps"
    )
    end_iter: PositiveInt | None = option(
        None,
        "The weight of the loss is 0 after this step.",
        unit="steps",
        reason="null: the loss counts to the end of the run",
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> "WeightSchedule":
        if self.end_iter is not None and self.end_iter <= self.start_iter:
            raise ValueError(f"a loss that ends after step {self.end_iter} cannot begin after step {self.start_iter}")
        return self


class LossTermOptions(Component):
    """A loss with its arguments, its target and its schedule."""

    target: Literal["gt", "gt_usm"] = option(
        "gt",
        "Image that outputs are compared with: the high-quality image (gt), or its sharpened version, which the set "
        "makes (gt_usm). With the top-level key gt_usm, the image itself is sharpened.",
    )
    weight_schedule: WeightSchedule | None = option(
        None,
        "Steps in which the loss counts, e.g. `{start_iter: 5000, ramp_iters: 1000}`.",
        reason="null: all steps",
    )

    @model_serializer(mode="wrap")
    def _as_it_was_before_these_keys(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out defaults: options of a run that was begun without these keys have not changed."""
        written: dict[str, Any] = write(self)
        if "target" not in self.model_fields_set:
            written.pop("target", None)
        if self.weight_schedule is None:
            written.pop("weight_schedule", None)
        return written


class TrainOptions(AveragedTraining):
    """Losses, optimizers, schedule and length."""

    losses: Annotated[list[LossTermOptions], Field(min_length=1)] = option(
        ...,
        "Loss terms of the generator. Each takes loss_weight. A model with a discriminator needs exactly one "
        "ganloss here, and its discriminator learns from that loss too.",
    )
    optim_g: Component = option(
        ...,
        "Optimizer of the generator with its arguments: Adam, AdamW, NAdam or SGD of torch, AdanScheduleFree, or an "
        "optimizer of the packages pytorch_optimizer and schedulefree by its name there, such as adan, lion, muon, "
        "prodigy, soap or AdamWScheduleFree.",
    )
    optim_d: Component | None = option(
        None,
        "Optimizer of the discriminator of SRGANModel or ESRGANModel. scheduler and grad_clip apply to it too.",
        reason="null: no discriminator",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_a_second_average(cls, given: Any) -> Any:
        """Have ``ema_decay`` be 0 where nothing is given and the optimizer keeps an average itself."""
        if not isinstance(given, dict) or "ema_decay" in given or not isinstance(given.get("optim_g"), dict):
            return given
        return {**given, "ema_decay": 0.0} if is_schedule_free(str(given["optim_g"].get("type"))) else given

    use_moa: bool = option(
        False,
        "Augment training samples: each sample draws one augmentation from moa_augs. mixup averages two samples. "
        "cutmix pastes a box of another sample, resizemix a shrunk copy of one. cutblur pastes a box of the shrunk "
        "target into the low-quality crop. downup shrinks and enlarges that crop. up enlarges a part of both images.",
    )
    moa_augs: Annotated[list[AugmentationKind], Field(min_length=1)] = option(
        ["none", "mixup", "cutmix", "resizemix", "cutblur"],
        "Augmentations that use_moa draws from.",
        reason="as in traiNNer-redux's templates",
    )
    moa_probs: Weights = option(
        [0.4, 0.084, 0.084, 0.084, 0.348],
        "Weights of the augmentations in moa_augs, one for each.",
        reason="as in traiNNer-redux's templates",
    )
    moa_debug: bool = option(False, "Accepted and ignored: `degrade` and the run's page show samples.")
    moa_debug_limit: NonNegativeInt = option(100, "Accepted and ignored.")
    net_d_iters: PositiveInt = option(
        1,
        "The generator steps once in this many steps. The discriminator learns from its images in every step.",
        unit="steps",
    )
    net_d_init_iters: NonNegativeInt = option(
        0, "Number of steps at the start of the run in which the generator does not step.", unit="steps"
    )
    lr_scaling: Literal["none", "sqrt", "linear"] = option(
        "none",
        "Scale the learning rate of a step whose number of samples differs from batch_size_per_gpu * accum_iter, or "
        "from a controller's target_batch_size. The factor is the ratio of the two (linear) or its square root "
        "(sqrt, for Adam). With either, ema_decay becomes decay ** ratio.",
        reason="none: learning rates stay as in the file, whatever the batch size",
    )
    ema_decay: Fraction = option(
        0.999,
        "Decay per step of the moving average of weights, which is validated and saved. It averages over about 1 / "
        "(1 - decay) steps, 1000 by default, and a run should be several times as long. 0 disables it. With a "
        "schedule-free optim_g the default is 0: the optimizer's own average is validated and saved.",
        reason="BasicSR's value",
    )
    grad_clip: Annotated[float, Field(gt=0.0)] | None = option(
        None,
        "Maximum gradient norm. Gradients with a larger norm are scaled down to it.",
        reason="off: SR losses rarely need it",
    )


TILE_SIZE = option(
    0,
    "Side of the tiles that an image is cut into. 0 runs images whole, and in tiles once an image runs out of memory.",
    unit="px of the input",
)
TILE_OVERLAP = option(
    16,
    "Pixels beyond its own that each tile sees on every side.",
    unit="px of the input",
    reason="hides the seams of small networks",
)


class ValOptions(Section):
    """When and how validation runs."""

    val_enabled: bool = option(True, "Run validation.")
    val_freq: PositiveInt = option(
        1000, "Steps between two validations; another one runs at the end.", unit="optimizer steps"
    )
    save_img: bool = option(True, "Save the images of each validation in the run directory.")
    metrics: dict[str, Component] = option(
        {}, "Metrics by the name to log them under, e.g. `psnr: {type: calculate_psnr}`."
    )
    tile_size: NonNegativeInt = TILE_SIZE
    tile_overlap: NonNegativeInt = TILE_OVERLAP
