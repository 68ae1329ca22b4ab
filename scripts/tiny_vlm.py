"""A small vision-language model with random weights, and pictures to teach it: a fine-tuning from nothing.

    python scripts/tiny_vlm.py FOLDER [--seed N] [--pictures N]

The model is a real one, a Qwen3-VL of 0.5 million weights with its own processor and a tokenizer trained here. The
pictures are of 48 x 48 px: a shape of one of six colours and four kinds, anywhere, of any size, on noise. FOLDER gets

    model/                  configuration, weights, processor, tokenizer
    train/, val/            pictures with metadata.jsonl: "a red circle"
    reworded_train.jsonl    the same pictures, asked about in other words: "It shows a circle, coloured red."
    reworded_val.jsonl
    chats/, chats.jsonl     conversations of several turns with no picture, one and two, of several sizes

No picture of val/ is in train/. The same seed makes the same files. It takes some seconds, and needs no network.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from trainauto.core.files import directory_written_atomically
from trainauto.tasks.finetune.processors import picture_processor

SIDE_PX = 48
RADII_PX = (11, 18)
"""Shapes reach so far from their middles: from the first to below the second."""

GREYS = (10, 110)
"""Levels of backgrounds, of 255: dark, so that white and yellow stand out."""

NOISE = 10.0
"""Standard deviation of what is added to each pixel, in levels of 255."""

COLOURS = {
    "red": (215, 40, 40),
    "green": (45, 170, 60),
    "blue": (50, 85, 225),
    "yellow": (230, 210, 50),
    "purple": (155, 55, 190),
    "white": (235, 235, 235),
}
SHAPES = ("circle", "square", "triangle", "cross")
PICTURES = 3200
HELD_BACK = 240
"""Pictures of val/: ten of each colour and shape, of which a per cent is two or three."""

CHATS = 12
CAPTION, REWORDED = "a {colour} {shape}", "It shows a {shape}, coloured {colour}."
QUESTION = "What is it?"
GREETING, GREETING_BACK = "Good morning!", "Good morning! Show me a picture."
WHICH, THE_ONE = "Which of the two is {colour}?", "the {shape}"

PATCH_PX, MERGE = 8, 2
PIXELS = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
"""Least and most pixels that the processor leaves a picture."""

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}{%- else -%}
{%- for part in message.content -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' if part.type == 'image' else part.text -}}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
"""ChatML, as Qwen's chat models have it."""

TEXT_SIZES = {
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
"""Weights begin with about 1 / sqrt(width). With the usual 0.02, which is for widths of thousands, 600 steps teach it
the colours and hardly a shape."""

VISION_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "depth": 2,
    "num_heads": 4,
    "num_position_embeddings": 36,
    "deepstack_visual_indexes": [0],
    "initializer_range": 0.12,
}


@dataclass(frozen=True)
class Shown:
    """A picture in a file, and what it shows."""

    file: Path
    colour: str
    shape: str

    def said(self, wording: str) -> str:
        """Return what it shows, in the words of a wording with {colour} and {shape}."""
        return wording.format(colour=self.colour, shape=self.shape)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="to be made; it must not exist, or be empty")
    parser.add_argument("--seed", type=int, default=0, help="of weights and pictures (default: 0)")
    parser.add_argument("--pictures", type=int, default=PICTURES, help=f"to train on (default: {PICTURES})")
    asked = parser.parse_args(arguments)
    if asked.pictures < 1 or asked.seed < 0:
        parser.error("--pictures must be 1 or more, and --seed 0 or more")
    if asked.folder.exists() and (not asked.folder.is_dir() or any(asked.folder.iterdir())):
        parser.error(f"{asked.folder} is there already: name another folder, or remove it")
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    asked.folder.parent.mkdir(parents=True, exist_ok=True)
    with directory_written_atomically(asked.folder) as folder:
        make_all(folder, asked.seed, asked.pictures)
    print(f"{asked.folder}: a model, {asked.pictures} pictures to train on and {HELD_BACK} held back")


