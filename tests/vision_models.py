"""Small vision-language models of several families with their own processors, made on the spot: nothing from a hub."""

from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

FAMILIES = ("qwen3_vl", "qwen2_5_vl", "llava")

QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
LLAVA_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>")

TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- for part in message.content -%}
{{- 'PICTURE' if part.type == 'image' else part.text -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"""
"""ChatML, as the chat models of these families have it."""

WORDS = "user assistant system Which colour is it? red green blue square circle and the other one a picture of"


class PictureProcessor3(Qwen3VLProcessor):
    """That of Qwen3-VL without videos, which need torchvision."""

    @classmethod
    def get_attributes(cls) -> list[str]:
        """Return what it is made of."""
        return ["image_processor", "tokenizer"]


class PictureProcessor25(Qwen2_5_VLProcessor):
    """That of Qwen2.5-VL without videos."""

    @classmethod
    def get_attributes(cls) -> list[str]:
        """Return what it is made of."""
        return ["image_processor", "tokenizer"]


@cache
def _backend(special: tuple[str, ...]) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([WORDS] * 20, trainer)
    return backend


def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer with the marks of a family."""
    special = LLAVA_TOKENS if family == "llava" else QWEN_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=_backend(special),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(special),
    )


def processor_of(family: str) -> Any:
    """Return a processor of a family: pictures of at most 32 x 32 px (Qwen), 16 x 16 px (LLaVA)."""
    tokenizer = tokenizer_of(family)
    if family == "llava":
        pictures = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
        return LlavaProcessor(
            pictures,
            tokenizer,
            patch_size=8,
            vision_feature_select_strategy="full",
            num_additional_image_tokens=1,
            image_token="<image>",
            chat_template=TEMPLATE.replace("PICTURE", "<image>\\n"),
        )
    patches = Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 16 * 16, "longest_edge": 32 * 32}
    )
    kind = PictureProcessor3 if family == "qwen3_vl" else PictureProcessor25
    template = TEMPLATE.replace("PICTURE", "<|vision_start|><|image_pad|><|vision_end|>")
    return kind(patches, tokenizer, chat_template=template)


def model_of(family: str, seed: int = 0) -> torch.nn.Module:
    """Return a model of a family with some ten thousand weights, in float32 and without dropout."""
    torch.manual_seed(seed)
    tokenizer = tokenizer_of(family)
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 512,
    }
    if family == "llava":
        vision = CLIPVisionConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=16,
            patch_size=8,
            projection_dim=16,
        )
        config = LlavaConfig(
            vision_config=vision,
            text_config=LlamaConfig(**text),
            image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
            vision_feature_select_strategy="full",
            vision_feature_layer=-1,
            image_seq_length=5,
        )
        return LlavaForConditionalGeneration(config).eval()
    ids = {
        "image_token_id": tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        "video_token_id": tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    }
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": family == "qwen3_vl"}
    if family == "qwen3_vl":
        vision = {
            "depth": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_heads": 2,
            "patch_size": 8,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        }
        config = Qwen3VLConfig(
            text_config={**text, "rope_parameters": {**rope, "rope_theta": 1e4}}, vision_config=vision, **ids
        )
        return Qwen3VLForConditionalGeneration(config).eval()
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_heads": 2,
        "patch_size": 8,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [1],
        "window_size": 16,
    }
    text = {**text, "rope_parameters": {**rope, "type": "default", "rope_theta": 1e4}}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
    return Qwen2_5_VLForConditionalGeneration(config).eval()
