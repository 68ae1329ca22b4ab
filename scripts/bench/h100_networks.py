"""Networks and steps of a public recording on an H100, rebuilt from their published configurations.

The recording is real_execution_H100.csv of github.com/sanketpurandare/mem-run-estimator at e2955a1: five steps of each
network, the optimizer's state made in the first, and the highest active and reserved bytes. transformers 4.46.2 and
timm 1.0.11 are the releases of its time; later ones take up to 15 % more or less.

What of a step takes memory is kept: models are made on the card, in half precision by torch's default dtype;
checkpointed modules are chosen by the names of their classes; gradients are dropped at the end of a step.
"""

import contextlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed._composable import checkpoint
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainauto.forecast.batch_shapes import Shapes

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
HALF, MIXED = "HP", "MP"
CHECKPOINTED: Mapping[str, frozenset[str]] = {
    "hf_T5": frozenset({"T5LayerFF", "T5LayerNorm"}),
    "hf_GPT2": frozenset({"GPT2Block"}),
    "llama_v3_1b": frozenset({"LlamaMLP", "LlamaRMSNorm"}),
    "gemma_2b": frozenset({"GemmaMLP", "GemmaRMSNorm"}),
    "hf_clip": frozenset({"CLIPEncoderLayer"}),
    "timm_vit": frozenset({"Block"}),
    "timm_convnext_v2": frozenset({"GlobalResponseNormMlp"}),
}
TIMM = {
    "timm_vit": "vit_huge_patch14_clip_224.laion2b_ft_in12k_in1k",
    "timm_convnext_v2": "convnextv2_huge.fcmae_ft_in22k_in1k_512",
}
CONFIGURATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hf_T5": ("T5Config", {
        "vocab_size": 32128, "d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16,
        "dropout_rate": 0.1, "feed_forward_proj": "relu", "decoder_start_token_id": 0, "pad_token_id": 0,
        "eos_token_id": 1,
    }),
    "hf_GPT2": ("GPT2Config", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "llama_v3_1b": ("LlamaConfig", {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "rope_scaling": {
            "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }),
    "gemma_2b": ("GemmaConfig", {
        "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 8192,
        "hidden_act": "gelu", "hidden_activation": None, "tie_word_embeddings": True,
    }),
}  # fmt: skip
CLIP_PARTS: Mapping[str, Mapping[str, Any]] = {
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
    "vision_config": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 336, "patch_size": 14,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """A step that was recorded.

    Attributes:
        network: its name there.
        batch: samples.
        length: tokens of each; of CLIP's texts.
        side: pixels of an image's side.
        precision: ``FP`` float32, ``HP`` float16, ``MP`` autocast to float16.
        is_checkpointed: some of its modules compute twice.
    """

    network: str
    batch: int
    length: int
    side: int
    precision: str
    is_checkpointed: bool

    @property
    def dtype(self) -> torch.dtype:
        """What weights and images are of."""
        return torch.float16 if self.precision == HALF else torch.float32

    def shapes(self) -> Shapes:
        """Return the shapes of a batch, as :class:`~trainauto.PlanRequest` takes them."""
        tokens = ("batch", self.length, torch.int64)
        image = ("batch", 3, self.side, self.side, self.dtype)
        if self.network in TIMM:
            return {"image": image, "labels": ("batch", torch.int64)}
        if self.network == "hf_clip":
            return {"image": image, "tokens": tokens, "mask": tokens}
        return {"tokens": tokens, "labels": tokens}

    def made(self, device: str) -> nn.Module:
        """Return the model, made on a device."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device(device):
                model = _made(self.network).to(dtype=self.dtype)
        finally:
            torch.set_default_dtype(before)
        if self.is_checkpointed:
            for module in list(model.modules()):
                if type(module).__name__ in CHECKPOINTED[self.network]:
                    checkpoint(module, preserve_rng_state=False)
        return model.train()

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return Adam as the recording made it."""
        if self.network in TIMM:
            with _without_torchvision():
                from timm.optim import create_optimizer_v2

                made: torch.optim.Optimizer = create_optimizer_v2(list(parameters), opt="adam")
            return made
        return torch.optim.Adam(parameters, lr=1e-4, weight_decay=1e-4, eps=1e-6)

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of a batch."""
        mixed = torch.autocast("cuda:0") if self.precision == MIXED else contextlib.nullcontext()
        with sdpa_kernel(FUSED), mixed:
            if self.network in TIMM:
                return functional.cross_entropy(model(batch["image"]), batch["labels"])
            if self.network == "hf_clip":
                loss: Tensor = model(batch["tokens"], batch["mask"], batch["image"])
                return loss
            causal: Tensor = model(input_ids=batch["tokens"], labels=batch["labels"]).loss
        return causal


class ContrastiveClip(nn.Module):
    """CLIP under the loss of Radford and others (2021) with a learned temperature, on one rank."""

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip
        self.logit_scale = nn.Parameter(torch.tensor(2.6593))

    def forward(self, tokens: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """Return the loss of a batch of pairs."""
        found = self.clip(input_ids=tokens, attention_mask=mask, pixel_values=image)
        self.logit_scale.data.clamp_(0.0, 4.6052)
        scale = self.logit_scale.exp()
        by_image = (found.image_embeds @ found.text_embeds.transpose(0, 1)) * scale
        by_text = (found.text_embeds @ found.image_embeds.transpose(0, 1)) * scale
        labels = torch.arange(len(image), device=image.device)
        return (functional.cross_entropy(by_image, labels) + functional.cross_entropy(by_text, labels)) / 2


def _made(network: str) -> nn.Module:
    if network in TIMM:
        with _without_torchvision():
            import timm

            model: nn.Module = timm.create_model(TIMM[network], pretrained=False)
        return model
    import transformers

    if network == "hf_clip":
        config = transformers.CLIPConfig(**CLIP_PARTS, projection_dim=768)
        return ContrastiveClip(transformers.CLIPModel._from_config(config))
    kind, arguments = CONFIGURATIONS[network]
    maker = transformers.AutoModelForSeq2SeqLM if network == "hf_T5" else transformers.AutoModelForCausalLM
    written: nn.Module = maker.from_config(getattr(transformers, kind)(**arguments))
    return written


@contextlib.contextmanager
def _without_torchvision() -> Iterator[None]:
    """Let timm be loaded where torchvision is not: it imports names of it that these two networks never use."""
    before = set(sys.modules)
    names = ("", ".ops", ".ops.misc", ".transforms", ".transforms.functional", ".datasets", ".models", ".utils")
    for name in (*names, ".models.feature_extraction"):
        module = _Anything(f"torchvision{name}")
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None, is_package=True)
        sys.modules[module.__name__] = module
        parent, _, last = module.__name__.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision" and name not in before]:
            del sys.modules[name]


class _Anything(types.ModuleType):
    """A module in which every name is a class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(
            name, (nn.Module,), {"NEAREST": 0, "BILINEAR": 2, "BICUBIC": 3, "BOX": 4, "HAMMING": 5, "LANCZOS": 1}
        )