def make_all(folder: Path, seed: int, pictures: int, held_back: int = HELD_BACK) -> None:
    """Write a model and all its data.

    Args:
        folder: which is there.
        seed: of everything.
        pictures: to train on.
        held_back: pictures of val/.
    """
    make_model(seed, folder / "model")
    train = make_pictures(folder / "train", seed, pictures)
    val = make_pictures(folder / "val", seed + 2**32, held_back, without=train)
    for name, shown in (("train", train), ("val", val)):
        write_lines(folder / f"reworded_{name}.jsonl", (reworded(each, folder) for each in shown))
    write_lines(folder / "chats.jsonl", chats(folder, seed))


def make_pictures(folder: Path, seed: int, count: int, without: Iterable[Shown] = ()) -> list[Shown]:
    """Write pictures with their captions; each colour and shape comes equally often.

    Args:
        folder: to be made.
        seed: of what is drawn.
        count: of pictures.
        without: pictures of which none may be drawn again.
    """
    folder.mkdir(parents=True)
    generator = np.random.default_rng((seed, 1))
    taken = {picture_bytes(shown.file) for shown in without}
    pairs = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    made = []
    for number in range(count):
        colour, shape = pairs[number % len(pairs)]
        picture = drawn(colour, shape, generator)
        while picture.tobytes() in taken:
            picture = drawn(colour, shape, generator)
        made.append(Shown(folder / f"{number:05}.png", colour, shape))
        picture.save(made[-1].file)
    write_lines(folder / "metadata.jsonl", ({"file_name": each.file.name, "text": each.said(CAPTION)} for each in made))
    return made


def picture_bytes(file: Path) -> bytes:
    """Return the pixels of a picture."""
    with Image.open(file) as picture:
        return picture.tobytes()


def drawn(colour: str, shape: str, generator: np.random.Generator, size_px: tuple[int, int] | None = None) -> Any:
    """Return a picture of a shape: place, size, shade, background and noise are drawn.

    Args:
        colour: in :data:`COLOURS`.
        shape: in :data:`SHAPES`.
        generator: of what is left to chance.
        size_px: width and height; a square of :data:`SIDE_PX` where none is given.
    """
    width, height = size_px or (SIDE_PX, SIDE_PX)
    radius = int(generator.integers(*RADII_PX))
    middle = [int(generator.integers(radius + 1, side - radius)) for side in (width, height)]
    shade = np.clip(np.array(COLOURS[colour]) + generator.integers(-15, 16, 3), 0, 255)
    picture = Image.new("RGB", (width, height), (int(generator.integers(*GREYS)),) * 3)
    draw_shape(ImageDraw.Draw(picture), shape, middle, radius, tuple(shade.tolist()))
    noisy = np.asarray(picture) + generator.normal(0, NOISE, (height, width, 3))
    return Image.fromarray(np.clip(noisy.round(), 0, 255).astype(np.uint8))


def draw_shape(pen: Any, shape: str, middle: Sequence[int], radius: int, colour: tuple[int, ...]) -> None:
    """Draw a shape that reaches ``radius`` px from its middle."""
    x, y = middle
    box = (x - radius, y - radius, x + radius, y + radius)
    match shape:
        case "circle":
            pen.ellipse(box, fill=colour)
        case "square":
            pen.rectangle(box, fill=colour)
        case "triangle":
            pen.polygon([(x, y - radius), (x + radius, y + radius), (x - radius, y + radius)], fill=colour)
        case "cross":
            half = radius // 4 + 1
            pen.rectangle((x - half, y - radius, x + half, y + radius), fill=colour)
            pen.rectangle((x - radius, y - half, x + radius, y + half), fill=colour)
        case _:
            raise ValueError(f"there is no shape {shape!r}, only {', '.join(SHAPES)}")


def reworded(shown: Shown, folder: Path) -> dict[str, Any]:
    """Return a conversation about a picture in the other wording; paths are relative to a folder."""
    return chat((image(shown, folder), QUESTION), (shown.said(REWORDED),))


