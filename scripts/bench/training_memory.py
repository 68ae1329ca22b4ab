"""How exact the predicted bytes of training steps are: against the live bytes of the same steps on real CPU tensors.

    python scripts/bench/training_memory.py [--page docs/benchmarks/training_memory.md] [--models NAME ...]

Small GPT-2, Llama, T5 and Marian models with random weights from configurations, in float32, with weights in bfloat16
and under autocast to it, whole and with LoRA, with gradient checkpointing and without; AdamW steps. (transformers and
peft have to be installed; the package itself needs neither.) Each is stepped for real, outside of any dispatch mode,
while torch's profiler notes what is allocated (``tracing/profiler_events.py``); a small step before has made the
optimizer's state. Of every two batches one has a text that is padded.

Predicted is the trace of a step of the live model (``tracing/live_module.py``), whose batches have no content: one
figure for both batches, and since Transformers leaves out masks that hide nothing, it may exceed the one without
padding.

Exit code 1 if a prediction is off by more than 1 % with padding, too low without, or of less than 100 MiB.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from trainauto.core.files import write_text_atomically
from trainauto.core.units import MIB
from trainauto.memory.tracing.live_module import LiveModuleTracer
from trainauto.memory.tracing.profiler_events import profiled

MOST_ERROR = 0.01
LEAST_BYTES = 100 * MIB
NUMBERS_BYTES = 4096
"""Numbers that torch's C++ makes into tensors, 8 bytes each, are in no trace: 12 of dropouts in four layers."""

MODELS = ("gpt2", "llama", "t5", "marian")
FORMATS = ("fp32", "bf16", "autocast")

Batch = dict[str, Tensor]


class Sizes(NamedTuple):
    """How large models and batches are.

    Attributes:
        layers: in encoder and decoder together.
        width: of the model; four heads share it.
        words: of the vocabulary.
        samples: of a batch.
        tokens: of a text, padding included.
    """

    layers: int = 4
    width: int = 128
    words: int = 4096
    samples: int = 16
    tokens: int = 256


