"""Batches of ``generate`` with the memory that each takes: what scripts/train_classifier.py learns from.

    python scripts/generate_training_data.py OUT.csv.gz [--model nllb nmt alma] [--traced]

Where there is a GPU, every batch is generated on it, and the memory is the peak of torch's allocator above what was
held before it. Elsewhere, or with --traced, the model is traced: the bytes of tensors if every text gets all its new
tokens. Runs are named by which it was (``measured/...``, ``traced/...``), and must not be trained on together.

A run is a batch size (1 to 512) and a length that texts are cut to (128 to 512), the grid that recordings of others
have. Its texts have 1 to 500 words; from the longest on, batches are drawn from evenly spread places, of counts that
make them between a quarter and twice as many padded tokens as the first: where it is to be decided.

Models: "nllb", "nmt" and "alma" are the sizes of NLLB-600M, a Marian translator and ALMA-7B with random weights, which
never end a text before it has all its new tokens; "tiny" is for trying this out; any other name is that of a model on
the hub, whose texts end as its weights say.
"""

import argparse
import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from classifier_data import COLUMNS

from trainauto.core.files import write_atomically
from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.tasks.text.generation_trace import Generation
from trainauto.tasks.text.traced_cost import TracedCost

BATCH_SIZES = (1, 4, 8, 64, 128, 256, 512)
MAX_LENGTHS = (128, 256, 512)
WORDS = (1, 500)
TOKENS_A_WORD = 1.3
MODELS = ("nllb", "nmt", "alma")


