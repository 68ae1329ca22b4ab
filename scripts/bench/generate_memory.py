"""How exact the predicted bytes of ``generate`` are: against the live bytes of the same call on real CPU tensors.

    python scripts/bench/generate_memory.py [--page docs/benchmarks/generate_memory.md]

Small GPT-2, Llama, T5 and Marian models with random weights from configurations (transformers has to be installed; the
package itself does not need it). Each generates for real, outside of any dispatch mode, while torch's profiler notes
what is allocated (``tracing/profiler_events.py``); the call before has warmed up. Bytes are those of a batch: what was
live beside the weights, which makes errors larger than they are of the whole. Every batch has one padded text, and no
text ends before it has all its new tokens.

Predicted are the traces of the two steps that may be the peak; of the same batches what ``TracedCost`` makes of seven
other traces, and what ``LawCost`` says of the model's sizes alone.

Exit code 1 if a traced prediction is off by more than 5 %.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from trainauto.core.files import write_text_atomically
from trainauto.memory.tracing.profiler_events import profiled
from trainauto.tasks.text.costs import LawCost
from trainauto.tasks.text.generation_trace import Generation, GenerationTracer
from trainauto.tasks.text.traced_cost import TracedCost

MOST_ERROR = 0.05
LONGEST_TOKENS = 128

CASES = [
    (samples, tokens, Generation(new, beams))
    for samples, tokens, new in ((4, 32, 16), (16, 100, 32), (4, 16, 64), (3, 10, 2))
    for beams in (1, 4)
]
"""Batches whose peak is the first step's, and such whose peak is the last one's."""


class Measured(NamedTuple):
    """Bytes of a batch beside the weights.

    Attributes:
        real: of tensors, most that were live at one time.
        allocator: the same with what kernels take for themselves.
        traced: predicted by a trace of this batch.
        fitted: predicted from traces of others.
        law: predicted by a closed form.
        held: the weights.
    """

    real: int
    allocator: int
    traced: int
    fitted: int
    law: int
    held: int

    @property
    def error(self) -> float:
        """Of the traced bytes, as a share of the real ones."""
        return self.traced / self.real - 1


def model_of(name: str) -> Any:
    """Return a small model in evaluation mode: ``gpt2``, ``llama``, ``t5`` or ``marian``, of random weights."""
    import transformers

    transformers.logging.set_verbosity_error()
    words: dict[str, Any] = {"vocab_size": 512, "pad_token_id": 0, "eos_token_id": None}
    decoder = {**words, "bos_token_id": 1}
    both = {**words, "decoder_start_token_id": 0, "d_model": 64}
    match name:
        case "gpt2":
            config = transformers.GPT2Config(**decoder, n_embd=64, n_layer=2, n_head=4, n_positions=256)
        case "llama":
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
            config = transformers.LlamaConfig(
                **decoder, hidden_size=64, intermediate_size=128, num_hidden_layers=2, **heads
            )
        case "t5":
            config = transformers.T5Config(**both, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
        case "marian":
            heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
            layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
            config = transformers.MarianConfig(
                **both, **heads, **layers, forced_eos_token_id=None, max_position_embeddings=256
            )
        case _:
            raise ValueError(f"no such model: {name}")
    torch.manual_seed(0)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = kind.from_config(config)
    model.generation_config.eos_token_id = None
    return model.eval()


MODELS = ("gpt2", "llama", "t5", "marian")


def real_bytes(model: Any, samples: int, tokens: int, generation: Generation) -> tuple[int, int]:
    """Generate for real; return the most bytes of tensors beside the weights, and of everything allocated."""
    ids = torch.randint(2, model.config.vocab_size, (samples, tokens))
    mask = torch.ones_like(ids)
    padded = slice(tokens // 2, None) if model.config.is_encoder_decoder else slice(tokens // 2)
    mask[0, padded] = 0
    warped = ("temperature", "top_k", "top_p") if generation.do_sample else ()

    def generate() -> None:
        model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=generation.max_new_tokens,
            num_beams=generation.beams,
            do_sample=generation.do_sample,
            repetition_penalty=generation.repetition_penalty,
            **{name: getattr(generation, name) for name in warped},
        )

    generate()
    _, events = profiled(generate, generate)
    peaks = []
    for counted in ([event for event in events if event.is_tensor], events):
        live = np.cumsum([ids.nbytes + mask.nbytes, *(event.size_bytes for event in counted)])
        peaks.append(int(live.max()))
    return peaks[0], peaks[1]


def measure(name: str) -> Iterator[tuple[int, int, Generation, Measured]]:
    """Compare predictions of a model with what it takes, batch by batch."""
    model = model_of(name)
    for samples, tokens, generation in CASES:
        tracer = GenerationTracer(model, generation)
        arguments = (np.array(samples), np.array(tokens), np.array(0))
        fitted = TracedCost.of_generation(model, generation, LONGEST_TOKENS).cost(*arguments)
        law = LawCost.of(model, generation).cost(*arguments)
        real, allocator = real_bytes(model, samples, tokens, generation)
        traced = tracer.trace(samples, tokens).batch_bytes
        yield (
            samples,
            tokens,
            generation,
            Measured(real, allocator, traced, int(fitted), int(law), tracer.held_bytes),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--page", type=Path, help="where the figures are written, as Markdown")
    page = parser.parse_args().page
    torch.set_num_threads(1)
    import transformers

    lines = [
        TITLE.format(torch=torch.__version__, transformers=transformers.__version__),
        "| model | batch | new | beams | real | kernels | traced | error | with weights | fitted | law |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    worst = 0.0
    for name in MODELS:
        for samples, tokens, generation, of in measure(name):
            worst = max(worst, abs(of.error))
            whole = (of.traced + of.held) / (of.real + of.held) - 1
            lines.append(
                f"| {name} | {samples} x {tokens} | {generation.max_new_tokens} | {generation.beams} | {of.real:,} | "
                f"{of.allocator / of.real - 1:.1%} | {of.traced:,} | {of.error:+.2%} | {whole:+.2%} | "
                f"{of.fitted / of.real - 1:+.2%} | {of.law / of.real - 1:+.0%} |"
            )
            print(lines[-1], flush=True)
    lines.append(f"\nLargest error of a trace: {worst:.2%}.")
    print(lines[-1])
    if page:
        write_text_atomically(page, "\n".join(lines) + "\n")
    return int(worst > MOST_ERROR)


TITLE = """# Predicted bytes of `generate`

`python scripts/bench/generate_memory.py --page docs/benchmarks/generate_memory.md`, torch {torch}, transformers
{transformers}, one thread. Models have two layers of 64, a vocabulary of 512 and random weights.

"real" is the most that tensors held at one time, without the weights, while `generate` ran. torch's profiler measured
it outside any dispatch mode; "kernels" is how far the allocator's peak was above it. "traced" is the larger of the
first step and the last on a cache of its final length, on fake tensors. "with weights" is its error with weights
counted on both sides. "fitted" is the prediction of `TracedCost` from seven traces of other batches, "law" that of
`LawCost` from sizes alone.
"""

if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    sys.exit(main())
