"""Options of what is minimised, how and for how long, and of validation."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from trainauto.options.degradation_options import AugmentationKind, Weights
from trainauto.options.fields import Component, Fraction, NonNegativeInt, PositiveInt, Section, option
from trainauto.options.run_options import AveragedTraining, is_schedule_free


class WeightSchedule(Section):
    """From which step to which a loss counts; trainauto's own, which option files of other frameworks do not have.

    The loss is computed in every step, so that the first one takes the memory that any will take.
    """

    start_iter: NonNegativeInt = option(0, "The loss weighs 0 up to this step and with it.", unit="steps")
    ramp_iters: NonNegativeInt = option(
        0, "Steps after start_iter in which its weight rises evenly, before it is loss_weight.", unit="steps"
    )
    end_iter: PositiveInt | None = option(
        None, "It weighs 0 after this step.", unit="steps", reason="null: it counts to the end of the run"
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> "WeightSchedule":
        if self.end_iter is not None and self.end_iter <= self.start_iter:
            raise ValueError(f"a loss that ends after step {self.end_iter} cannot begin after step {self.start_iter}")
        return self


class LossTermOptions(Component):
    """A loss, with how it takes part beside its arguments."""

    target: Literal["gt", "gt_usm"] = option(
        "gt",
        "What outputs are compared with: the image (gt), or the sharpened one that the set makes of it (gt_usm). "
        "Under the top level's gt_usm, the image itself is sharpened.",
    )
    weight_schedule: WeightSchedule | None = option(
        None,
        "Steps in which the loss counts, e.g. `{start_iter: 5000, ramp_iters: 1000}`.",
        reason="null: in all of them",
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
    """What is minimised, how, and for how long."""

    losses: Annotated[list[LossTermOptions], Field(min_length=1)] = option(
        ...,
        "Loss terms of the generator; each takes loss_weight. A model with a discriminator needs one ganloss "
        "among them, from which its discriminator learns too.",
    )
    optim_g: Component = option(
        ...,
        "Optimizer of the generator with its arguments: Adam, AdamW, NAdam or SGD of torch, AdanScheduleFree, or one "
        "of the packages pytorch_optimizer and schedulefree by its name there, such as adan, lion, muon, prodigy, soap "
        "or AdamWScheduleFree.",
    )
    optim_d: Component | None = option(
        None,
        "Optimizer of the discriminator of SRGANModel or ESRGANModel; scheduler and grad_clip hold for it too.",
        reason="null: there is none",
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
        "Augment training samples: each draws one of moa_augs. mixup averages two samples, cutmix pastes a box of "
        "another, resizemix another one shrunk; cutblur puts a box of the shrunk target into the low-quality crop, "
        "downup shrinks and enlarges that crop, up enlarges a part of both.",
    )
    moa_augs: Annotated[list[AugmentationKind], Field(min_length=1)] = option(
        ["none", "mixup", "cutmix", "resizemix", "cutblur"], "What use_moa draws from.", reason="as in its templates"
    )
    moa_probs: Weights = option(
        [0.4, 0.084, 0.084, 0.084, 0.348], "Weights of moa_augs, one for each.", reason="as in its templates"
    )
    moa_debug: bool = option(False, "Read and not used: `degrade` and the run's page show samples.")
    moa_debug_limit: NonNegativeInt = option(100, "Read and not used, as the key above.")
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
        "1 / (1 - decay) steps: 1000 by default, and a run should be several times as long; 0 is off. Beside a "
        "schedule-free optim_g it is 0: the optimizer's own average is validated and saved.",
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
