"""Schedule-free optimizers (A. Defazio et al. 2024, https://arxiv.org/abs/2405.15682): their average, and one of them.

Such an optimizer holds a sequence ``z`` of plain steps, and an average ``x`` of that sequence, which is the result.
Gradients are taken between both, at ``y = (1 - beta1) z + beta1 x``: these are the weights of the network in training.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.optim.ema import Ema
from trainauto.optim.registry import OPTIMIZERS


class ScheduleFreeAverage(Ema):
    """The average ``x`` of a schedule-free optimizer, computed into a copy of the network after every step.

    The weights in training are never switched to ``x`` and back: that round trip rounds them.

    Args:
        network: the network that the optimizer trains, before it is compiled or wrapped.
        optimizer: returns the optimizer, which may be built after this.
    """

    def __init__(self, network: nn.Module, optimizer: Callable[[], Optimizer]) -> None:
        super().__init__(network, decay=0.0)
        self._optimizer = optimizer

    @torch.no_grad()
    def update(self, network: nn.Module, share: float = 1.0) -> None:
        """Compute ``x`` from the weights ``y`` and the optimizer's ``z``; weights that it has not stepped are copied.

        A second call computes the same, so that one that ran out of memory may be repeated.
        """
        del share
        copies: dict[Tensor, Tensor] = dict(zip(network.parameters(), self.network.parameters(), strict=True))
        for weight, average in copies.items():
            average.copy_(weight)
        optimizer = self._optimizer()
        for group in optimizer.param_groups:
            stepped = [weight for weight in group["params"] if "z" in optimizer.state.get(weight, {})]
            if stepped:
                averages, ends = [copies[weight] for weight in stepped], [optimizer.state[one]["z"] for one in stepped]
                torch._foreach_lerp_(averages, ends, 1.0 - 1.0 / _interpolation(group))
        for average, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            average.copy_(buffer)
        self.updates += 1


@torch.no_grad()
def take_settings(optimizer: Optimizer, settings: Iterable[dict[str, Any]]) -> None:
    """Give groups of an optimizer other settings than it has stepped with.

    Where that changes the interpolation of a schedule-free one, the weights in training move so that ``x`` and ``z``
    stay what they are.
    """
    for group, of_group in zip(optimizer.param_groups, settings, strict=True):
        is_free = "weight_lr_power" in group
        before = _interpolation(group) if is_free else 0.0
        group.update(of_group)
        if is_free and (now := _interpolation(group)) != before:
            for weight in group["params"]:
                if (end := optimizer.state.get(weight, {}).get("z")) is not None:
                    weight.lerp_(end, 1.0 - 1.0 / before).lerp_(end, 1.0 - now)


def _interpolation(group: dict[str, Any]) -> float:
    """Return ``beta1``; the package's SGD calls it ``momentum``."""
    return float(group["betas"][0] if "betas" in group else group["momentum"])


@OPTIMIZERS.register("AdanScheduleFree", "adan_sf")
class AdanScheduleFree(Optimizer):
    """Schedule-free Adan: Adan's step (X. Xie et al. 2022, https://arxiv.org/abs/2208.06677) for the sequence ``z``.

    As in schedule-free AdamW, the interpolation by ``beta1`` takes the place of the average of gradients. With the
    gradient ``g`` at ``y``, its difference ``d`` from that of the step before (0 in the first), and the step ``k``::

        v = beta2 v + (1 - beta2) d
        n = beta3 n + (1 - beta3) (g + beta2 d)^2
        u = (g + beta2 v / (1 - beta2^k)) / (sqrt(n / (1 - beta3^k)) + eps) + weight_decay y
        z = z - lr u
        x = (1 - c) x + c z,  c = w_k / (w_1 + ... + w_k),  w_k = k^r max(lr so far)^weight_lr_power

    The optimizers of this name in traiNNer-redux and neosr move ``y`` and ``z`` by steps for which ``x`` is not the
    average of ``z``; runs with equal arguments differ from theirs.

    Args:
        params: weights, or groups of them.
        lr: learning rate; no schedule is needed.
        betas: interpolation between ``z`` and ``x``, decay of gradient differences, and of squares.
        eps: added to the denominator.
        weight_decay: decay towards 0 at ``y``, times ``lr``.
        warmup_steps: steps in which the rate rises to ``lr`` in a straight line.
        r: power of the step in the weights of the average.
        weight_lr_power: power of the rate in the weights of the average.

    Raises:
        ValueError: an argument lies outside of its range.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float, float] = (0.98, 0.92, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
    ) -> None:
        if not 0.0 < betas[0] < 1.0 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas must lie in [0, 1), the first of them above 0, got {betas}")
        for name, value in {"lr": lr, "eps": eps, "weight_decay": weight_decay, "warmup_steps": warmup_steps}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        taken = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "warmup_steps": warmup_steps}
        counted = {"k": 0, "weight_sum": 0.0, "lr_max": 0.0}
        super().__init__(params, {**taken, "r": r, "weight_lr_power": weight_lr_power, **counted})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step; return what ``closure`` does, which computes the loss and its gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step_group(group, weights)
        return loss

    def _step_group(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        beta1, beta2, beta3 = group["betas"]
        group["k"] += 1
        rate = group["lr"] * min(1.0, group["k"] / max(1, group["warmup_steps"]))
        group["lr_max"] = max(rate, group["lr_max"])
        counts = group["k"] ** group["r"] * group["lr_max"] ** group["weight_lr_power"] if group["lr_max"] else 0.0
        group["weight_sum"] += counts
        share = counts / group["weight_sum"] if group["weight_sum"] else 0.0

        gradients = [weight.grad for weight in weights if weight.grad is not None]
        states = [self._state_of(weight, gradient) for weight, gradient in zip(weights, gradients, strict=True)]
        before, differences, squares, ends = (
            [state[name] for state in states] for name in ("gradient", "exp_avg_diff", "exp_avg_sq", "z")
        )
        # The gradient before becomes the difference, and after its last use the gradient of now.
        torch._foreach_sub_(before, gradients)
        torch._foreach_neg_(before)
        torch._foreach_lerp_(differences, before, 1.0 - beta2)
        torch._foreach_mul_(before, beta2)
        torch._foreach_add_(before, gradients)
        torch._foreach_mul_(squares, beta3)
        torch._foreach_addcmul_(squares, before, before, value=1.0 - beta3)
        for kept, gradient in zip(before, gradients, strict=True):  # sharded weights have no _foreach_copy_
            kept.copy_(gradient)

        divisors = torch._foreach_div(squares, 1.0 - beta3 ** group["k"])
        torch._foreach_sqrt_(divisors)
        torch._foreach_add_(divisors, group["eps"])
        moves = torch._foreach_mul(differences, beta2 / (1.0 - beta2 ** group["k"]))
        torch._foreach_add_(moves, gradients)
        torch._foreach_div_(moves, divisors)
        if group["weight_decay"]:
            torch._foreach_add_(moves, weights, alpha=group["weight_decay"])
        # y from y and z alone, without x.
        torch._foreach_lerp_(weights, ends, share)
        torch._foreach_add_(weights, moves, alpha=rate * (beta1 * (1.0 - share) - 1.0))
        torch._foreach_sub_(ends, moves, alpha=rate)

    def _state_of(self, weight: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["z"] = weight.detach().clone(memory_format=torch.preserve_format)
            state["gradient"] = gradient.clone(memory_format=torch.preserve_format)
            state["exp_avg_diff"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        return state
