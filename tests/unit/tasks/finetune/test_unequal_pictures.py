"""Pictures that become parts of different number: batches of LLaVA-NeXT learn what its conversations do one by one."""

from typing import Any

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
)
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

from tests.unit.tasks.finetune.test_encoding import equal_in_any_batches, noise, turn
from tests.vision_models import TEMPLATE, tokenizer_of
from trainauto.tasks.finetune.conversation_samples import ConversationSamples
from trainauto.tasks.finetune.conversations import Conversation
from trainauto.tasks.finetune.encoding import ConversationEncoder

GRIDS = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]]


def processor() -> Any:
    pictures = LlavaNextImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, image_grid_pinpoints=GRIDS
    )
    return LlavaNextProcessor(
        pictures,
        tokenizer_of("llava"),
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<image>",
        chat_template=TEMPLATE.replace("PICTURE", "<image>\\n"),
    )


def model(vocabulary: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2}
    vision = CLIPVisionConfig(hidden_size=16, intermediate_size=24, image_size=16, patch_size=8, **heads)
    text = LlamaConfig(vocab_size=len(vocabulary), hidden_size=32, intermediate_size=48, head_dim=16, **heads)
    config = LlavaNextConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=vocabulary.convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="default",
        vision_feature_layer=-1,
        image_grid_pinpoints=GRIDS,
    )
    return LlavaNextForConditionalGeneration(config).eval()


@pytest.mark.parametrize("side", ["left", "right"])
def test_batches_of_pictures_in_different_numbers_of_parts(side: str) -> None:
    makes = processor()
    network, encoder = model(makes.tokenizer), ConversationEncoder(makes)
    samples = [
        encoder.encode(Conversation("here", (turn("user", *pictures, "Which"), turn("assistant", "red square"))))
        for pictures in ((noise(32, 32),), (noise(96, 32),), (noise(32, 32), noise(64, 32)), ())
    ]
    assert len({tuple(sample.pictures["pixel_values"].shape) for sample in samples if sample.images}) > 1
    workload = ConversationSamples(makes.tokenizer.pad_token_id, side)
    equal_in_any_batches(network, workload, samples, (2, 4))