class Case(NamedTuple):
    """How a model is trained.

    Attributes:
        model: one of :data:`MODELS`.
        format: one of :data:`FORMATS`: of weights and activations, or what autocast casts to.
        lora: only adapters are trained.
        checkpoints: layers are computed again in the backward pass.
        sizes: of model and batch.
        attention: ``sdpa``, or ``eager`` where the matrix is written out.
        has_mask: batches say which tokens are texts; else none is told.
    """

    model: str
    format: str = "fp32"
    lora: bool = False
    checkpoints: bool = False
    sizes: Sizes = Sizes()
    attention: str = "sdpa"
    has_mask: bool = True

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return the model with random weights, and its optimizer."""
        model = language_model(self.model, self.sizes, self.attention)
        if self.format == "bf16":
            model = model.to(torch.bfloat16)
        if self.lora:
            model = with_adapters(model, self.model)
        if self.checkpoints:
            model.gradient_checkpointing_enable()
            if self.lora:
                model.enable_input_require_grads()
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        return model.train(), torch.optim.AdamW(trained)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.format == "autocast"):
            loss: Tensor = model(**batch).loss
        return loss

    def batch(self, samples: int, tokens: int, *, padded: bool = False) -> Batch:
        """Return texts of random words, and what comes after each; the first of them is half as long if ``padded``."""
        ids = torch.randint(2, self.sizes.words, (samples, tokens))
        batch = {"input_ids": ids, "labels": ids.clone()}
        if self.has_mask:
            batch["attention_mask"] = torch.ones_like(ids)
            if padded:
                batch["attention_mask"][0, tokens // 2 :] = 0
                batch["labels"][0, tokens // 2 :] = -100
        return batch


def language_model(name: str, sizes: Sizes, attention: str) -> Any:
    """Return a model of random weights; whatever dropout it has by default stays."""
    import transformers

    transformers.logging.set_verbosity_error()
    words: dict[str, Any] = {"vocab_size": sizes.words, "pad_token_id": 0, "eos_token_id": 1}
    decoder = {**words, "bos_token_id": 1}
    both = {**words, "decoder_start_token_id": 0, "d_model": sizes.width}
    width, layers, half = sizes.width, sizes.layers, sizes.layers // 2
    config: Any
    match name:
        case "gpt2":
            config = transformers.GPT2Config(
                **decoder, n_embd=width, n_layer=layers, n_head=4, n_positions=sizes.tokens
            )
        case "llama":
            shape = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers}
            config = transformers.LlamaConfig(**decoder, **shape, num_attention_heads=4, num_key_value_heads=2)
        case "t5":
            config = transformers.T5Config(**both, d_kv=width // 4, d_ff=4 * width, num_layers=half, num_heads=4)
        case "marian":
            heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
            inner = {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
            depth = {"encoder_layers": half, "decoder_layers": half, "max_position_embeddings": sizes.tokens}
            config = transformers.MarianConfig(**both, **heads, **inner, **depth)
        case _:
            raise ValueError(f"no such model: {name}")
    torch.manual_seed(0)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    return kind.from_config(config, attn_implementation=attention)


def with_adapters(model: Any, name: str) -> Any:
    """Return the model with LoRA at its attention."""
    import peft

    targets = {"gpt2": ["c_attn"], "t5": ["q", "v"]}.get(name, ["q_proj", "v_proj"])
    options = {"r": 8, "lora_dropout": 0.05, "fan_in_fan_out": name == "gpt2"}
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, **options))


class Step(NamedTuple):
    """What a step takes.

    Attributes:
        peak_bytes: most bytes of tensors at one time.
        sizes: bytes of tensors in the order in which they were allocated, or freed (negative).
    """

    peak_bytes: int
    sizes: list[int]

    def takes_the_same_as(self, other: "Step") -> bool:
        """Say whether every event of both steps is the same, but for numbers and the order of what ends together."""
        mine, theirs = ([size for size in step.sizes if abs(size) >= NUMBERS_BYTES] for step in (self, other))
        return _ends_sorted(mine) == _ends_sorted(theirs)


def _ends_sorted(sizes: list[int]) -> list[int]:
    """Return events with what is freed at a time in order: autocast lets go of its casts by their addresses."""
    runs = [sorted(run) if freed else list(run) for freed, run in groupby(sizes, lambda size: size < 0)]
    return [size for run in runs for size in run]


def real_steps(case: Case) -> tuple[Step, Step]:
    """Step for real; return what it takes with a padded text, and without."""
    made: list[tuple[nn.Module, torch.optim.Optimizer]] = []

    def step(samples: int, tokens: int, *, padded: bool) -> Callable[[], None]:
        def run() -> None:
            model, optimizer = made[0]
            case.loss(model, case.batch(samples, tokens, padded=padded)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            model.zero_grad(set_to_none=True)

        return run

    size = case.sizes
    built, first, *measured = profiled(
        lambda: made.append(case.build()),
        step(2, 8, padded=True),
        step(size.samples, size.tokens, padded=True),
        step(size.samples, size.tokens, padded=False),
    )
    live = sum(event.size_bytes for event in built + first if event.is_tensor)
    steps = []
    for events in measured:
        sizes = [event.size_bytes for event in events if event.is_tensor]
        steps.append(Step(live + int(np.cumsum([0, *sizes]).max()), sizes))
        live += sum(sizes)
    return steps[0], steps[1]


def predicted_step(case: Case) -> Step:
    """Trace a step of a live model; return what it will take."""
    model, optimizer = case.build()
    tracer = LiveModuleTracer(model, case.loss, case.batch, optimizer)
    traced = tracer.trace(case.sizes.samples, case.sizes.tokens)
    return Step(traced.peak_bytes, traced.sizes())


class Measured(NamedTuple):
    """A case, and how long its prediction took.

    Attributes:
        padded: a real step, one of whose texts was padded.
        unpadded: a real step without padding.
        predicted: for both.
        trace_s: seconds of the prediction, the copy of the model included.
    """

    padded: Step
    unpadded: Step
    predicted: Step
    trace_s: float

    @property
    def errors(self) -> tuple[float, float]:
        """How far the predicted peak is off, with padding and without, as shares."""
        predicted, padded, unpadded = (step.peak_bytes for step in (self.predicted, self.padded, self.unpadded))
        return predicted / padded - 1, predicted / unpadded - 1

    @property
    def is_exact(self) -> bool:
        """Say whether the prediction is what is promised."""
        is_not_below = self.predicted.peak_bytes >= self.unpadded.peak_bytes - NUMBERS_BYTES
        return abs(self.errors[0]) <= MOST_ERROR and is_not_below and self.padded.peak_bytes >= LEAST_BYTES


def measure(case: Case) -> Measured:
    """Compare the prediction of a case with its real steps."""
    start = time.perf_counter()
    predicted = predicted_step(case)
    trace_s = time.perf_counter() - start
    return Measured(*real_steps(case), predicted, trace_s)


def cases(models: list[str]) -> Iterator[Case]:
    """Yield the cases of the page."""
    for model, number_format, lora, checkpoints in product(models, FORMATS, (False, True), (False, True)):
        yield Case(model, number_format, lora, checkpoints)


def row_of(case: Case, of: Measured) -> str:
    """Return a row of the table."""
    padded, unpadded = of.errors
    peaks = [f"{step.peak_bytes:,}" for step in (of.predicted, of.padded, of.unpadded)]
    same = "yes" if of.predicted.takes_the_same_as(of.padded) else "no"
    return (
        f"| {case.model} | {case.format} | {'LoRA' if case.lora else 'whole'} | {'yes' if case.checkpoints else 'no'} "
        f"| {peaks[0]} | {peaks[1]} | {padded:+.3%} | {same} | {peaks[2]} | {unpadded:+.3%} | {of.trace_s:.1f} s |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--page", type=Path, help="where the figures are written, as Markdown")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import peft
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    sizes = Sizes()
    lines = [TITLE.format(**versions, **sizes._asdict(), numbers=NUMBERS_BYTES), *HEAD]
    results = []
    for case in cases(arguments.models):
        results.append(measure(case))
        lines.append(row_of(case, results[-1]))
        print(lines[-1], flush=True)
    padded = max(abs(of.errors[0]) for of in results)
    low, high = (pick(of.errors[1] for of in results) for pick in (min, max))
    lines.append(f"\nLargest error with padding: {padded:.4%}. Without: {low:+.4%} to {high:+.3%}.")
    print(lines[-1])
    if arguments.page:
        write_text_atomically(arguments.page, "\n".join(lines) + "\n")
    return int(not all(of.is_exact for of in results))


HEAD = (
    "| model | format | trained | checkpoints | predicted | padded | error | same | unpadded | error | trace |",
    "|---|---|---|---|---:|---:|---:|---|---:|---:|---:|",
)

TITLE = """# Predicted bytes of training steps of language models

`python scripts/bench/training_memory.py --page docs/benchmarks/training_memory.md`, torch {torch}, transformers
{transformers}, peft {peft}, one thread. Models have {layers} layers of {width}, a vocabulary of {words:,}, batches of
{samples} x {tokens} tokens, random weights, AdamW, and their default dropout. "bf16": weights in bfloat16;
"autocast": the CPU's, to bfloat16.

Bytes are the most that tensors held at one time, including weights and optimizer. "padded" and "unpadded" are real
steps: with a padded text, and with a mask of ones. torch's profiler measured them outside any dispatch mode, without
memory that kernels allocate and free themselves. "predicted" is one trace of a copy of the live model for both,
because a batch has no content there. Transformers drops a mask that hides nothing, so "unpadded" may be less, never
more. Traces omit numbers of 8 bytes that torch's C++ turns into tensors, 16 at most here.

"Same": every event from {numbers} bytes on was the same: all allocations and releases, in order; tensors freed
together may be in another order. Events differ where a checkpoint ends within an operator (Marian's last
normalisation, which has been computed by then): the profiler attributes its result to the kernel.
"""

if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    sys.exit(main())
