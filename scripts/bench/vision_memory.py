"""How exact the predicted bytes of fine-tuning steps are: against the live bytes of the same steps on real CPU tensors.

    python scripts/bench/vision_memory.py [--page docs/benchmarks/vision_memory.md] [--models NAME ...]

Small Qwen2-VL, Qwen2.5-VL, Qwen3-VL and LLaVA models with random weights from configurations, in float32, with weights
in bfloat16 and under autocast to it, whole and with LoRA, with gradient checkpointing and without; AdamW steps with
clipped gradients, by the engine. With linear layers in 4 bits, models are wider, so that what those take counts. Each
is stepped for real, outside of any dispatch mode, while torch's profiler notes what is allocated
(``tracing/profiler_events.py``). Every conversation has two pictures, and one of a batch is padded.

Predicted is the trace of a step of the live model as a Trainer's run makes it (``integrations/loop_forecast.py``). Of
models in 4 bits there is a second: of one that was never packed, as a plan has it.

transformers and peft have to be installed, and bitsandbytes for 4 bits; the package itself needs none of them.

Exit code 1 if a prediction is off by more than 1 %, or of less than 100 MiB.
"""

import argparse
import gc
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from trainauto.core.files import write_text_atomically
from trainauto.core.plan import BATCH_SIZE, Plan
from trainauto.core.units import MIB
from trainauto.engine.module_state import LEARNING_STEPS
from trainauto.engine.traced_training import ALWAYS_CLIP, TracedModel
from trainauto.integrations.loop_forecast import LoopTracer, largest_batch
from trainauto.integrations.loop_model import LoopModel, ModelObjective
from trainauto.integrations.map_samples import MapSamples
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.tasks.finetune.conversation_samples import ConversationSamples, for_model
from trainauto.tasks.finetune.datasets import PlannedConversations
from trainauto.tasks.finetune.encoding import Encoded
from trainauto.tasks.finetune.four_bit_stand_ins import with_four_bit_stand_ins
from trainauto.tasks.finetune.four_bits import FourBits
from trainauto.tasks.finetune.models import ModelSettings, adapted, checkpoint_activations, load_model

MOST_ERROR = 0.01
LEAST_BYTES = 100 * MIB

MODELS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava")
FORMATS = ("fp32", "bf16", "autocast")
PICTURE, VIDEO, BEGIN, END = 1, 2, 3, 4
"""Tokens with a meaning."""

FIRST_WORD = 5
PATCH_PX = 14


class Sizes(NamedTuple):
    """How large models and batches are.

    Attributes:
        layers: of the language model, and of what looks at pictures.
        width: of the model; four heads share it. Pictures get half of it.
        words: of the vocabulary.
        samples: of a batch.
        tokens: of a conversation beside its pictures.
        patches: along a side of a picture.
    """

    layers: int = 4
    width: int = 128
    words: int = 4096
    samples: int = 6
    tokens: int = 192
    patches: int = 16


WIDE = Sizes(4, 1536, 1024, 2, 64, 8)
"""So that what unpacked weights take is a part of peaks."""


class Case(NamedTuple):
    """How a model is trained.

    Attributes:
        model: one of :data:`MODELS`.
        format: one of :data:`FORMATS`: of weights and activations, or what autocast casts to.
        lora: only adapters are trained.
        checkpoints: layers are computed again in the backward pass.
        sizes: of model and batch.
        packed: linear layers are kept in 4 bits.
    """

    model: str
    format: str = "fp32"
    lora: bool = False
    checkpoints: bool = False
    sizes: Sizes = Sizes()
    packed: bool = False

    def build(self, *, planned: bool = False) -> LoopModel:
        """Return the model with random weights, and its optimizer.

        Args:
            planned: stand-ins are where its layers in 4 bits would be.
        """
        step = torch.float32 if self.format == "fp32" else torch.bfloat16
        model = packed(self, step) if self.packed and not planned else random_model(self)
        if self.packed and planned:
            model = with_four_bit_stand_ins(model, step)
        model.config.use_cache = False
        if self.checkpoints:
            checkpoint_activations(model)
        if self.lora:
            model = adapted(model, 8, 16, 0.05, ["q_proj", "v_proj"])
        model.train()
        optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
        return LoopModel(
            model, [ModelObjective("train", optimizer, self.loss, True)], self.samples().template.structure
        )

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of a batch."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.format == "autocast"):
            loss: Tensor = model(**for_model(batch)).loss
        return loss

    def samples(self) -> PlannedConversations:
        """Return conversations of random words, each with its pictures."""
        conversations = ConversationSamples(0, "right")
        one = conversations.batch([conversation(self.model, self.sizes)])
        return PlannedConversations.of(conversations, one)

    def dataset(self) -> MapSamples:
        """Return what gives batches to traces."""
        dataset = MapSamples([], dict)
        dataset.workload = self.samples()
        return dataset


