"""The loss between a generator and its discriminator."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.sr.losses.base import checked_weight
from trainauto.tasks.sr.losses.registry import LOSSES

GanType = Literal["vanilla", "lsgan", "hinge", "wgan", "wgan_softplus"]
LABELLED = ("vanilla", "lsgan")


@LOSSES.register("GANLoss", "gan")
class GANLoss(nn.Module):
    """How far a discriminator's judgements are from a verdict; a model with a discriminator takes exactly one.

    * ``vanilla``: cross-entropy of the sigmoid of the judgements (Goodfellow et al. 2014, the generator's loss not
      saturating),
    * ``lsgan``: mean squared difference from the label (Mao et al. 2017),
    * ``hinge``: mean max(0, 1 - real) and max(0, 1 + made) for the discriminator, mean -made for the generator (Lim and
      Ye 2017),
    * ``wgan``: minus the mean of judgements that should be real, the mean of others (Arjovsky et al. 2017; without a
      penalty of gradients),
    * ``wgan_softplus``: the same with softplus, as StyleGAN2 has it; of labels 1 and 0 it equals ``vanilla``.

    It is a mean over samples in float32, like the losses of :mod:`trainauto.tasks.sr.losses.base`.

    Args:
        gan_type: one of the above.
        real_label_val: label of real images (``vanilla`` and ``lsgan`` alone have one).
        fake_label_val: label of made images.
        loss_weight: factor of the generator's term; the discriminator's terms have none.

    Raises:
        ValueError: another type, labels for a type that has none, or a weight that is negative or no finite number.
    """

    def __init__(
        self,
        gan_type: GanType = "vanilla",
        real_label_val: float = 1.0,
        fake_label_val: float = 0.0,
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if gan_type not in get_args(GanType):
            raise ValueError(f"gan_type must be one of {', '.join(get_args(GanType))}, not '{gan_type}'")
        if gan_type not in LABELLED and (real_label_val, fake_label_val) != (1.0, 0.0):
            raise ValueError(f"gan_type {gan_type} has no labels: leave out real_label_val and fake_label_val")
        self.gan_type: str = gan_type
        self.real_label_val = real_label_val
        self.fake_label_val = fake_label_val
        self.loss_weight = checked_weight(loss_weight)

    def forward(self, prediction: Tensor, target_is_real: bool, is_disc: bool = False) -> Tensor:
        """Return the loss of judgements, a scalar; the parameters are called as in BasicSR.

        Args:
            prediction: judgements (logits) of any shape, samples first.
            target_is_real: what they should have said.
            is_disc: whether the discriminator learns from it; else the generator, with ``loss_weight``.
        """
        with torch.autocast(prediction.device.type, enabled=False):
            loss = self.compute(prediction.float(), target_is_real, is_disc)
            return loss if is_disc else self.loss_weight * loss

    def compute(self, prediction: Tensor, target_is_real: bool, is_disc: bool) -> Tensor:
        """Return the unweighted loss of float32 judgements."""
        signed = prediction if target_is_real else -prediction
        if self.gan_type == "hinge":
            return F.relu(1 - signed).mean() if is_disc else -signed.mean()
        if self.gan_type == "wgan":
            return -signed.mean()
        if self.gan_type == "wgan_softplus":
            return F.softplus(-signed).mean()
        label = torch.full_like(prediction, self.real_label_val if target_is_real else self.fake_label_val)
        return self._difference(prediction, label)

    def _difference(self, prediction: Tensor, label: Tensor) -> Tensor:
        compare = F.mse_loss if self.gan_type == "lsgan" else F.binary_cross_entropy_with_logits
        return compare(prediction, label)

    def extra_repr(self) -> str:
        """Show the type and the weight where the module is printed."""
        return f"{self.gan_type}, loss_weight={self.loss_weight:g}"


@LOSSES.register("GAN_Loss")
class NeosrGANLoss(GANLoss):
    """neosr's names and defaults of the same loss, and one type more.

    Args:
        gan_type: ``bce`` (as ``vanilla``), ``mse`` (as ``lsgan``) or ``huber`` (with delta 1).
        real_label_val: label of real images.
        fake_label_val: label of made images.
        loss_weight: factor of the generator's term; the discriminator's terms have none.

    Raises:
        ValueError: another type.
    """

    def __init__(
        self,
        gan_type: Literal["bce", "mse", "huber"] = "bce",
        real_label_val: float = 1.0,
        fake_label_val: float = 0.0,
        loss_weight: float = 0.1,
    ) -> None:
        if gan_type not in ("bce", "mse", "huber"):
            raise ValueError(f"gan_type must be bce, mse or huber, not '{gan_type}'")
        super().__init__("lsgan" if gan_type == "mse" else "vanilla", real_label_val, fake_label_val, loss_weight)
        self.gan_type = gan_type

    def _difference(self, prediction: Tensor, label: Tensor) -> Tensor:
        if self.gan_type == "huber":
            return F.huber_loss(prediction, label)
        return (
            F.mse_loss(prediction, label)
            if self.gan_type == "mse"
            else F.binary_cross_entropy_with_logits(prediction, label)
        )
