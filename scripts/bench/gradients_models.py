"""The five models of ``gradients.py``, and samples for them.

A model makes R rows of K values of a sample, (N, R, K), all float64. A sample has labels (R) and classes (R), values
(R, K) and a mask (R, K), so that every loss goes with every model.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainauto.archs import ARCHS

LEFT_OUT = -100
"""A label that does not count."""


@dataclass(frozen=True)
class ModelCase:
    """A model.

    Attributes:
        name: in tables.
        make: a new one, the same each time.
        inputs: of so many samples.
        rows: R.
        values: K.
        couples: whether it computes with statistics of its batch while it trains.
        needs_two: whether a batch of one sample is none that it can train.
        follows_parts: whether a pass over parts differs from one over the whole by chance or by what it keeps, so that
            a plain loop has to run the same parts.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    rows: int
    values: int
    couples: bool = False
    needs_two: bool = False
    follows_parts: bool = False

    def samples(self, count: int) -> dict[str, Tensor]:
        """Return ``count`` samples; labels that count differ in number, and so do classes and masks."""
        torch.manual_seed(7)
        shape = (count, self.rows)
        classes = torch.randint(0, self.values, shape)
        labels = classes.clone()
        for number in range(count):
            labels[number, 1 + number % self.rows :] = LEFT_OUT
        masks = (torch.rand(*shape, self.values) < torch.rand(count, 1, 1)).double()
        masks[:, 0, 0] = 1.0
        return {
            "x": self.inputs(count),
            "labels": labels,
            "classes": classes,
            "values": torch.randn(*shape, self.values, dtype=torch.float64),
            "mask": masks,
            "number": torch.arange(count),
        }


class Rows(nn.Module):
    """A trunk and a head whose outputs are rows."""

    def __init__(self, trunk: nn.Module, head: nn.Module, values: int) -> None:
        super().__init__()
        self.trunk, self.head, self._values = trunk, head, values

    def forward(self, x: Tensor) -> Tensor:
        """Return rows (N, R, K)."""
        return self.head(self.trunk(x)).flatten(1).unflatten(1, (-1, self._values))


class Pictures(nn.Module):
    """A network for super-resolution of the package; its pixels are the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.net = ARCHS.get("compact")(num_feat=8, num_conv=2, scale=2)

    @property
    def head(self) -> nn.Module:
        """The layer that makes the outputs."""
        return [layer for layer in self.net.modules() if isinstance(layer, nn.Conv2d)][-1]

    def forward(self, x: Tensor) -> Tensor:
        """Return rows (N, R, K)."""
        return self.net(x).flatten(1).unflatten(1, (-1, 4))


class Language(nn.Module):
    """A Llama of one layer; the logits of its tokens are the rows."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        self.net = LlamaForCausalLM(LlamaConfig(vocab_size=11, **sizes))

    @property
    def head(self) -> nn.Module:
        """The layer that makes the outputs."""
        return self.net.lm_head

    def forward(self, x: Tensor) -> Tensor:
        """Return rows (N, R, K)."""
        return self.net(input_ids=x, use_cache=False).logits


class Taught(nn.Module):
    """A student with a momentum teacher: its forward moves the teacher's weights, and assigns a buffer anew."""

    center: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 10), nn.Linear(10, 12)
        self.teacher = nn.Linear(6, 12).requires_grad_(False)
        self.student = nn.Linear(6, 12)
        self.register_buffer("center", torch.zeros(12, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows (N, R, K)."""
        taught = self.teacher(x).detach() - self.center
        if self.training:
            self.center = 0.5 * self.center + 0.5 * taught.mean(0)
            with torch.no_grad():
                for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                    slow.lerp_(fast, 0.25)
        rows = self.head(torch.tanh(self.trunk(x))) + self.student(x) * torch.tanh(taught)
        return rows.unflatten(1, (-1, 4))


def _dropout() -> nn.Module:
    return Rows(nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Dropout(0.3)), nn.Linear(10, 12), 4)


def _batch_norm() -> nn.Module:
    layers = [nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(6), nn.Tanh()]
    return Rows(nn.Sequential(*layers), nn.Linear(6, 12), 4)


def _of(kind: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(1)
        return kind().double().train()

    return make


def _numbers(*shape: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randn(count, *shape, dtype=torch.float64)


def _tokens(count: int) -> Tensor:
    return torch.randint(0, 11, (count, 5))


MODELS = (
    ModelCase("dropout", _of(_dropout), _numbers(6), 3, 4, follows_parts=True),
    ModelCase("batch norm", _of(_batch_norm), _numbers(3, 5, 5), 3, 4, couples=True, needs_two=True),
    ModelCase("super-resolution", _of(Pictures), _numbers(3, 3, 3), 27, 4),
    ModelCase("llama", _of(Language), _tokens, 5, 11),
    ModelCase("teacher", _of(Taught), _numbers(6), 3, 4, follows_parts=True),
)
