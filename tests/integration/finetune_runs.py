"""Option files of fine-tuning that train in a second: a small model, and chats with no picture, one, and two."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.integration.commands import merged
from tests.vision_models import model_of, processor_of

COLOURS = ("red", "green", "blue")
SIZES_PX = ((16, 16), (24, 16), (16, 32), (32, 32))
"""Width and height of pictures, by turns."""


def write_model(folder: Path, family: str = "qwen3_vl") -> Path:
    """Write a model of ten thousand weights and its processor, as transformers saves them."""
    model_of(family).save_pretrained(folder)
    processor_of(family).save_pretrained(folder)
    return folder


def write_chats(file: Path, count: int = 9, first: int = 0) -> Path:
    """Write conversations, one a line: of three, the first has words alone, the others have one picture and two."""
    folder = file.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(first, first + count):
        names = [write_picture(folder / f"{number:02}{place}.png", number + place) for place in range(number % 3)]
        pictures = [{"type": "image", "image": f"{folder.name}/{name}"} for name in names]
        asked = {"type": "text", "text": "Which colour is it? " + "the other one " * (number % 4)}
        content = [*pictures, asked]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": content},
            {"role": "assistant", "content": f"a {COLOURS[number % 3]} square"},
        ]
        if number % 3 == 2:
            messages += [
                {"role": "user", "content": "and the other one?"},
                {"role": "assistant", "content": COLOURS[(number + 1) % 3]},
            ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    file.write_text("".join(lines))
    return file


def write_picture(file: Path, number: int, size_px: tuple[int, int] | None = None) -> str:
    """Write a picture that is like no other of these."""
    width, height = size_px or SIZES_PX[number % len(SIZES_PX)]
    pixels = np.random.default_rng(number).integers(0, 64, (height, width, 3))
    pixels[..., number % 3] += 160
    Image.fromarray(pixels.astype(np.uint8)).save(file)
    return file.name


def finetune_options(model: Path, chats: Path, /, **changes: Any) -> dict[str, Any]:
    """Return options of a run of a second: nine conversations in steps of four, in two passes; ``changes`` go in."""
    base: dict[str, Any] = {
        "name": "tiny",
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": 3,
        "model": {"name": str(model)},
        "dataset": {"path": str(chats)},
        "training": {
            "num_train_epochs": 2,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "learning_rate": 1e-2,
            "logging_steps": 1,
        },
    }
    return merged(base, changes)
