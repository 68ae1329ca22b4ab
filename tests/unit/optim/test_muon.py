"""Which weights of networks Muon steps."""

from typing import Any

import pytest
from torch import nn

from trainauto.archs import ARCHS
from trainauto.optim.muon import split_for_muon


def split(network: nn.Module) -> tuple[list[str], list[str], tuple[str, ...]]:
    found = split_for_muon(network, (one for one in network.parameters() if one.requires_grad))
    names = [name for name, one in network.named_parameters() if one.requires_grad]
    assert sorted([*found.hidden, *found.others]) == sorted(names)
    return list(found.hidden), list(found.others), found.ends


@pytest.mark.parametrize(
    ("name", "arguments", "ends", "hidden"),
    [
        ("compact", {"num_feat": 8, "num_conv": 2}, ("body.0.weight", "body.6.weight"), 2),
        (
            "rrdbnet",
            {"num_feat": 8, "num_block": 1, "num_grow_ch": 4},
            ("conv_first.weight", "conv_last.weight"),
            19,
        ),
        ("unetdiscriminatorsn", {"num_feat": 8}, ("conv0.weight", "conv9.weight"), 8),
    ],
)
def test_images(name: str, arguments: dict[str, Any], ends: tuple[str, str], hidden: int) -> None:
    """The first and the last convolution, biases and slopes are AdamW's."""
    found = split(ARCHS.get(name)(**arguments))
    assert tuple(one.replace("_orig", "") for one in found[2]) == ends
    assert len(found[0]) == hidden
    assert not set(found[2]) & set(found[0])


def test_windows_have_tables_of_positions() -> None:
    hidden, others, _ = split(ARCHS.get("swinir")(embed_dim=12, depths=[2], num_heads=[2], window_size=4))
    assert any("relative_position_bias_table" in name for name in others)
    assert any("qkv" in name for name in hidden)
    assert any("mlp" in name for name in hidden)
    assert not any("norm" in name or name.endswith("bias") for name in hidden)


def test_texts() -> None:
    """Embeddings are AdamW's, and so is the output where it is tied to them."""
    from transformers import GPT2Config, GPT2LMHeadModel

    small = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 30, "n_positions": 16}
    hidden, others, ends = split(GPT2LMHeadModel(GPT2Config(**small)))
    assert ends == ("transformer.wte.weight", "lm_head.weight")
    assert hidden == [
        f"transformer.h.0.{name}.weight" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    ]
    assert {"transformer.wte.weight", "transformer.wpe.weight"} <= set(others)


def test_frozen_weights_are_nobodys() -> None:
    network = ARCHS.get("compact")(num_feat=8, num_conv=2)
    for name, weight in network.named_parameters():
        weight.requires_grad_(name.startswith("body.4"))
    hidden, others, ends = split(network)
    assert hidden == ["body.4.weight"]
    assert others == ["body.4.bias"]
    assert ends == ()


def test_it_says_what_it_steps() -> None:
    network = ARCHS.get("compact")(num_feat=8, num_conv=2)
    words = str(split_for_muon(network, network.parameters()))
    assert words.startswith("Muon steps 2 hidden weights, ")
    assert "(body.0.weight and body.6.weight)" in words
