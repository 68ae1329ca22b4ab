"""Rows of tokens and packed tokens as workloads, and a two-layer model of them: what the core must serve unchanged."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainauto.core.batch import Batch
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.workload import Tensors, Workload
from trainauto.models.base_model import BaseModel

VOCABULARY = 50
IGNORED = -100
"""Label of tokens that are not learned: those of the prompt, and padding."""


class TokenRows:
    """Rows of tokens: ``ids`` and ``labels`` (N, T); a row's weight is its number of supervised tokens."""

    weighs_samples = False

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        return {name: tensor[start:stop] for name, tensor in tensors.items()}

    def weight(self, tensors: Tensors) -> int:
        return int((tensors["labels"] != IGNORED).sum())

    def shape(self, tensors: Tensors) -> BatchShape:
        rows, tokens = tensors["ids"].shape
        return BatchShape(rows, tokens, tokens=rows * tokens)

    def units(self, tensors: Tensors) -> int:
        return tensors["ids"].numel()

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:
        return {name: tensor[:, :smaller] for name, tensor in tensors.items()}

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        ids = torch.zeros(samples, extent, dtype=torch.long)
        return {"ids": ids, "labels": ids.clone()}


class PackedTokens(TokenRows):
    """The tokens of all samples in one dimension, as patches of images come; ``lengths`` (N,) says whose they are."""

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        ends = [0, *tensors["lengths"].cumsum(0).tolist()]
        tokens = {name: tensors[name][ends[start] : ends[stop]] for name in ("ids", "labels")}
        return {**tokens, "lengths": tensors["lengths"][start:stop]}

    def shape(self, tensors: Tensors) -> BatchShape:
        lengths = tensors["lengths"]
        return BatchShape(len(lengths), int(lengths.max()), tokens=int(lengths.sum()))


class TokenModel(BaseModel):
    """Embedding and head; the loss is the mean over supervised tokens, ``fits`` the most samples of a forward pass."""

    def __init__(self, fits: int | None = None) -> None:
        super().__init__(torch.device("cpu"))
        torch.manual_seed(0)
        self.network = self.networks["net_g"] = nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY))
        self.optimizers["g"] = torch.optim.SGD(self.network.parameters(), lr=0.5)
        self.passes = (Objective("g", self.optimizers["g"], self.loss),)
        self.fits = fits
        self.forwards: list[int] = []

    def objectives(self) -> Sequence[Objective]:
        return self.passes

    def enlarge(self, lq: Tensor) -> Tensor:
        raise NotImplementedError

    def loss(self, micro_batch: MicroBatch) -> LossTerms:
        samples = len(micro_batch.get("lengths", micro_batch["ids"]))
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
        tensors = {"ids": torch.cat(ids), "labels": torch.cat(labels), "lengths": torch.tensor(lengths)}
    else:
        pad = nn.utils.rnn.pad_sequence
        tensors = {"ids": pad(ids, batch_first=True), "labels": pad(labels, batch_first=True, padding_value=IGNORED)}
    plan = Plan.of(batch_size=len(lengths), tokens=max(lengths), micro_batches=pieces)
    names = tuple(f"text {number}" for number in range(len(lengths)))
    return Batch(tensors, workload, names, 0, plan, plan, workload.shape(tensors), workload.units(tensors))
