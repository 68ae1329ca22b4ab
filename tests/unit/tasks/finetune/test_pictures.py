"""How many pixels pictures keep, and how many fewer they may (D46)."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import SmolVLMImageProcessorPil

from tests.vision_models import model_of, processor_of
from trainauto.core.errors import InputError
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.optim.adamw import trainer_adamw
from trainauto.optim.precision import Precision
from trainauto.tasks.finetune.conversation_model import ConversationModel
from trainauto.tasks.finetune.encoding import ConversationEncoder
from trainauto.tasks.finetune.models import checkpoint_activations
from trainauto.tasks.finetune.pictures import Pictures
from trainauto.tasks.finetune.preflight import LookedThrough
from trainauto.tasks.finetune.processors import limit_pixels, pixel_bounds, saved_pixels
from trainauto.tasks.finetune.smaller_pictures import LIMIT, SmallerPictures

Sizes = Sequence[tuple[int, int]]


def pictures(sizes: Sequence[Sizes], words: Sequence[int], fewest: int | None, most: int = 256 * 256) -> Pictures:
    """Pictures of conversations with so many tokens of words, whose processor leaves them ``most`` pixels."""
    processor = processor_of("qwen3_vl")
    limit_pixels(processor, most)
    encoder = ConversationEncoder(processor)
    tokens = [sum(map(encoder.picture_tokens, some)) + count for some, count in zip(sizes, words, strict=True)]
    return Pictures(encoder, LookedThrough([], np.asarray(tokens), sizes), fewest)


def test_a_small_picture_is_smaller_only_below_its_own_size() -> None:
    """96 x 96 px are 36 tokens at any limit above: a limit of half the file's would change nothing."""
    some = pictures([[(96, 96)], []], [5, 5], 1000)
    assert (some.largest, some.limit) == (9216, 65536)
    assert some.next_smaller == 4608
    some.reduce_to(4608)
    assert some.largest == some.limit == 4608
    assert some.next_smaller == 2304
    some.reduce_to(1500)
    assert some.next_smaller == 1000
    some.reduce_to(1000)
    assert some.next_smaller is None


def test_large_pictures_are_what_the_limit_leaves_of_them() -> None:
    some = pictures([[(2000, 1000), (96, 96)]], [5], None)
    assert some.largest == 65536
    assert some.next_smaller is None


def test_the_longest_conversation_may_be_another_one_then() -> None:
    """256 tokens of a picture and 5 of words, or 100 of words: with a quarter of the pixels, the latter."""
    some = pictures([[(256, 256)], []], [5, 100], 100)
    assert some.longest == 0
    some.reduce_to(128 * 128)
    assert some.longest == 1


def test_without_pictures_or_without_a_limit_nothing_shrinks() -> None:
    assert pictures([[]], [5], 1000).next_smaller is None
    encoder = ConversationEncoder(processor_of("llava"))
    fixed = Pictures(encoder, LookedThrough([], np.asarray([50]), [[(96, 96)]]), None)
    assert not fixed.are_bounded
    assert fixed.next_smaller is None


@pytest.mark.parametrize(
    ("fewest", "said", "limit"),
    [
        (4096, "pictures stay reduced to 16384 pixels, as before the resume", 16384),
        (
            40000,
            "pictures had been reduced to 16384 pixels, and shrink_pictures_to now allows no fewer than 40000",
            40000,
        ),
    ],
)
def test_a_resume_says_what_pictures_have_now(fewest: int, said: str, limit: int, caplog: Any) -> None:
    mine = pictures([[(256, 256)]], [10], fewest)
    smaller = SmallerPictures(mine, lambda _longest: None)
    smaller.load_state_dict({LIMIT: 16384}, cast(Any, None))
    smaller.see(cast(Any, None))
    assert said in caplog.text
    assert mine.limit == limit


def test_a_saved_processor_says_what_it_leaves_of_pictures(tmp_path: Path) -> None:
    """Adapters lie beside a processor and no model: `test` reads there what a run has come to."""
    processor = processor_of("qwen3_vl")
    limit_pixels(processor, 900)
    processor.save_pretrained(tmp_path)
    assert saved_pixels(tmp_path) == 900
    processor_of("llava").save_pretrained(tmp_path / "llava")
    assert saved_pixels(tmp_path / "llava") == saved_pixels(tmp_path / "none") > 1e9


def test_a_longest_side_alone_is_no_number_of_pixels(tmp_path: Path) -> None:
    """SmolVLM's processor says how long the longer side may be: `test` of such a run limits nothing by it."""
    processor = processor_of("llava")
    processor.image_processor = SmolVLMImageProcessorPil()
    processor.image_processor.save_pretrained(tmp_path)
    assert saved_pixels(tmp_path) == pixel_bounds(processor)[1] > 1e9


def test_a_processor_that_makes_none_so_small_refuses_in_the_words_of_the_option() -> None:
    with pytest.raises(InputError, match="shrink_pictures_to is nothing to a CLIP"):
        limit_pixels(processor_of("llava"), 1000, argument="shrink_pictures_to")
    with pytest.raises(InputError, match="shrink_pictures_to is 10, less than the smallest picture"):
        limit_pixels(processor_of("qwen3_vl"), 10, argument="shrink_pictures_to")


def test_what_checkpoints_already_is_not_told_to() -> None:
    """Models of transformers switch it on their own way; advice where nothing fits goes by it."""
    network = model_of("qwen3_vl")
    model = ConversationModel(network, trainer_adamw(network, 0.1, 0.0), Precision(torch.device("cpu")))
    run = SimpleNamespace(model=model)
    assert "would help" in str(CheckpointingFallback().take(run, "it does not fit"))
    checkpoint_activations(network)
    assert CheckpointingFallback().take(run, "it does not fit") == "Gradient checkpointing is already enabled."
