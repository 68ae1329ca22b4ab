"""Metrics of image quality as losses: DISTS and LPIPS."""

from torch import Tensor

from trainauto.tasks.sr.losses.base import WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import require_rgb
from trainauto.tasks.sr.losses.registry import LOSSES
from trainauto.tasks.sr.towers.dists import Dists
from trainauto.tasks.sr.towers.lpips import Lpips, Net


@LOSSES.register("DISTSLoss", "dists", "dists_loss")
class DISTSLoss(WeightedLoss):
    """DISTS: structure and texture by VGG16's features; tolerates textures that are alike but lie elsewhere.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        as_loss: read and not used, as a loss is what it is.
        load_weights: read and not used: DISTS without its published factors would be another loss.
        use_input_norm: normalise images as VGG was trained on them.
        clip_min: the loss is never less, and has no gradient there.
        weights: file of VGG16's weights; without it torch.hub's folder is looked into.

    Raises:
        InputError: VGG16's weights, or the package DISTS-pytorch, are not there.
    """

    compares_features = True

    def __init__(
        self,
        loss_weight: float = 1.0,
        as_loss: bool = True,  # noqa: ARG002  part of the interface
        load_weights: bool = True,  # noqa: ARG002  part of the interface
        use_input_norm: bool = True,
        clip_min: float = 0.0,
        weights: str | None = None,
    ) -> None:
        super().__init__(loss_weight)
        self.clip_min = clip_min
        self.distance = Dists(weights, use_input_norm)

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean DISTS."""
        require_rgb(prediction, "DISTSLoss")
        distance: Tensor = self.distance(prediction, target)
        return distance.mean().clamp_min(self.clip_min)


@LOSSES.register("LPIPSLoss", "lpips")
class LPIPSLoss(WeightedLoss):
    """LPIPS: differences as people judge them.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        net: tower whose features are compared, ``alex`` or ``vgg``; ``vgg`` is what LPIPS' authors train with.
        weights: file of the tower's weights; without it torch.hub's folder is looked into.

    Raises:
        InputError: the tower's weights, or the package lpips, are not there.
        ValueError: another tower.
    """

    compares_features = True

    def __init__(self, loss_weight: float = 1.0, net: Net = "vgg", weights: str | None = None) -> None:
        super().__init__(loss_weight)
        self.distance = Lpips(net, weights)
        self.smallest_px = self.distance.tower.smallest_px

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the mean LPIPS."""
        require_rgb(prediction, "LPIPSLoss")
        distance: Tensor = self.distance(prediction, target)
        return distance.mean()