def conversation(model: str, sizes: Sizes) -> Encoded:
    """Return one of random words with two pictures; where sizes are free, the second is half as high."""
    words = torch.randint(FIRST_WORD, sizes.words, (sizes.tokens,))
    side_px = sizes.patches * PATCH_PX
    if model == "llava":
        seen = [sizes.patches**2 + 1] * 2
        pictures = {"pixel_values": torch.rand(2, 3, side_px, side_px)}
    else:
        grids = torch.tensor([[1, sizes.patches, sizes.patches], [1, sizes.patches // 2, sizes.patches]])
        patches = grids.prod(1)
        seen = (patches // 4).tolist()
        pictures = {"pixel_values": torch.rand(int(patches.sum()), 3 * 2 * PATCH_PX**2), "image_grid_thw": grids}
    marks = torch.tensor([BEGIN]), torch.tensor([END])
    shown = [torch.cat([marks[0], torch.full((count,), PICTURE), marks[1]]) for count in seen]
    ids = torch.cat([words[:8], shown[0], words[8:16], shown[1], words[16:]])
    labels = ids.clone()
    labels[: -sizes.tokens // 2] = -100
    along = {} if model == "llava" else {"mm_token_type_ids": (ids == PICTURE).long()}
    return Encoded(ids, labels, along, pictures, 2)


def vision_model(name: str, sizes: Sizes) -> Any:
    """Return a model of random weights."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    width = sizes.width
    text: dict[str, Any] = {
        "vocab_size": sizes.words,
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": width // 4,
        "max_position_embeddings": 4096,
    }
    vision: dict[str, Any] = {"patch_size": PATCH_PX, "num_heads": 4, "depth": sizes.layers}
    inner = {"hidden_size": width // 2, "intermediate_size": 2 * width}
    ids = {
        "image_token_id": PICTURE,
        "video_token_id": VIDEO,
        "vision_start_token_id": BEGIN,
        "vision_end_token_id": END,
    }
    half = width // 8
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [half // 2, half // 4, half // 4]}
    text_of_qwen = {**text, "rope_parameters": rope}
    torch.manual_seed(0)
    match name:
        case "llava":
            seen = {"num_hidden_layers": sizes.layers, "num_attention_heads": 4, "patch_size": PATCH_PX}
            return transformers.LlavaForConditionalGeneration(
                transformers.LlavaConfig(
                    vision_config=transformers.CLIPVisionConfig(
                        **inner, **seen, image_size=sizes.patches * PATCH_PX, projection_dim=width
                    ),
                    text_config=transformers.LlamaConfig(**text),
                    image_token_index=PICTURE,
                    vision_feature_select_strategy="full",
                    vision_feature_layer=-1,
                    image_seq_length=sizes.patches**2 + 1,
                )
            )
        case "qwen2_vl":
            seen = {**vision, "embed_dim": width // 2, "mlp_ratio": 4, "hidden_size": width}
            config = transformers.Qwen2VLConfig(text_config=text_of_qwen, vision_config=seen, **ids)
            return transformers.Qwen2VLForConditionalGeneration(config)
        case "qwen2_5_vl":
            windows = {"window_size": 4 * PATCH_PX * 2, "fullatt_block_indexes": [1], "out_hidden_size": width}
            seen = {**vision, **inner, **windows}
            config = transformers.Qwen2_5_VLConfig(text_config=text_of_qwen, vision_config=seen, **ids)
            return transformers.Qwen2_5_VLForConditionalGeneration(config)
        case "qwen3_vl":
            deep = {"deepstack_visual_indexes": [1], "num_position_embeddings": 64, "out_hidden_size": width}
            text_of_qwen["rope_parameters"] = {**rope, "mrope_interleaved": True}
            config = transformers.Qwen3VLConfig(
                text_config=text_of_qwen, vision_config={**vision, **inner, **deep}, **ids
            )
            return transformers.Qwen3VLForConditionalGeneration(config)
    raise ValueError(f"no such model: {name}")


def random_model(case: Case) -> Any:
    """Return the model of a case as it is before anything is packed or adapted."""
    model = vision_model(case.model, case.sizes)
    return model.to(torch.bfloat16) if case.format == "bf16" else model


def packed(case: Case, compute_dtype: torch.dtype) -> Any:
    """Return the model of a case, loaded as a run loads it: with linear layers in 4 bits."""
    dtype = torch.bfloat16 if case.format == "bf16" else torch.float32
    wanted = FourBits(torch.device("cpu"), compute_dtype)
    with TemporaryDirectory() as folder:
        random_model(case).save_pretrained(folder)
        model: Any = load_model(ModelSettings(folder, dtype=dtype, four_bits=wanted))
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.clone()  # on a CPU it is a part of the file, all of which would be counted
    gc.collect()  # of the model that was saved, which is no part of a run
    return model


def real_peak(case: Case) -> int:
    """Step for real; return the most bytes of tensors at one time in a step.

    It is the first after those in which the engine keeps copies of small frozen weights, to learn which of them change.
    """
    made: list[TracedModel] = []
    plan = Plan.of(**{BATCH_SIZE: case.sizes.samples})

    def build() -> None:
        dataset = case.dataset()
        made.append(TracedModel(case.build(), lambda plan: largest_batch(dataset, plan), ALWAYS_CLIP))

    *before, measured = profiled(build, *[lambda: made[0].step(plan)] * (LEARNING_STEPS + 1))
    live = sum(event.size_bytes for events in before for event in events if event.is_tensor)
    sizes = [event.size_bytes for event in measured if event.is_tensor]
    return live + int(np.cumsum([0, *sizes]).max())


def predicted_peak(case: Case, model: LoopModel) -> int:
    """Trace a step of a live model; return what it will take."""
    plan = Plan.of(**{BATCH_SIZE: case.sizes.samples})
    return LoopTracer(model, case.dataset(), clips=True).trace(plan).peak_bytes


class Measured(NamedTuple):
    """A case.

    Attributes:
        real: peak of a real step, in bytes.
        predicted: the same, predicted.
        planned: the same, of a model that was never packed; of others ``predicted``.
        trace_s: seconds of the prediction, the copy of the model included.
    """

    real: int
    predicted: int
    planned: int
    trace_s: float

    @property
    def error(self) -> float:
        """How far the predicted peak is off, or that which was planned where it is farther, as a share."""
        return max((self.predicted / self.real - 1, self.planned / self.real - 1), key=abs)

    @property
    def is_exact(self) -> bool:
        """Say whether the prediction is what is promised."""
        return abs(self.error) <= MOST_ERROR and self.real >= LEAST_BYTES


def measure(case: Case) -> Measured:
    """Compare the prediction of a case with a real step."""
    model = case.build()
    start = time.perf_counter()
    predicted = predicted_peak(case, model)
    trace_s = time.perf_counter() - start
    planned = predicted_peak(case, case.build(planned=True)) if case.packed else predicted
    return Measured(real_peak(case), predicted, planned, trace_s)


def cases(models: list[str]) -> Iterator[Case]:
    """Yield the cases of the page whose weights are kept as usual."""
    for model, number_format, lora, checkpoints in product(models, FORMATS, (False, True), (False, True)):
        yield Case(model, number_format, lora, checkpoints)


def packed_cases(models: list[str]) -> Iterator[Case]:
    """Yield those with linear layers in 4 bits, beside which adapters learn."""
    for model, number_format, checkpoints in product(models, FORMATS, (False, True)):
        yield Case(model, number_format, True, checkpoints, WIDE, True)


def row_of(case: Case, of: Measured) -> str:
    """Return a row of a table."""
    cells = [case.model, case.format, *([] if case.packed else ["LoRA" if case.lora else "whole"])]
    bytes_of = [of.predicted, *([of.planned] if case.packed else []), of.real]
    cells += ["yes" if case.checkpoints else "no", *(f"{each:,}" for each in bytes_of)]
    return f"| {' | '.join(cells)} | {of.error:+.3%} | {of.trace_s:.1f} s |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--page", type=Path, help="where the figures are written, as Markdown")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    packages = ("torch", "transformers", "peft", "bitsandbytes")
    versions = {package: version(package) for package in packages}
    lines = [TITLE.format(**versions, **Sizes()._asdict()), *HEAD]
    results = []
    for of_kind in (cases, packed_cases):
        if of_kind is packed_cases:
            lines += [WIDE_TITLE.format(**versions, **WIDE._asdict()), *WIDE_HEAD]
        for case in of_kind(arguments.models):
            results.append(measure(case))
            lines.append(row_of(case, results[-1]))
            print(lines[-1], flush=True)
    lines.append(f"\nLargest error: {max(abs(of.error) for of in results):.4%}.")
    print(lines[-1])
    if arguments.page:
        write_text_atomically(arguments.page, "\n".join(lines) + "\n")
    return int(not all(of.is_exact for of in results))


HEAD = (
    "| model | format | trained | checkpoints | predicted | real | error | trace |",
    "|---|---|---|---|---:|---:|---:|---:|",
)

WIDE_HEAD = (
    "| model | format | checkpoints | predicted | planned | real | error | trace |",
    "|---|---|---|---:|---:|---:|---:|---:|",
)

TITLE = """# Predicted bytes of fine-tuning steps of vision-language models

`python scripts/bench/vision_memory.py --page docs/benchmarks/vision_memory.md`, torch {torch}, transformers
{transformers}, peft {peft}, one thread. Models have {layers} layers of {width} for words and {layers} of half of
that for images, a vocabulary of {words:,} and random weights. Batches have {samples} conversations of {tokens} tokens
and two images of {patches} x {patches} patches (Qwen: the second half as high), one of them
padded. Training uses AdamW and clipped gradients. "bf16": weights in bfloat16; "autocast": the CPU's, to bfloat16. LoRA
has rank 8 on q and v.

Bytes are the most that tensors held at one time, including weights and optimizer. "Real" is a step outside any
dispatch mode, measured by torch's profiler, without memory that kernels allocate and free themselves. "Predicted" is
a trace of the live model, as a Trainer's run makes it before its first batch.
"""

WIDE_TITLE = """
## Linear layers in 4 bits

These models use bitsandbytes {bitsandbytes}, NF4 with quantised statistics, and LoRA. They have {layers} layers of
{width:,} for words and {layers} of half of that for images, and a vocabulary of {words:,}. Batches have {samples}
conversations of {tokens} tokens and two images of {patches} x {patches} patches. Layers compute in float32 ("fp32")
or in bfloat16.

"Planned" is a trace of a model without bitsandbytes: stand-ins replace the layers that it would pack. "Real" is a
step through bitsandbytes' own layers, including unpacked weights while they exist. Two alternatives
were tried on all models but Qwen2-VL. Without unpacking, predictions were 4 to 14 % lower (LLaVA's under autocast
with checkpoints: the same). Without packing, they were 1.7 to 5.2 times as high.
"""

if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    sys.exit(main())
