"""Option files of language models that train in a second, and texts for them."""

import random
from pathlib import Path
from typing import Any

from tests.integration.commands import merged

WORDS = ("the", "cat", "dog", "ran", "sat", "flew", "on", "under", "a", "red", "blue", "mat", "slowly", "home")


def write_texts(folder: Path, count: int = 80, seed: int = 1) -> Path:
    generator = random.Random(seed)
    lines = [" ".join(generator.choice(WORDS) for _ in range(generator.randint(3, 24))) for _ in range(count)]
    file = folder / "texts.txt"
    file.write_text("\n".join(lines))
    return file


def text_options(texts: Path, **changes: Any) -> dict[str, Any]:
    """Return options of a run that takes a second; ``changes`` are merged in, section by section."""
    base: dict[str, Any] = {
        "name": "tiny",
        "task": "text",
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "model": {"config": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}},
        "tokenizer": {"train": {"vocab_size": 300}},
        "datasets": {
            "train": {"path": str(texts), "split": "lines", "max_length": 32},
            "val": {"share": 0.1},
        },
        "train": {
            "total_epochs": 3,
            "optim": {"type": "AdamW", "lr": 1e-2},
            "scheduler": {"type": "cosine"},
            "tokens_per_batch": 256,
        },
        "val": {"val_freq": 5},
        "logger": {"print_freq": 4, "save_checkpoint_freq": 5, "use_tb_logger": False},
    }
    return merged(base, changes)
