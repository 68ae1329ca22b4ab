"""A small model of words and pictures together, with an answer for each task of the digits."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.tasks.multitask.digits import CHANGES, DIGIT_TASKS, DIGITS, ORDERS, SUMS, T1, T2, T3
from trainauto.tasks.multitask.registry import MULTITASK_MODELS

MOST_IMAGES = 2
"""Of a sample of the digits."""
_PATCHES = 16
"""Places of an image that the model looks at: 4 x 4."""
_KEPT = 8
"""Numbers that are kept of each in the end: where something is counts as much as that it is there."""


class _Block(nn.Module):
    """Attention among all tokens of a sample, then each for itself; normalised before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor, is_seen: Tensor) -> Tensor:
        rows, length, width = tokens.shape
        parts = self.inputs(self.first_norm(tokens)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=is_seen)
        tokens = tokens + self.output(mixed.transpose(1, 2).reshape(rows, length, width))
        seen: Tensor = tokens + self.narrow(F.gelu(self.wide(self.second_norm(tokens))))
        return seen


@MULTITASK_MODELS.register("DigitsModel")
class DigitsModel(nn.Module):
    """Reads a question and up to two pictures of 8 x 8 pixels, and answers by the task of the sample.

    The loss of a sample is the sum of the cross entropies of what is asked: of a digit (T1, 2.3 for a model that knows
    nothing), of digit and change (T2, 3.7), of sum and order (T3, 4.0).

    Args:
        vocabulary_size: tokens of the tokenizer.
        tasks: names in the order of their ids, as the collator has them.
        hidden_size: width of a token.
        layers: blocks of attention.
        heads: of each; they divide the width.
        most_tokens: longest text that can be read.

    Raises:
        ValueError: an argument cannot be used; the message begins with its name.
    """

    def __init__(
        self,
        vocabulary_size: int,
        tasks: Sequence[str] = DIGIT_TASKS,
        hidden_size: int = 64,
        layers: int = 2,
        heads: int = 4,
        most_tokens: int = 128,
    ) -> None:
        super().__init__()
        sizes = {"hidden_size": hidden_size, "layers": layers, "heads": heads, "most_tokens": most_tokens}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} is 1 or more, got {size}")
        if hidden_size % heads:
            raise ValueError(f"heads divides hidden_size, and {heads} does not divide {hidden_size}")
        if unknown := [name for name in tasks if name not in DIGIT_TASKS]:
            raise ValueError(f"tasks has {', '.join(unknown)}; this model answers {', '.join(DIGIT_TASKS)}")
        self.tasks = tuple(tasks)
        self.words = nn.Embedding(vocabulary_size, hidden_size)
        self.places = nn.Parameter(torch.randn(most_tokens, hidden_size) * 0.02)
        self.answer = nn.Parameter(torch.randn(hidden_size) * 0.02)
        self.seen_from = nn.Parameter(torch.randn(MOST_IMAGES, _PATCHES, hidden_size) * 0.02)
        self.stem = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(32, hidden_size, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(hidden_size, hidden_size, 3, padding=1),
            nn.GELU(),
        )
        self.layers = nn.ModuleList(_Block(hidden_size, heads) for _ in range(layers))
        self.kept = nn.Linear(hidden_size, _KEPT)
        features = hidden_size + MOST_IMAGES * _PATCHES * _KEPT
        self.norm, self.hidden = nn.LayerNorm(features), nn.Linear(features, 2 * hidden_size)
        self.heads = nn.ModuleDict(
            {
                name: nn.Linear(2 * hidden_size, classes)
                for name, classes in (("digit", DIGITS), ("change", len(CHANGES)), ("sum", SUMS), ("order", ORDERS))
            }
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        pixel_values: Tensor,
        image_mask: Tensor,
        task_ids: Tensor,
        labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Answer a batch.

        Args:
            input_ids: (N, length).
            attention_mask: (N, length), 1 where there is a token.
            pixel_values: (N, most images, 1, 8, 8).
            image_mask: (N, most images), true where there is an image.
            task_ids: (N,), places in ``tasks``.
            labels: (N,).

        Returns:
            ``predictions`` (N,), the most probable labels; with labels ``sample_losses`` (N,) and ``loss``, their mean.
        """
        features = self._read(input_ids, attention_mask, pixel_values, image_mask.bool())
        answers = {name: head(features) for name, head in self.heads.items()}
        asked = [(task_ids == self.tasks.index(name)) if name in self.tasks else None for name in (T1, T2, T3)]
        found = {name: scores.argmax(-1) for name, scores in answers.items()}
        changed, ordered = found["digit"] * len(CHANGES) + found["change"], found["sum"] * ORDERS + found["order"]
        predictions = _by_task(asked, (found["digit"], changed, ordered))
        if labels is None:
            return {"predictions": predictions}
        losses = _by_task(asked, _losses(answers, labels))
        return {"loss": losses.mean(), "sample_losses": losses, "predictions": predictions}

    def _read(self, input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor, image_mask: Tensor) -> Tensor:
        """Return what is known of each sample, (N, 2 * hidden_size)."""
        rows, length = input_ids.shape
        most = pixel_values.shape[1]
        width = self.answer.shape[0]
        looked_at = self.stem(pixel_values.flatten(0, 1).to(self.answer.dtype)).flatten(2).transpose(1, 2)
        seen = looked_at.reshape(rows, most, _PATCHES, width) + self.seen_from[:most]
        read = self.words(input_ids) + self.places[:length]
        tokens = torch.cat([self.answer.expand(rows, 1, -1), read, seen.flatten(1, 2)], dim=1)
        is_there = [attention_mask.new_ones(rows, 1).bool(), attention_mask.bool()]
        mask = torch.cat([*is_there, image_mask.repeat_interleave(_PATCHES, dim=1)], dim=1)
        for layer in self.layers:
            tokens = layer(tokens, mask[:, None, None, :])
        kept = self.kept(tokens[:, 1 + length :]).reshape(rows, most, _PATCHES * _KEPT)
        images = kept * image_mask.unsqueeze(-1)
        images = F.pad(images, (0, 0, 0, MOST_IMAGES - most)).flatten(1)
        return F.gelu(self.hidden(self.norm(torch.cat([tokens[:, 0], images], dim=1))))


def _losses(answers: dict[str, Tensor], labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses that the samples would have in each task; labels of others are brought into its range."""

    def entropy(name: str, wanted: Tensor) -> Tensor:
        scores = answers[name].float()
        return F.cross_entropy(scores, wanted.clamp(0, scores.shape[-1] - 1), reduction="none")

    digit, change = labels // len(CHANGES), labels % len(CHANGES)
    return (
        entropy("digit", labels),
        entropy("digit", digit) + entropy("change", change),
        entropy("sum", labels // ORDERS) + entropy("order", labels % ORDERS),
    )


def _by_task(asked: Sequence[Tensor | None], values: Sequence[Tensor]) -> Tensor:
    """Return of each sample the value of its task."""
    total = torch.zeros_like(values[0])
    for is_asked, value in zip(asked, values, strict=True):
        if is_asked is not None:
            total = torch.where(is_asked, value, total)
    return total