def chats(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Yield conversations with no picture, one, and two, of several sizes and turns; their pictures are written."""
    (folder / "chats").mkdir()
    generator = np.random.default_rng((seed, 2))
    greeted = (GREETING,), (GREETING_BACK,)
    for number in range(CHATS):
        match several_sizes(folder / "chats", number, number % 3, generator):
            case [one]:
                yield chat(*greeted, (image(one, folder), QUESTION), (one.said(CAPTION),))
            case [one, other]:
                compared = (image(other, folder), other.said(WHICH)), (other.said(THE_ONE),)
                yield chat((image(one, folder), QUESTION), (one.said(CAPTION),), *compared)
            case _:
                yield chat(*greeted)


def several_sizes(folder: Path, number: int, count: int, generator: np.random.Generator) -> list[Shown]:
    """Write the pictures of a conversation, of any sizes; no two have one colour or one shape."""
    colours, shapes = (generator.permutation(list(those)).tolist()[:count] for those in (COLOURS, SHAPES))
    made = []
    for colour, shape in zip(colours, shapes, strict=True):
        width, height = generator.choice([48, 64, 80], 2).tolist()
        made.append(Shown(folder / f"{number:02}_{shape}.png", colour, shape))
        drawn(colour, shape, generator, (width, height)).save(made[-1].file)
    return made


def image(shown: Shown, folder: Path) -> dict[str, str]:
    """Return a picture as a part of a message."""
    return {"type": "image", "image": shown.file.relative_to(folder).as_posix()}


def chat(*turns: Sequence[str | dict[str, str]]) -> dict[str, Any]:
    """Return a conversation as a line of a file; users and the assistant speak by turns."""
    roles = ("user", "assistant")
    return {
        "messages": [
            {
                "role": roles[number % 2],
                "content": [{"type": "text", "text": part} if isinstance(part, str) else part for part in turn],
            }
            for number, turn in enumerate(turns)
        ]
    }


def write_lines(file: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


def make_model(seed: int, folder: Path) -> None:
    """Write a model with random weights in float32, and its processor.

    Args:
        seed: of the weights.
        folder: to be made.
    """
    import torch
    from transformers import GenerationConfig, Qwen3VLForConditionalGeneration

    processor = processor_of(tokenizer())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(configuration(processor.tokenizer))
    words = processor.tokenizer
    model.generation_config = GenerationConfig(eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def tokenizer() -> Any:
    """Return a tokenizer trained on the words of the data; any other text falls into bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,  # more than there are words: each becomes a token
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(said_words(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",  # noqa: S106
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=list(SPECIAL),
    )


def said_words() -> Iterator[str]:
    """Yield every sentence of the data."""
    from trainauto.tasks.finetune.captions import PROMPT

    yield from ("user\n", "assistant\n", "system\n", PROMPT, QUESTION, GREETING, GREETING_BACK)
    for colour in COLOURS:
        for shape in SHAPES:
            yield from (said.format(colour=colour, shape=shape) for said in (CAPTION, REWORDED, WHICH, THE_ONE))


def processor_of(words: Any, template: str = TEMPLATE, pixels: Mapping[str, int] = PIXELS) -> Any:
    """Return the processor of the model, without videos.

    Args:
        words: its tokenizer.
        template: of conversations.
        pixels: least and most that it leaves a picture, as :data:`PIXELS`.
    """
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    half = [0.5, 0.5, 0.5]
    patches = Qwen2VLImageProcessorPil(
        patch_size=PATCH_PX, merge_size=MERGE, temporal_patch_size=2, size=dict(pixels), image_mean=half, image_std=half
    )
    return picture_processor("qwen3_vl", patches, words, template)


def configuration(words: Any, text: Mapping[str, Any] = TEXT_SIZES, vision: Mapping[str, Any] = VISION_SIZES) -> Any:
    """Return the configuration of the model for a tokenizer.

    Args:
        words: the tokenizer.
        text: sizes of the language model; heads of 24 dimensions, which the rotation of places is divided for.
        vision: sizes of what looks at pictures.
    """
    from transformers import Qwen3VLConfig

    rope = {"rope_type": "default", "mrope_section": [4, 4, 4], "mrope_interleaved": True, "rope_theta": 1e4}
    ids = {name: words.convert_tokens_to_ids(f"<|{name}|>") for name in ("vision_start", "vision_end")}
    return Qwen3VLConfig(
        text_config={"vocab_size": len(words), "rope_parameters": rope, **text},
        vision_config={
            **vision,
            "patch_size": PATCH_PX,
            "spatial_merge_size": MERGE,
            "out_hidden_size": text["hidden_size"],
        },
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=words.convert_tokens_to_ids("<|video_pad|>"),
        **{f"{name}_token_id": number for name, number in ids.items()},
    )


if __name__ == "__main__":
    main()
