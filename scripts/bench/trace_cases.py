"""Networks that traces are checked with: those of the repository, a GPT, and modules as people write them.

Each case builds the same model for real and on fake tensors, through the same code, and steps it through the engine.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainauto.builders.image_model import build_model, build_network
from trainauto.builders.precision import choose_precision
from trainauto.core.batch import Batch
from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.core.plan import BatchShape, Plan
from trainauto.core.workload import Tensors
from trainauto.engine.traced_training import FakeTraining, TracedModel, empty_batch
from trainauto.forecast.traced_run import FakeRun
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.models.base_model import BaseModel
from trainauto.optim.ema import Ema
from trainauto.optim.precision import Precision
from trainauto.options.load import load_options
from trainauto.tasks.sr.archs import ARCHS
from trainauto.tasks.sr.data.image_crops import ImageCrops
from trainauto.tasks.sr.towers.tower import DESIGNS

sys.path.append(str(Path(__file__).parents[1]))
from seeded_tower import write_seeded_tower

VOCABULARY = 512
CPU = torch.device("cpu")
MAX_NORM = 0.01
"""Below every gradient norm of a first step, so that real runs clip."""


@ARCHS.register("own_module")
class OwnModule(nn.Module):
    """A module as a person writes it: batch statistics, checkpointing, weights used twice, a constant from outside.

    Its initial weights come from ``trunc_normal_``, which draws until all are within bounds.
    """

    num_in_ch = 3

    def __init__(self, scale: int = 2, features: int = 16, checkpointed: bool = True) -> None:
        super().__init__()
        self.scale = scale
        self.checkpointed = checkpointed
        self.first = nn.Conv2d(3, features, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(features, features, 3, padding=1), nn.BatchNorm2d(features), nn.GELU())
        self.gate = nn.Parameter(torch.zeros(features))
        self.last = nn.Sequential(nn.Conv2d(features, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))
        nn.init.trunc_normal_(self.first.weight, std=0.02)
        self.mean = torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1)  # no buffer, as it happens

    def forward(self, image: Tensor) -> Tensor:
        """Enlarge (N, 3, H, W) to (N, 3, H * scale, W * scale)."""
        features = self.first(image - self.mean.to(image))
        for _ in range(3):
            deeper = checkpoint(self.body, features, use_reentrant=False) if self.checkpointed else self.body(features)
            features = features + deeper * torch.sigmoid(self.gate)[:, None, None]
        if not torch.isfinite(features).all():
            raise ValueError("features are not finite")
        return self.last(features).clamp(-1, 2)


class Block(nn.Module):
    """A transformer block; attention is written out or fused."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, T, C) to the same shape."""
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """A small GPT whose output layer is its embedding."""

    def __init__(self, width: int = 96, depth: int = 4, heads: int = 4, longest: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.zeros(longest, width))
        self.blocks = nn.ModuleList(Block(width, heads, fused=index % 2 == 0) for index in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Map (N, T) to logits (N, T, vocabulary)."""
        x = self.embedding(ids) + self.position[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class GPTModel(BaseModel):
    """Next-token prediction; a row has as many tokens as a crop of the plan has pixels."""

    def __init__(self, network: nn.Module, precision: Precision) -> None:
        super().__init__(precision.device)
        self._network = self.networks["net_g"] = network.to(precision.device)
        self._precision = precision
        self.averages["net_g"] = Ema(network, 0.999)
        self.optimizers["g"] = torch.optim.AdamW(network.parameters(), lr=1e-3)
        self._passes = (Objective("g", self.optimizers["g"], self._loss, scaler=precision.new_scaler()),)

    def objectives(self) -> Sequence[Objective]:
        """Return the one pass."""
        return self._passes

    def enlarge(self, lq: Tensor) -> Tensor:
        """Refuse: it enlarges nothing."""
        raise NotImplementedError

    def _loss(self, micro_batch: MicroBatch) -> LossTerms:
        ids = micro_batch["ids"]
        with self._precision.autocast():
            logits = self._network(ids[:, :-1])
            return {"ce": F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())}


class TokenRows:
    """Rows of tokens, as far as a step in one piece asks."""

    weighs_samples = True

    def part(self, tensors: Tensors, start: int, stop: int) -> dict[str, Tensor]:
        """Return some rows."""
        return {name: tensor[start:stop] for name, tensor in tensors.items()}

    def join(self, parts: Sequence[Tensors]) -> dict[str, Tensor]:
        """Return the rows of all parts, which are as long in each."""
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def weight(self, tensors: Tensors) -> int:
        """Return the number of rows."""
        return len(tensors["ids"])

    def shape(self, tensors: Tensors) -> BatchShape:
        """Return rows and their tokens."""
        return BatchShape(*tensors["ids"].shape, tokens=tensors["ids"].numel())

    def units(self, tensors: Tensors) -> int:
        """Return the tokens."""
        return tensors["ids"].numel()

    def shrink(self, tensors: Tensors, extent: int, smaller: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Cut rows to their first tokens."""
        return {name: tensor[:, :smaller] for name, tensor in tensors.items()}

    def dummy(self, samples: int, extent: int) -> dict[str, Tensor]:
        """Return rows of any tokens."""
        return {"ids": torch.randint(0, VOCABULARY, (samples, extent))}


def token_batch(plan: Plan) -> Batch:
    """Return rows of tokens, one more than the network sees."""
    samples, side = plan.batch_size, plan["lq_size"]
    ids = torch.randint(0, VOCABULARY, (samples, side**2 + 1))
    return Batch({"ids": ids}, TokenRows(), ("",) * samples, 0, plan, plan, BatchShape(samples, side))


def pixel_batch(plan: Plan, scale: int) -> Batch:
    """Return noise, as it would leave the loader."""
    batch = empty_batch(plan, ImageCrops(3, scale))
    for tensor in batch.tensors.values():
        tensor.random_(0, 256)
    return batch


@dataclass(frozen=True)
class Case:
    """A network with the plans it is traced under.

    Attributes:
        name: of the network.
        plans: those under which live bytes are compared.
        larger: those under which the process itself is measured.
        fake: makes the run on fake tensors.
        real: makes the same model for real.
        window_px: crops are padded to multiples of this.
        on_cards: those that a GPU is measured under.
    """

    name: str
    plans: Sequence[Plan]
    larger: Sequence[Plan]
    fake: Callable[[torch.dtype], FakeTraining]
    real: Callable[[torch.dtype], TracedModel]
    window_px: int = 1
    on_cards: Sequence[Plan] = ()


def grid(batches: Iterable[int], sizes: Iterable[int], pieces: int = 2) -> list[Plan]:
    """Return a plan for each batch and size, and the largest batch in pieces at each size."""
    batches, sizes = list(batches), list(sizes)
    whole = [Plan.of(batch_size=batch, lq_size=size) for batch in batches for size in sizes]
    return whole + [Plan.of(batch_size=batches[-1], lq_size=size, micro_batches=pieces) for size in sizes]


def spaced(*sizes: tuple[int, int]) -> list[Plan]:
    """Return plans by batch and crop."""
    return [Plan.of(batch_size=batch, lq_size=size) for batch, size in sizes]


ON_CARDS = spaced((2, 32), (4, 64), (8, 64), (16, 64), (4, 128), (8, 128), (16, 128), (32, 128))
ROWS_ON_CARDS = spaced((8, 8), (32, 8), (8, 16), (32, 16), (64, 12), (64, 16), (128, 16), (256, 16))


def option_case(
    name: str,
    folder: Path,
    options: Mapping[str, Any],
    plans: Sequence[Plan],
    larger: Sequence[Plan] = (),
    window_px: int = 1,
    device: str = "cpu",
) -> Case:
    """Return a case that an option file describes; its optimizer is Adam, it keeps an average and clips."""

    def loaded(dtype: torch.dtype) -> Any:
        file = folder / f"{name}.yml"
        amp = {"use_amp": dtype != torch.float32, "amp_bf16": dtype == torch.bfloat16}
        file.write_text(yaml.safe_dump(options_of({"device": device, **options, **amp}), sort_keys=False))
        return load_options(file)

    def real(dtype: torch.dtype) -> TracedModel:
        options = loaded(dtype)
        model = build_model(options, build_network(options), choose_precision(options))
        return TracedModel(model, lambda plan: pixel_batch(plan, options.options.scale), MAX_NORM)

    return Case(name, plans, larger, lambda dtype: FakeRun.of(loaded(dtype)), real, window_px, ON_CARDS)


def options_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole option file from what is particular to a case."""
    train = {
        "total_iter": 10,
        "losses": [{"type": "l1loss"}],
        "optim_g": {"type": "Adam", "lr": 1e-4},
        "grad_clip": MAX_NORM,
    }
    base = {
        "name": "traced",
        "scale": 4,
        "device": "cpu",
        "num_threads": 1,
        "datasets": {
            "train": {"type": "PairedImageDataset", "dataroot_gt": "no/gt", "dataroot_lq": "no/lq"}
        },  # any scale
    }
    return {**base, **changes, "train": {**train, **changes.get("train", {})}}


GAN = {
    "model_type": "SRGANModel",
    "network_g": {"type": "compact", "num_feat": 16, "num_conv": 4},
    "network_d": {"type": "unetdiscriminatorsn", "num_feat": 16},
    "train": {
        "losses": [{"type": "l1loss"}, {"type": "ssimloss"}, {"type": "ganloss", "loss_weight": 0.1}],
        "optim_d": {"type": "Adam", "lr": 1e-4},
    },
}


def gan_stage_case(folder: Path, device: str) -> Case:
    """Return a GAN stage with the losses that traiNNer-redux's templates switch on, against dunet and a full VGG19.

    The tower is written to ``folder``; its weights are seeded.
    """
    tower = folder / "vgg19.pth"
    write_seeded_tower(DESIGNS["vgg19"], tower)
    losses = [
        {"type": "charbonnierloss"},
        {"type": "mssimloss", "loss_weight": 0.5},
        {"type": "perceptualloss", "criterion": "charbonnier", "loss_weight": 0.01, "weights": str(tower)},
        {"type": "hsluvloss", "criterion": "charbonnier"},
        {"type": "ganloss", "loss_weight": 0.1},
    ]
    options = {
        "model_type": "SRGANModel",
        "network_g": {"type": "compact"},
        "network_d": {"type": "dunet"},
        "train": {"losses": losses, "optim_d": {"type": "AdamW", "lr": 1e-4}},
    }
    return option_case("GAN stage", folder, options, (), device=device)


def gpt_case(
    plans: Sequence[Plan], larger: Sequence[Plan], network: Callable[[], nn.Module], device: str = "cpu"
) -> Case:
    """Return a GPT; it has no option file."""

    def model(dtype: torch.dtype) -> BaseModel:
        return GPTModel(network(), Precision(torch.device(device), dtype))

    return Case(
        "GPT",
        plans,
        larger,
        lambda dtype: FakeRun(
            lambda _: model(dtype), token_batch, clips=True, libraries=card_libraries() if device == "cuda" else None
        ),
        lambda dtype: TracedModel(model(dtype), token_batch, MAX_NORM),
        on_cards=ROWS_ON_CARDS,
    )


def all_cases(folder: Path, device: str = "cpu") -> list[Case]:
    """Return every network with its grid of 20 plans and more; option files are written to ``folder``.

    They train on ``device``.

    RRDBNets are half as wide as published: activations, not weights, are to decide the peak at sizes that a test can
    run, on a CPU that takes twenty times as long for a convolution in bfloat16.
    """
    batches = (1, 2, 3)
    pixels, deep = grid((1, 2, 3, 4), (8, 12, 16, 20)), grid(batches, (8, 10, 12, 16, 20))
    half = {"type": "rrdbnet", "num_feat": 32, "num_grow_ch": 16}
    crops = spaced((1, 32), (2, 32), (4, 32), (2, 48), (1, 64), (4, 48), (2, 64), (4, 64))
    shorter = spaced((1, 24), (2, 24), (1, 32), (2, 32), (1, 48), (3, 32), (2, 40), (2, 48))
    windows = spaced((1, 16), (2, 16), (1, 24), (1, 32), (2, 24), (4, 16), (2, 32), (4, 24))
    rows = spaced((4, 8), (8, 8), (8, 12), (4, 16), (16, 10), (16, 12), (8, 16), (16, 16))
    own = spaced((4, 24), (8, 24), (16, 24), (8, 32), (4, 48), (16, 32), (8, 48), (16, 48))
    return [
        option_case("Compact", folder, {"network_g": {"type": "compact"}}, pixels, crops, device=device),
        option_case("RRDBNet-6", folder, {"network_g": {**half, "num_block": 6}}, deep, shorter, device=device),
        option_case("RRDBNet-16", folder, {"network_g": {**half, "num_block": 16}}, deep, shorter, device=device),
        option_case("SPAN", folder, {"network_g": {"type": "span"}}, pixels, crops, device=device),
        option_case(
            "SwinIR-light",
            folder,
            {"network_g": {"type": "swinir_light"}},
            grid(batches, (8, 12, 15, 16, 20)),
            windows,
            window_px=8,
            device=device,
        ),
        gpt_case(grid((1, 2, 4, 8), (4, 7, 10, 14)), rows, GPT, device),
        option_case("GAN", folder, GAN, pixels, crops, device=device),
        option_case(
            "own module",
            folder,
            {"scale": 2, "network_g": {"type": "own_module"}},
            grid((2, 4, 6, 8), (8, 12, 16, 24)),
            own,
            device=device,
        ),
    ]


def small_cases(folder: Path) -> list[Case]:
    """Return the same networks made small, with one plan: an odd size, in pieces that differ."""
    plans = (Plan.of(batch_size=3, lq_size=11, micro_batches=2),)
    swin = {"embed_dim": 12, "depths": [2], "num_heads": [2], "window_size": 4, "img_size": 8}
    gan = {**GAN, "network_g": {"type": "compact", "num_feat": 8, "num_conv": 1}}
    networks: dict[str, dict[str, Any]] = {
        "Compact": {"type": "compact", "num_feat": 8, "num_conv": 2},
        "RRDBNet": {"type": "rrdbnet", "num_feat": 8, "num_block": 1, "num_grow_ch": 4},
        "SPAN": {"type": "span", "feature_channels": 6},
        "SwinIR-light": {"type": "swinir_light", **swin},
    }
    cases = [option_case(name, folder, {"network_g": network}, plans) for name, network in networks.items()]
    return [
        *cases,
        gpt_case(plans, (), lambda: GPT(16, 2, 2)),
        option_case("GAN", folder, {**gan, "network_d": {"type": "unetdiscriminatorsn", "num_feat": 4}}, plans),
        option_case("own module", folder, {"scale": 2, "network_g": {"type": "own_module"}}, plans),
    ]
