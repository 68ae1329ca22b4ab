"""Samples with one, two and four images and texts, a collator, and a small model that takes both."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

IMAGES = {"one": 1, "two": 2, "four": 4}
VOCABULARY = 64


class MixedSamples:
    """Samples of the tasks in turn, whose texts have 8 to ``longest`` tokens."""

    def __init__(self, samples: int, *, longest: int = 24, side: int = 16, says_tokens: bool = True) -> None:
        self.tasks = [list(IMAGES)[number % len(IMAGES)] for number in range(samples)]
        self.lengths = [8 + 5 * number % (longest - 7) for number in range(samples)]
        self.lengths[0] = longest
        self.side, self.says_tokens = side, says_tokens

    def __len__(self) -> int:
        return len(self.tasks)

    def get_sample_metadata(self, idx: int) -> dict[str, Any]:
        tokens = {"num_tokens": self.lengths[idx]} if self.says_tokens else {}
        return {"task_type": self.tasks[idx], "num_images": IMAGES[self.tasks[idx]], **tokens}

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        task = self.tasks[index]
        return {
            "input_ids": torch.randint(0, VOCABULARY, (self.lengths[index],), generator=generator),
            "images": torch.rand(IMAGES[task], 3, self.side, self.side, generator=generator),
            "task_type": task,
        }


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Pad to the longest text and the most images of the batch."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    most = max(len(sample["images"]) for sample in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.int64)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    pixels = torch.zeros(len(samples), most, *samples[0]["images"].shape[1:])
    has_image = torch.zeros(len(samples), most, dtype=torch.bool)
    for row, sample in enumerate(samples):
        tokens, images = len(sample["input_ids"]), len(sample["images"])
        ids[row, :tokens] = labels[row, :tokens] = sample["input_ids"]
        mask[row, :tokens] = 1
        pixels[row, :images], has_image[row, :images] = sample["images"], True
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": labels,
        "pixel_values": pixels,
        "image_mask": has_image,
        "task_ids": torch.tensor([list(IMAGES).index(sample["task_type"]) for sample in samples]),
        "metadata": [{"task_type": sample["task_type"]} for sample in samples],
    }


class Block(nn.Module):
    """Attention of two heads, and a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        n, places, width = hidden.shape
        parts = self.attend(self.before(hidden)).reshape(n, places, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(n, places, width)
        hidden = hidden + self.join(attended)
        return hidden + self.think(self.between(hidden))


class SeesAndReads(nn.Module):
    """Patches of images and tokens of texts through one encoder; the loss is that of the texts' tokens."""

    def __init__(self, width: int = 16, layers: int = 2, patch: int = 8, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.patch = patch
        self.see = nn.Linear(3 * patch**2, width)
        self.read = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.say = nn.Linear(width, vocabulary)

    def forward(self, input_ids: Tensor, pixel_values: Tensor, labels: Tensor | None = None) -> Mapping[str, Tensor]:
        n, images, _, height, width = pixel_values.shape
        cut = pixel_values.unfold(3, self.patch, self.patch).unfold(4, self.patch, self.patch)
        places = images * (height // self.patch) * (width // self.patch)
        patches = cut.permute(0, 1, 3, 4, 2, 5, 6).reshape(n, places, 3 * self.patch**2)
        hidden = torch.cat([self.see(patches), self.read(input_ids)], dim=1)
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.say(hidden[:, -input_ids.shape[1] :])
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def model_of(width: int = 16, layers: int = 2, **more: int) -> SeesAndReads:
    torch.manual_seed(0)
    return SeesAndReads(width, layers, **more)


def indices_of(dataset: MixedSamples, tasks: Sequence[str]) -> list[int]:
    """Return samples of these tasks, as they come."""
    places = {task: [i for i, name in enumerate(dataset.tasks) if name == task] for task in set(tasks)}
    return [places[task].pop(0) for task in tasks]
