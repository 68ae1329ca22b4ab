"""Option files whose weights are spread over ranks, each with a plan of its step."""

from pathlib import Path
from typing import Any

from tests.integration.commands import merged, tiny_options
from tests.integration.text_runs import text_options, write_texts

Cases = dict[str, tuple[dict[str, Any], dict[str, int]]]

SHARDED = {"distributed": {"fully_shard": True}}
MIXED = {"use_amp": True}
AGAIN = {"memory": {"gradient_checkpointing": True}}
ADAPTERS = {"model": {"lora": {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}}}


def sharded_cases(folder: Path, width: int = 64, layers: int = 4, tokens: int = 256) -> Cases:
    """Return a small Llama and RRDBNet: in float32 and mixed, with checkpointing and without, with adapters, averaged.

    Args:
        folder: where texts are written.
        width: of the Llama.
        layers: of it.
        tokens: of a batch, in rows of an eighth.
    """
    config = {"model_type": "llama", "hidden_size": width, "intermediate_size": width * 11 // 4}
    config |= {"num_hidden_layers": layers, "num_attention_heads": width // 16, "num_key_value_heads": width // 32}
    train = {"optim": {"type": "AdamW", "lr": 1e-3}, "tokens_per_batch": tokens}
    texts = text_options(write_texts(folder), train=train, datasets={"train": {"max_length": tokens // 8}}, **SHARDED)
    texts["model"]["config"] = {**config, "max_position_embeddings": tokens}
    network = {"type": "rrdbnet", "num_feat": width // 2, "num_block": layers - 1, "num_grow_ch": width // 4}
    crops = tiny_options(folder / "none", network_g=network, train={"ema_decay": 0.0}, **SHARDED)
    rows, images = {"length": tokens // 8, "batch_size": 8}, {"batch_size": 2, "lq_size": 24, "micro_batches": 2}
    return {
        "Llama": (texts, rows),
        "Llama, mixed": (merged(texts, MIXED), rows),
        "Llama, checkpointing": (merged(texts, AGAIN), rows),
        "Llama, mixed, checkpointing": (merged(texts, {**MIXED, **AGAIN}), rows),
        "Llama, LoRA": (merged(texts, ADAPTERS), rows),
        "Llama, LoRA, mixed, checkpointing": (merged(texts, {**ADAPTERS, **MIXED, **AGAIN}), rows),
        "RRDBNet": (crops, images),
        "RRDBNet, averaged": (merged(crops, {"train": {"ema_decay": 0.9}}), images),
        "RRDBNet, clipped": (merged(crops, {"train": {"grad_clip": 1.0}}), images),
        "RRDBNet, mixed": (merged(crops, MIXED), images),
    }


IN_EVERY_RUN = ("Llama, mixed, checkpointing",)
"""Cases of the tests of every run; others are of acceptance."""
