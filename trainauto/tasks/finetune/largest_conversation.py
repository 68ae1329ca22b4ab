"""The largest conversation that memory is planned for: of the data where they are there, else made up from sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.core.words import counted
from trainauto.integrations.plain_leaves import plain_leaves
from trainauto.tasks.finetune.conversation_samples import IMAGES, ConversationSamples
from trainauto.tasks.finetune.encoding import IDS, Encoded
from trainauto.tasks.finetune.processors import WITHOUT_VIDEOS
from trainauto.tasks.finetune.supervision import NOT_LEARNED

WORDS = 256
"""Tokens beside the picture where nothing says how long conversations are: some ten sentences."""

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")

WIDEST = 3
"""How many times as wide as high a picture is taken to be at most; others have no more patches to speak of."""


@dataclass(frozen=True)
class LargestConversation:
    """A batch of the one conversation that others are no larger than.

    Attributes:
        leaves: of the batch, as :class:`~trainauto.tasks.finetune.conversation_samples.ConversationSamples` makes it.
        origin: where it comes from, in words.
    """

    leaves: Mapping[str, Tensor]
    origin: str

    @property
    def tokens(self) -> int:
        """Tokens, those of pictures included."""
        return int(self.leaves[IDS].shape[1])

    @property
    def pictures(self) -> int:
        """How many pictures it has."""
        return int(self.leaves[IMAGES].sum())

    def as_known(self) -> dict[str, Any]:
        """Return what a process that traces needs of it, as plain values; what pictures show is left open."""
        return plain_leaves(self.leaves)


def can_encode(folder: Path) -> bool:
    """Say whether a model's folder has what makes pictures and words inputs."""
    return all(any((folder / name).is_file() for name in names) for names in (PROCESSOR_FILES, TOKENIZER_FILES))


def picture_of_most_pixels(
    config: Any, folder: Path, max_pixels: int | None, max_length: int | None
) -> LargestConversation:
    """Make up a conversation of one picture of the most pixels, and words.

    Args:
        config: of the model.
        folder: its own.
        max_pixels: most pixels of a picture; ``None`` for what its processor says.
        max_length: most tokens of a conversation; ``None`` for :data:`WORDS` beside the picture.

    Raises:
        InputError: what becomes of a picture is not known without a processor, or it alone is longer than allowed.
    """
    if config.model_type not in WITHOUT_VIDEOS:
        advice = f"Put its processor and tokenizer into {folder}, and name data that are there (dataset: path)."
        message = f"what a {config.model_type} makes of a picture is its processor's to say, or the data's"
        raise InputError(Problem(message, advice=advice, argument="name"))
    most, vision = max_pixels or _pixels_of_processor(folder), config.vision_config
    rows, columns = _largest_grid(most // (vision.patch_size * vision.spatial_merge_size) ** 2)
    seen = rows * columns
    words = WORDS if max_length is None else max_length - seen - 2
    if words < 2:
        advice = "Allow more (max_length), or smaller pictures (max_pixels)."
        message = f"a picture of {most} pixels takes {seen + 2} tokens, where {max_length} are allowed with words"
        raise InputError(Problem(message, advice=advice, argument="max_pixels"))
    merge = vision.spatial_merge_size
    grid = torch.tensor([[1, rows * merge, columns * merge]])
    values = getattr(vision, "in_channels", 3) * vision.temporal_patch_size * vision.patch_size**2
    marks = {config.image_token_id, config.video_token_id, config.vision_start_token_id, config.vision_end_token_id}
    word = next(token for token in range(len(marks) + 1) if token not in marks)
    picture = [config.vision_start_token_id, *[config.image_token_id] * seen, config.vision_end_token_id]
    ids = torch.tensor([*picture, *[word] * words])
    labels = ids.clone()
    labels[: len(picture) + words // 2] = NOT_LEARNED
    types = {"mm_token_type_ids": (ids == config.image_token_id).long()}
    pictures = {"pixel_values": torch.empty(int(grid.prod()), values), "image_grid_thw": grid}
    encoded = Encoded(ids, labels, types, pictures, 1)
    bound = "as max_length allows" if max_length is not None else "nothing bounds them: max_length is not given"
    origin = f"made up of one picture of {most} pixels and {counted(words, 'token')} of words ({bound})"
    return LargestConversation(ConversationSamples(0, "right").batch([encoded]), origin)


def _largest_grid(most: int) -> tuple[int, int]:
    """Return rows and columns of most cells in all, of pictures up to :data:`WIDEST` times as wide as high."""
    grids = [(rows, min(most // rows, WIDEST * rows)) for rows in range(1, isqrt(most) + 1)]
    return max(grids, key=lambda grid: grid[0] * grid[1], default=(1, 1))


def _pixels_of_processor(folder: Path) -> int:
    if any((folder / name).is_file() for name in PROCESSOR_FILES):
        from transformers import AutoImageProcessor

        size = AutoImageProcessor.from_pretrained(str(folder), local_files_only=True, backend="pil").size
        if size.get("longest_edge"):
            return int(size["longest_edge"])
    advice = f"Write model: max_pixels, or put preprocessor_config.json into {folder}."
    raise InputError(Problem("nothing says how large pictures may be", advice=advice, argument="max_pixels"))
