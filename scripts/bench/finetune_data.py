"""What the methods of finetune.py train: a small Qwen3-VL, conversations with pictures, and our option file."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.append(str(Path(__file__).parents[1]))

import tiny_vlm

TEXT_SIZES = {
    **tiny_vlm.TEXT_SIZES,
    "vocab_size": 4096,
    "intermediate_size": 288,
    "num_hidden_layers": 4,
    "initializer_range": 0.05,
}
"""More words than the data says: beside so narrow a model, as many as Qwen3-VL-2B has beside its own width."""

VISION_SIZES = {
    **tiny_vlm.VISION_SIZES,
    "intermediate_size": 192,
    "depth": 3,
    "num_position_embeddings": 196,
    "initializer_range": 0.1,
}
PIXELS = {"shortest_edge": 16 * 16, "longest_edge": 160 * 160}
SIDES_PX = (64, 96, 128, 160)
"""Of pictures: width and height are drawn apart."""

TEMPLATE = tiny_vlm.TEMPLATE.replace(
    "{%- if message.content is string -%}",
    "{%- if message.role == 'assistant' -%}{%- generation -%}"
    "{%- if message.content is string -%}{{- message.content -}}"
    "{%- else -%}{%- for part in message.content -%}{{- part.text -}}{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>' -}}{%- endgeneration -%}{{- '\\n' -}}"
    "{%- else -%}{%- if message.content is string -%}",
).replace("{{- '<|im_end|>\\n' -}}\n{%- endfor -%}", "{{- '<|im_end|>\\n' -}}{%- endif -%}\n{%- endfor -%}")
"""ChatML whose answers are marked, as both ours and TRL's trainer read it: they learn the same tokens."""

SAMPLES, HELD_BACK = 192, 96
STEP = 16
"""Conversations of a step, in however many passes."""

RATE = 1e-3
SEED = 0


def make_all(folder: Path, samples: int = SAMPLES) -> int:
    """Write ``model/``, ``train.jsonl`` and ``val.jsonl`` with their pictures, the same ones each time.

    Returns:
        how many weights the model has.
    """
    for name, count, seed in (("train", samples, 1), ("val", HELD_BACK, 2)):
        tiny_vlm.write_lines(folder / f"{name}.jsonl", conversations(folder, name, count, seed))
    return make_model(folder / "model")


def make_model(folder: Path) -> int:
    """Write a model with random weights in float32, and its processor; return how many weights."""
    import torch
    from transformers import GenerationConfig, Qwen3VLForConditionalGeneration

    processor = tiny_vlm.processor_of(tiny_vlm.tokenizer(), TEMPLATE, PIXELS)
    words = processor.tokenizer
    torch.manual_seed(SEED)
    model = Qwen3VLForConditionalGeneration(tiny_vlm.configuration(words, TEXT_SIZES, VISION_SIZES))
    model.generation_config = GenerationConfig(eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


def conversations(folder: Path, name: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield conversations of one to three turns about a picture of a drawn size, which is written."""
    (folder / name).mkdir()
    generator = np.random.default_rng(seed)
    for number in range(count):
        colour = str(generator.choice(list(tiny_vlm.COLOURS)))
        shape = str(generator.choice(tiny_vlm.SHAPES))
        width, height = generator.choice(SIDES_PX, 2).tolist()
        shown = tiny_vlm.Shown(folder / name / f"{number:04}.png", colour, shape)
        tiny_vlm.drawn(colour, shape, generator, (width, height)).save(shown.file)
        again = ((tiny_vlm.QUESTION,), (shown.said(tiny_vlm.REWORDED),))
        asked = (tiny_vlm.image(shown, folder), tiny_vlm.QUESTION)
        yield tiny_vlm.chat(asked, (shown.said(tiny_vlm.CAPTION),), *again * int(generator.integers(0, 3)))


def write_options(folder: Path, made: Path, batch: int, budget_mib: int) -> Path:
    """Write the option file of our run, as a person would write it.

    Args:
        folder: of the file and the run.
        made: folder of model and conversations.
        batch: conversations of a pass at the start.
        budget_mib: memory budget; 0 for none.
    """
    options: dict[str, Any] = {
        "name": "bench",
        "device": "cpu",
        "num_threads": 1,
        "manual_seed": SEED,
        "plugins": ["finetune_clock"],
        "model": {"name": str(made / "model")},
        "dataset": {"path": str(made / "train.jsonl")},
        "training": {
            "num_train_epochs": 1,
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": STEP // batch,
            "learning_rate": RATE,
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "output_dir": str(folder / "training_output"),
        },
    }
    if budget_mib:
        options["memory"] = {"budget": f"{budget_mib}MiB"}
    file = folder / "bench.yml"
    file.write_text(yaml.safe_dump(options, sort_keys=False))
    return file


def lines_of(made: Path, name: str) -> list[dict[str, Any]]:
    """Return the conversations of a set."""
    return [json.loads(line) for line in (made / f"{name}.jsonl").read_text().splitlines()]