class Batch(NamedTuple):
    """A batch to be.

    Attributes:
        lengths: tokens of its texts, the longest first.
    """

    lengths: np.ndarray

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Tokens, paddings, texts, tokens of the longest."""
        tokens, texts, longest = int(self.lengths.sum()), len(self.lengths), int(self.lengths[0])
        return tokens, texts * longest - tokens, texts, longest


def batches_of_a_run(batch_size: int, max_length: int, batches: int, seed: int) -> list[Batch]:
    """Return the first batch, of the longest texts, and others from there on to the shortest."""
    generator = np.random.default_rng((seed, batch_size, max_length))
    texts = batches * batch_size
    words = generator.integers(WORDS[0], WORDS[1] + 1, texts)
    lengths = np.sort(np.minimum(np.rint(words * TOKENS_A_WORD).astype(int) + 1, max_length))[::-1]
    first_tokens = batch_size * int(lengths[0])
    drawn = [Batch(lengths[:batch_size])]
    for place in (np.arange(1, batches) * batch_size).tolist():
        share = generator.uniform(0.25, 2.0)
        count = int(np.clip(round(share * first_tokens / lengths[place]), batch_size, 6 * batch_size))
        drawn.append(Batch(lengths[place : place + count]))
    return drawn


class TracedMemory:
    """What batches take by traces of a model.

    Attributes:
        kind: how runs are named.
    """

    kind = "traced"

    def __init__(self, model: Any, new_tokens: int, max_length: int) -> None:
        self._cost = TracedCost.of_generation(model, Generation(new_tokens), max_length)

    def bytes(self, batch: Batch) -> int | None:
        """Return what a batch takes beside the model."""
        return int(self._cost.cost(np.array([len(batch.lengths)]), batch.lengths[:1], np.zeros(1, np.int64))[0])


class MeasuredMemory:  # pragma: no cuda
    """What batches take on the GPU.

    Attributes:
        kind: how runs are named.
    """

    kind = "measured"

    def __init__(self, model: Any, new_tokens: int) -> None:
        self._model, self._new_tokens = model, new_tokens
        self._on_left = not model.config.is_encoder_decoder

    def bytes(self, batch: Batch) -> int | None:
        """Return what a batch takes beside what was held before it; ``None`` if it does not fit."""
        longest = int(batch.lengths[0])
        mask = torch.arange(longest) < torch.from_numpy(batch.lengths.copy())[:, None]
        mask = (mask.flip(1) if self._on_left else mask).long().cuda()
        ids = torch.randint(3, self._model.config.vocab_size, mask.shape, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        try:
            with torch.inference_mode():
                self._model.generate(
                    input_ids=ids, attention_mask=mask, max_new_tokens=self._new_tokens, do_sample=False
                )
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return None
        return torch.cuda.max_memory_allocated() - held


def rows_of_run(
    name: str, model_name: str, max_length: int, batches: Sequence[Batch], memory: Any
) -> Iterator[list[Any]]:
    """Yield the rows of a run, as the recordings have them; it ends where a batch runs out of memory."""
    first_mib = 0.0
    for batch in batches:
        taken = memory.bytes(batch)
        if taken is None:  # pragma: no cuda
            release_memory(torch.device("cuda"))
            print(f"{name}: {batch.sizes[2]} texts of up to {batch.sizes[3]} tokens do not fit; the run ends there")
            return
        first_mib = first_mib or taken / 2**20
        tokens, paddings, texts, longest = batches[0].sizes
        yield [
            f"{memory.kind}/{name}", model_name, max_length, taken / 2**20, *batch.sizes,
            first_mib, texts, tokens, paddings, longest,
        ]  # fmt: skip


def model_of(name: str) -> Any:
    """Return a model in evaluation mode, in float16 on a GPU."""
    import transformers

    transformers.logging.set_verbosity_error()
    words = {"pad_token_id": 0, "eos_token_id": None}
    match name:
        case "nllb":
            sizes = {"d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "vocab_size": 256206}
            config = transformers.M2M100Config(**sizes, **words, decoder_start_token_id=2)
        case "nmt":
            sizes = {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 59514}
            heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
            config = transformers.MarianConfig(
                **sizes, **heads, **words, encoder_layers=6, decoder_layers=6, decoder_start_token_id=0
            )
        case "alma":
            config = transformers.LlamaConfig(vocab_size=32000, **words)  # otherwise the 7B that is its default
        case "tiny":
            sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 128}
            heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
            config = transformers.MarianConfig(
                **sizes, **heads, **words, encoder_layers=1, decoder_layers=1, decoder_start_token_id=0
            )
        case _:
            config = transformers.AutoConfig.from_pretrained(name)
    of_kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    dtype = torch.float16 if torch.cuda.is_available() else torch.float32
    if name in (*MODELS, "tiny"):
        model = of_kind.from_config(config, dtype=dtype)
    else:
        model = of_kind.from_pretrained(name, dtype=dtype)
    model.generation_config.max_length = None
    return model.eval()


def write_rows(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write a table that begins with its columns, gzipped, whole or not at all; equal rows make equal files."""
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\n").writerows([COLUMNS, *rows])
    write_atomically(path, lambda file: file.write_bytes(gzip.compress(lines.getvalue().encode(), mtime=0)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the table is written, as .csv.gz")
    parser.add_argument("--model", nargs="+", default=list(MODELS), help="see above")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=list(BATCH_SIZES))
    parser.add_argument("--max-lengths", nargs="+", type=int, default=list(MAX_LENGTHS))
    parser.add_argument("--new-tokens", type=int, default=128, help="that every text gets at most")
    parser.add_argument("--batches", type=int, default=40, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traced", action="store_true", help="trace, where there is a GPU as well")
    asked = parser.parse_args(arguments)
    on_gpu = torch.cuda.is_available() and not asked.traced
    rows: list[list[Any]] = []
    for model_name in asked.model:
        model = model_of(model_name)
        if on_gpu:  # pragma: no cuda
            model.cuda()
        for max_length in asked.max_lengths:
            new = asked.new_tokens
            memory = MeasuredMemory(model, new) if on_gpu else TracedMemory(model, new, max_length)
            for batch_size in asked.batch_sizes:
                name = f"{Path(model_name).name}_{batch_size}_{max_length}_{new}"
                batches = batches_of_a_run(batch_size, max_length, asked.batches, asked.seed)
                rows += rows_of_run(name, model_name, max_length, batches, memory)
                print(f"{memory.kind}/{name}: {len(rows)} rows so far", flush=True)
                write_rows(asked.out, rows)  # what there is, after every run
        del model
    print(f"{asked.out}: {len(rows)} rows")


if __name__ == "__main__":
    main()
