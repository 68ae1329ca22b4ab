"""Rows of tokens, packed tokens and texts with images as workloads, and a model of them: what the core must serve."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.sharding import SampleSharding
from trainauto.core.workload import Tensors, Workload
from trainauto.data.batcher import EqualDraws
from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey
from trainauto.data.sampler import ShuffledStream
from trainauto.models.base_model import BaseModel

VOCABULARY = 50
IGNORED = -100
"""Label of tokens that are not learned: those of the prompt, and padding."""


class TokenRows:
    """Rows of tokens: ``ids`` and ``labels`` (N, T), ``lengths`` (N,); a part is as wide as its longest row."""

    weighs_samples = False

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        rows, width = tensors["lengths"][start:stop], tensors["ids"].shape[1]
        longest = int(rows.max()) if len(rows) else 0
        return {name: _narrowed(tensor[start:stop], width, longest) for name, tensor in tensors.items()}

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        widths = {name: max(part[name].shape[1] if part[name].ndim > 1 else 0 for part in parts) for name in parts[0]}
        return {name: torch.cat([_widened(name, part[name], widths[name]) for part in parts]) for name in parts[0]}

    def weight(self, tensors: Tensors) -> int:
        return int((tensors["labels"] != IGNORED).sum())

    def shape(self, tensors: Tensors) -> BatchShape:
        rows, tokens = tensors["ids"].shape
        return BatchShape(rows, tokens, tokens=rows * tokens)

    def units(self, tensors: Tensors) -> int:
        return tensors["ids"].numel()

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        cut = {name: _narrowed(tensor, extent, smaller) for name, tensor in tensors.items()}
        return {**cut, "lengths": tensors["lengths"].clamp(max=smaller)}

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        ids = torch.zeros(samples, extent, dtype=torch.long)
        return {"ids": ids, "labels": ids.clone(), "lengths": torch.full((samples,), extent)}


def _narrowed(tensor: Tensor, width: int, smaller: int) -> Tensor:
    return tensor[:, :smaller] if tensor.ndim > 1 and tensor.shape[1] == width else tensor


def _widened(name: str, tensor: Tensor, width: int) -> Tensor:
    if tensor.ndim < 2 or tensor.shape[1] == width:
        return tensor
    missing = tensor.new_full((tensor.shape[0], width - tensor.shape[1], *tensor.shape[2:]), _padding(name))
    return torch.cat([tensor, missing], dim=1)


def _padding(name: str) -> int:
    return IGNORED if name == "labels" else 0


class PackedTokens(TokenRows):
    """The tokens of all samples in one dimension, as patches of images come; ``lengths`` (N,) says whose they are."""

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        ends = _ends(tensors["lengths"])
        tokens = {name: tensor[ends[start] : ends[stop]] for name, tensor in tensors.items() if name != "lengths"}
        return {**tokens, "lengths": tensors["lengths"][start:stop]}

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def shape(self, tensors: Tensors) -> BatchShape:
        lengths = tensors["lengths"].tolist()
        return BatchShape(len(lengths), max(lengths, default=0), tokens=sum(lengths))

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        lengths = tensors["lengths"].tolist()
        kept = torch.cat([torch.arange(length) < smaller for length in lengths])
        tokens = {name: tensor[kept] for name, tensor in tensors.items() if name != "lengths"}
        return {**tokens, "lengths": tensors["lengths"].clamp(max=smaller)}

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        ids = torch.zeros(samples * extent, dtype=torch.long)
        return {"ids": ids, "labels": ids.clone(), "lengths": torch.full((samples,), extent)}


class TextsWithImages(PackedTokens):
    """Packed texts, each with any number of images, as Qwen-VL takes them.

    ``images`` (N,) is how many images a sample has, ``grids`` (I, 3) how many patches each of those has along time,
    height and width, ``patches`` (P, D) all patches of all images.
    """

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        of_samples, of_images = _ends(tensors["images"]), _ends(tensors["grids"].prod(1))
        first, last = of_samples[start], of_samples[stop]
        return {
            **super().part(tensors, start, stop),
            "images": tensors["images"][start:stop],
            "grids": tensors["grids"][first:last],
            "patches": tensors["patches"][of_images[first] : of_images[last]],
        }


def _ends(counts: Tensor) -> list[int]:
    return [0, *counts.cumsum(0).tolist()]


class TokenTexts(DynamicDataset):
    """Texts of given lengths; a row is cut to the size in its key, and what follows a token is a function of it.

    Args:
        lengths: tokens of each text.
        workload: how they become batches: rows, or packed.
        vocabulary: number of different tokens.
    """

    name = "texts"

    def __init__(self, lengths: Sequence[int], workload: Workload | None = None, vocabulary: int = VOCABULARY) -> None:
        self.lengths = lengths
        self.workload = workload or TokenRows()
        self._vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self.lengths)

    def sample_name(self, index: int) -> str:
        return f"text {index}"

    def sample_key(self, index: int) -> str:
        return f"text_{index}"

    def scan(self) -> DatasetScan:
        return DatasetScan(len(self), min(self.lengths), "", 0)

    def __getitem__(self, key: SampleKey) -> dict[str, Tensor]:
        """Make a batch of one: a third of the text is its prompt, of which nothing is learned."""
        tokens = min(self.lengths[key.sample], key.size or self.lengths[key.sample])
        ids = (key.sample * 13 + torch.arange(tokens) * (1 + key.sample % 7)) % self._vocabulary
        labels = (ids * 7 + 3) % self._vocabulary
        labels[: min(tokens, self.lengths[key.sample] // 3)] = IGNORED
        packed = isinstance(self.workload, PackedTokens)
        row = {"ids": ids, "labels": labels} if packed else {"ids": ids[None], "labels": labels[None]}
        return {**row, "lengths": torch.tensor([tokens])}

    def full_sample(self, index: int) -> dict[str, Tensor]:
        return self[SampleKey(index, self.lengths[index], 0)]

    def collate(self, samples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        return self.workload.join(samples)


class TokenBudget(EqualDraws):
    """As many of the next texts as keep texts x longest within the plan's tokens, on every rank; one at least.

    Args:
        lengths: tokens of each text.
        order: of the texts in the stream.
        sharding: which rank trains which of them; one with less memory has as much less of a budget.
    """

    def __init__(self, lengths: Sequence[int], order: ShuffledStream, sharding: SampleSharding) -> None:
        self._lengths = lengths
        self._order = order
        self._sharding = sharding

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        samples = 1
        while self.fits(first_sample, samples + 1, plan.size):
            samples += 1
        return samples

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        return min(samples, self.batch_size(first_sample, plan))

    def fits(self, first_sample: int, samples: int, tokens: int) -> bool:
        positions = range(first_sample, first_sample + self._sharding.total(samples))
        longest = max(min(self._lengths[self._order.index_at(position)], tokens) for position in positions)
        shares = zip(self._sharding.samples(samples), self._sharding.weights, strict=True)
        return all(count * longest <= tokens * weight for count, weight in shares)


class TokenModel(BaseModel):
    """Embedding and head; the loss is the mean over supervised tokens, ``fits`` the most samples of a forward pass."""

    def __init__(self, fits: int | None = None, vocabulary: int = VOCABULARY) -> None:
        super().__init__(torch.device("cpu"))
        torch.manual_seed(0)
        layers = nn.Embedding(vocabulary, 8), nn.Linear(8, vocabulary)
        self.network = self.networks["net_g"] = nn.Sequential(*layers)
        self.optimizers["g"] = torch.optim.SGD(self.network.parameters(), lr=0.5)
        self.passes = (Objective("g", self.optimizers["g"], self.loss),)
        self.fits = fits
        self.forwards: list[int] = []

    def objectives(self) -> Sequence[Objective]:
        return self.passes

    def loss(self, micro_batch: MicroBatch) -> LossTerms:
        samples = len(micro_batch["lengths"])
        self.forwards.append(samples)
        if self.fits is not None and samples > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        logits, labels = self.network(micro_batch["ids"]).flatten(0, -2), micro_batch["labels"].flatten()
        total = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        return {"ce": total / (labels != IGNORED).sum().clamp(min=1)}

    def weights(self) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.network.parameters()])


def batch_of(workload: Workload, lengths: Sequence[int], supervised: Sequence[int], pieces: int = 1) -> Batch:
    """Return samples of so many tokens, of which the last so many are supervised."""
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in lengths]
    labels = [row.clone() for row in ids]
    for row, learned in zip(labels, supervised, strict=True):
        row[: len(row) - learned] = IGNORED
    if isinstance(workload, PackedTokens):
        tensors = {"ids": torch.cat(ids), "labels": torch.cat(labels)}
    else:
        pad = nn.utils.rnn.pad_sequence
        tensors = {"ids": pad(ids, batch_first=True), "labels": pad(labels, batch_first=True, padding_value=IGNORED)}
    tensors["lengths"] = torch.tensor(lengths)
    plan = Plan.of(batch_size=len(lengths), tokens=max(lengths), micro_batches=pieces)
    names = tuple(f"text {number}" for number in range(len(lengths)))
    return Batch(tensors, workload, names, 0, plan, plan, workload.shape(tensors), workload.units(tensors))
