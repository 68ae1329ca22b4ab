"""Losses that compare features of VGG: perceptual (Johnson et al. 2016) and style (Gatys et al. 2016)."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainauto.tasks.sr.losses.base import Terms, WeightedLoss
from trainauto.tasks.sr.losses.color_spaces import require_rgb
from trainauto.tasks.sr.losses.criteria import criterion_named
from trainauto.tasks.sr.losses.registry import LOSSES
from trainauto.tasks.sr.towers.load_tower import load_tower
from trainauto.tasks.sr.towers.tower import DESIGNS, DEVIATION, MEAN, VGG19

LAYER_WEIGHTS = {"conv1_2": 0.1, "conv2_2": 0.1, "conv3_4": 1.0, "conv4_4": 1.0, "conv5_4": 1.0}
"""traiNNer-redux's, before ReLU as in ESRGAN."""


@LOSSES.register("PerceptualLoss", "perceptual")
class PerceptualLoss(WeightedLoss):
    """Differences of VGG19's features before ReLU, as in traiNNer-redux: what textures look like, not where they lie.

    Computed in float32. The first convolution is padded with the image's border.

    Args:
        loss_weight: factor of this term in the sum that is minimised.
        layer_weights: factor of each layer by its name.
        criterion: ``charbonnier`` or ``l1``.
        clip_min: the loss is never less, and has no gradient there.
        weights: file of VGG19's weights; without it torch.hub's folder is looked into.

    Raises:
        InputError: the weights are not there, or are another network's.
        ValueError: another criterion, or a layer that VGG19 does not have.
    """

    half_precision = False

    compares_features = True

    def __init__(
        self,
        loss_weight: float = 1.0,
        layer_weights: Mapping[str, float] | None = None,
        criterion: Literal["charbonnier", "l1"] = "charbonnier",
        clip_min: float = 0.0,
        weights: str | None = None,
    ) -> None:
        super().__init__(loss_weight)
        if criterion not in ("charbonnier", "l1"):
            raise ValueError(f"{type(self).__name__}: criterion must be charbonnier or l1, not '{criterion}'")
        self.layer_weights = dict(layer_weights if layer_weights is not None else LAYER_WEIGHTS)
        self.clip_min = clip_min
        self._compare = criterion_named(criterion, type(self).__name__)
        self.tower = load_tower(VGG19, self.layer_weights, weights, replicated=True)
        self.smallest_px = self.tower.smallest_px

    def compute(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the weighted sum over layers of mean differences."""
        require_rgb(prediction, type(self).__name__)
        found, wanted = self.tower(prediction), _fixed(self.tower, target)
        terms = [
            # In float32: Charbonnier's small constant is zero in float16, and its slope no number where features agree.
            weight * self._compare(found[name].float(), wanted[name].float()).mean()
            for name, weight in self.layer_weights.items()
        ]
        return torch.stack(terms).sum().clamp_min(self.clip_min)


@LOSSES.register("PerceptualFP16Loss")
class PerceptualFP16Loss(PerceptualLoss):
    """The same with VGG19 in the number format of ``use_amp``: faster, with half the memory."""

    half_precision = True


@LOSSES.register("VGGPerceptualLoss")
class VGGPerceptualLoss(WeightedLoss):
    """BasicSR's PerceptualLoss: features of VGG, and how they vary together (style).

    Args:
        loss_weight: factor of both terms.
        layer_weights: factor of each layer by its name, as in ``{conv5_4: 1.0}``, which is the default here.
        vgg_type: ``vgg19`` or ``vgg16``.
        use_input_norm: normalise images as VGG was trained on them.
        range_norm: images are from -1 to 1.
        perceptual_weight: factor of the features' term; 0 leaves it out.
        style_weight: factor of the term of Gram matrices; 0 leaves it out.
        criterion: ``l1``, ``l2``, or ``fro``, the Frobenius norm over the whole batch: samples then depend on each
            other, and a batch that runs out of memory cannot be split into micro-batches.
        weights: file of the tower's weights; without it torch.hub's folder is looked into.

    Raises:
        InputError: the weights are not there, or are another network's.
        ValueError: another tower or criterion, a layer that the tower does not have, or both weights are 0.
    """

    compares_features = True

    def __init__(
        self,
        loss_weight: float = 1.0,
        layer_weights: Mapping[str, float] | None = None,
        vgg_type: Literal["vgg19", "vgg16"] = "vgg19",
        use_input_norm: bool = True,
        range_norm: bool = False,
        perceptual_weight: float = 1.0,
        style_weight: float = 0.0,
        criterion: Literal["l1", "l2", "fro"] = "l1",
        weights: str | None = None,
    ) -> None:
        super().__init__(loss_weight)
        if vgg_type not in ("vgg19", "vgg16"):
            raise ValueError(f"VGGPerceptualLoss: vgg_type must be vgg19 or vgg16, not '{vgg_type}'")
        if not (perceptual_weight > 0 or style_weight > 0):
            raise ValueError(
                "VGGPerceptualLoss: perceptual_weight and style_weight are both 0: nothing would be compared"
            )
        self.layer_weights = dict(layer_weights or {"conv5_4" if vgg_type == "vgg19" else "conv5_3": 1.0})
        self.perceptual_weight, self.style_weight = perceptual_weight, style_weight
        self.couples_samples = criterion == "fro"
        self._compare = _criterion(criterion)
        mean, deviation = (list(MEAN), list(DEVIATION)) if use_input_norm else ([0.0] * 3, [1.0] * 3)
        if range_norm:  # (x + 1) / 2, then the normalisation
            mean, deviation = [2 * m - 1 for m in mean], [2 * d for d in deviation]
        self.tower = load_tower(DESIGNS[vgg_type], self.layer_weights, weights, mean=mean, deviation=deviation)
        self.smallest_px = self.tower.smallest_px

    def compute(self, prediction: Tensor, target: Tensor) -> Terms:
        """Return the terms ``percep`` and ``style``, as far as their weights are above 0."""
        require_rgb(prediction, "VGGPerceptualLoss")
        found, wanted = self.tower(prediction), _fixed(self.tower, target)
        terms: Terms = {}
        if self.perceptual_weight > 0:
            each = [w * self._compare(found[name], wanted[name]) for name, w in self.layer_weights.items()]
            terms["percep"] = self.perceptual_weight * torch.stack(each).sum()
        if self.style_weight > 0:
            each = [
                w * self._compare(_gram(found[name]), _gram(wanted[name])) for name, w in self.layer_weights.items()
            ]
            terms["style"] = self.style_weight * torch.stack(each).sum()
        return terms


def _criterion(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    if name == "l1":
        return F.l1_loss
    if name == "l2":
        return F.mse_loss
    if name == "fro":
        return lambda x, y: torch.linalg.vector_norm(x - y)
    raise ValueError(f"VGGPerceptualLoss: criterion must be l1, l2 or fro, not '{name}'")


def _gram(features: Tensor) -> Tensor:
    """Return products of channels averaged over places, (N, C, C), divided by the number of channels."""
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / (flat.shape[1] * flat.shape[2])


@torch.no_grad()
def _fixed(tower: torch.nn.Module, target: Tensor) -> dict[str, Tensor]:
    features: dict[str, Tensor] = tower(target)
    return features
