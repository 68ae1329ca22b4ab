"""Models to be planned with: which of their layers stand-ins take the place of, and what is around these."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

from tests.four_bits import needs_bitsandbytes
from trainauto.memory.tracing.fake_tensors import fake_copy, fake_world
from trainauto.memory.tracing.four_bit_linear import FourBitLinear
from trainauto.memory.tracing.trace import trace
from trainauto.tasks.finetune.four_bit_stand_ins import with_four_bit_stand_ins
from trainauto.tasks.finetune.four_bits import bytes_in_four_bits
from trainauto.tasks.finetune.models import adapted, checkpoint_activations

pytest.importorskip("peft", reason="adapters are peft's")
sys.path.append(str(Path(__file__).parents[4] / "scripts" / "bench"))
import vision_memory as bench
from vision_memory import Case, Sizes

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]

TINY = Sizes(layers=1, width=64, words=64, samples=1, tokens=8, patches=4)
KEPT_OF_64_BY_64 = 2048 + 64 + 4 + 4 + 64 + 1024
"""Packed, largest of blocks, theirs, their mean, both codes."""


def names_of(model: nn.Module, kind: type[nn.Module]) -> set[str]:
    return {name for name, layer in model.named_modules() if type(layer) is kind}


def planned(name: str = "qwen3_vl", *, tied: bool = False) -> Any:
    """A model on ``meta``, as from a configuration."""
    with torch.device("meta"):
        model = bench.vision_model(name, TINY)
        model.config.tie_word_embeddings = model.config.get_text_config().tie_word_embeddings = tied
        again = type(model)(model.config)
    return with_four_bit_stand_ins(again, torch.bfloat16)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", bench.MODELS)
def test_the_head_alone_stays(name: str, tied: bool) -> None:
    model = planned(name, tied=tied)
    assert names_of(model, nn.Linear) == {"lm_head"}
    places = names_of(model, FourBitLinear)
    assert any("visual" in place or "vision" in place for place in places)
    assert any(place.endswith("down_proj") for place in places)


@needs_bitsandbytes
@pytest.mark.parametrize("name", bench.MODELS)
def test_they_are_where_layers_are_packed(name: str) -> None:
    import bitsandbytes

    real = bench.packed(Case(name, sizes=TINY), torch.float32)
    model = planned(name)
    assert names_of(model, FourBitLinear) == names_of(real, bitsandbytes.nn.Linear4bit)
    assert bytes_in_four_bits(model)[0] == bytes_in_four_bits(real)[0]


def test_bytes_by_hand() -> None:
    """Weights in 4 bits and their statistics; biases compute in what layers do."""
    model = planned("llava")
    layer = model.get_submodule("model.language_model.layers.0.self_attn.o_proj")
    assert bytes_in_four_bits(nn.Sequential(layer, nn.Linear(3, 2))) == (KEPT_OF_64_BY_64, 4 * 8)
    biases = {each.bias.dtype for each in model.modules() if isinstance(each, FourBitLinear) and each.bias is not None}
    assert biases == {torch.bfloat16}


def test_adapters_alone_learn_and_checkpoints_are_the_files_to_say() -> None:
    """Packing by peft's ``prepare_model_for_kbit_training`` would switch gradient checkpointing on."""
    model = adapted(planned(), 2, 4, 0.0, ["q_proj"])
    learning = {name: weight.dtype for name, weight in model.named_parameters() if weight.requires_grad}
    assert learning
    assert all("lora_" in name and dtype == torch.float32 for name, dtype in learning.items())
    assert model.is_gradient_checkpointing is False
    checkpoint_activations(model.base_model.model)
    assert model.is_gradient_checkpointing is True


@needs_bitsandbytes
def test_packing_changes_neither_norms_nor_checkpoints() -> None:
    case = Case("qwen3_vl", "bf16", lora=True, sizes=TINY, packed=True)
    model = case.build().module
    assert model.is_gradient_checkpointing is False
    norms = {weight.dtype for name, weight in model.named_parameters() if "norm" in name}
    assert norms == {torch.bfloat16}


class Model(nn.Module):
    """As transformers' rule sees one; the last layer stays."""

    _keep_in_fp32_modules = None
    all_tied_weights_keys: Mapping[str, str] = MappingProxyType({})

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64, bias=False))

    def get_output_embeddings(self) -> None:
        """Say that none is known."""


def test_a_pass_by_hand_of_a_fake_model_and_of_its_copy() -> None:
    with fake_world() as mode:
        model = with_four_bit_stand_ins(Model(), torch.float32)
        assert names_of(model, FourBitLinear) == {"layers.0"}
        inputs = torch.empty(4, 64)
        peaks = [
            trace(lambda each=each: each.layers(inputs), held=[each, inputs], steps=1).peak_bytes  # type: ignore[misc]
            for each in (model, fake_copy(model, mode, {}))
        ]
    weights = 64 * 128
    kept = KEPT_OF_64_BY_64 + (weights - 64 * 64) // 2 + 64 + 4 * 128
    taken = 4 * weights + 4 * weights // 64 + 4 * 4 * 128
    assert peaks == [kept + 4 * weights + 4 * 4 * 64 + taken] * 2
