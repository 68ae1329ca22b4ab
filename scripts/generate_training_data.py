"""Batches of ``generate`` with the memory that each takes: what scripts/train_classifier.py learns from.

    python scripts/generate_training_data.py [OUT.csv.gz] [--model nllb nmt alma] [--traced]

Where there is a GPU, every batch is generated on it, and the memory is the peak of torch's allocator above what was
held before it. Elsewhere, or with --traced, the model is traced: the bytes of tensors if every text gets all its new
tokens. Either is greedy and in float16. Runs are named by which it was (``measured/...``, ``traced/...``), and must
not be trained on together.

A run is a batch size (1 to 512) and a length that texts are cut to (128 to 512), the grid that recordings of others
have. Its texts have 1 to 500 words; from the longest on, batches are drawn from evenly spread places, of one to six
times the first one's texts and mostly of no more than twice its padded tokens: where it is to be decided. None has the
sizes of another. One that does not fit is recorded with the most that any of its run took.

Models: "nllb", "nmt" and "alma" are the sizes of NLLB-600M, a Marian translator and ALMA-7B with random weights, which
never end a text before it has all its new tokens; "tiny" is for trying this out; any other name is that of a model on
the hub, whose texts end as its weights say.
"""

import argparse
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from classifier_tables import write_rows

from trainauto.memory.monitor.oom import is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.tasks.text.generation_trace import Generation
from trainauto.tasks.text.traced_cost import TracedCost

BATCH_SIZES = (1, 4, 8, 64, 128, 256, 512)
MAX_LENGTHS = (128, 256, 512)
WORDS = (1, 500)
TOKENS_A_WORD = 1.3
MODELS = ("nllb", "nmt", "alma")
OUT = Path("training_data.csv.gz")
DTYPE = torch.float16
"""What models are generated with, and traced with, too."""


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


def batches_of_a_run(model_name: str, batch_size: int, max_length: int, batches: int, seed: int) -> list[Batch]:
    """Return the first batch, of the longest texts, and others from there on to the shortest; no sizes come twice."""
    generator = np.random.default_rng((seed, batch_size, max_length, zlib.crc32(model_name.encode())))
    texts = batches * batch_size
    words = generator.integers(WORDS[0], WORDS[1] + 1, texts)
    lengths = np.sort(np.minimum(np.rint(words * TOKENS_A_WORD).astype(int) + 1, max_length))[::-1]
    first_tokens = batch_size * int(lengths[0])
    first = Batch(lengths[:batch_size])
    drawn = {first.sizes: first}
    for place in (np.arange(1, batches) * batch_size).tolist():
        share = generator.uniform(0.25, 2.0)
        count = int(np.clip(round(share * first_tokens / lengths[place]), batch_size, 6 * batch_size))
        batch = Batch(lengths[place : place + count])
        drawn.setdefault(batch.sizes, batch)
    return list(drawn.values())


def run_name(model_name: str, *settings: object) -> str:
    """Return the name of a run: the family, without the "_" that ends it, and all that makes it another run."""
    return "_".join([re.sub(r"[^A-Za-z0-9.]+", "-", model_name), *map(str, settings)])


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

    def bytes(self, batch: Batch) -> int | None:
        """Return what a batch takes beside what was held before it; ``None`` if it does not fit."""
        mask = mask_of(batch, on_left=not self._model.config.is_encoder_decoder).cuda()
        ids = torch.randint(3, self._model.config.vocab_size, mask.shape, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        try:
            with torch.inference_mode():
                self._model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    max_new_tokens=self._new_tokens,
                    do_sample=False,
                    num_beams=1,  # as it is traced, whatever the hub's configuration says
                )
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        else:
            return torch.cuda.max_memory_allocated() - held
        release_memory(torch.device("cuda"))  # the error is gone by now, and with it the tensors of its frames
        return None


def mask_of(batch: Batch, *, on_left: bool) -> torch.Tensor:
    """Return 1 for tokens and 0 for padding, which is on the left of texts that are continued; (texts, longest)."""
    mask = torch.arange(int(batch.lengths[0])) < torch.from_numpy(batch.lengths.copy())[:, None]
    return (mask.flip(1) if on_left else mask).long()


def rows_of_run(
    name: str, model_name: str, max_length: int, batches: Sequence[Batch], memory: Any
) -> Iterator[list[Any]]:
    """Yield the rows of a run, as the recordings have them; none where the first batch does not fit.

    A later one that does not fit takes more than the first, which does: it is a spike. How much it would take nobody
    knows; recorded is the most that any before it took.
    """
    first_mib = most_mib = 0.0
    for batch in batches:
        taken = memory.bytes(batch)
        if taken is None and not first_mib:
            print(f"{name}: the first batch does not fit")
            return
        taken_mib = most_mib if taken is None else taken / 2**20
        first_mib, most_mib = first_mib or taken_mib, max(most_mib, taken_mib)
        tokens, paddings, texts, longest = batches[0].sizes
        yield [
            f"{memory.kind}/{name}", model_name, max_length, taken_mib, *batch.sizes,
            first_mib, texts, tokens, paddings, longest,
        ]  # fmt: skip


def model_of(name: str, device: str) -> Any:
    """Return a model in evaluation mode and float16; on "meta", one with random weights takes no memory."""
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
    if name in (*MODELS, "tiny"):
        with torch.device(device):
            model = of_kind.from_config(config, dtype=DTYPE)
    else:
        model = of_kind.from_pretrained(name, dtype=DTYPE)
        model = model.cuda() if device == "cuda" else model
    model.generation_config.max_length = None
    return model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=OUT, help=f"where the table is written; {OUT} by default")
    parser.add_argument("--model", nargs="+", default=list(MODELS), help="see above")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=list(BATCH_SIZES))
    parser.add_argument("--max-lengths", nargs="+", type=int, default=list(MAX_LENGTHS))
    parser.add_argument("--new-tokens", type=int, default=128, help="that every text gets at most")
    parser.add_argument("--batches", type=int, default=40, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traced", action="store_true", help="trace, where there is a GPU as well")
    asked = parser.parse_args(arguments)
    if min(asked.batches - 1, asked.new_tokens, *asked.batch_sizes, *asked.max_lengths) < 1:
        parser.error("sizes and lengths must be 1 or more, and batches of a run 2 or more")
    if len({run_name(name) for name in asked.model}) < len(asked.model):
        parser.error("two models have one name, but for other signs than letters and digits")
    rows: list[list[Any]] = []
    for model_name in asked.model:
        for some in rows_of_model(model_name, asked):
            rows += some
            write_rows(asked.out, rows)  # what there is, after every run
    print(f"{asked.out}: {len(rows)} rows")


def rows_of_model(model_name: str, asked: argparse.Namespace) -> Iterator[list[list[Any]]]:
    """Yield the rows of each run of a model, which is let go of at the end."""
    on_gpu = torch.cuda.is_available() and not asked.traced
    device = torch.cuda.get_device_name() if on_gpu else "no-device"
    model, new = model_of(model_name, "cuda" if on_gpu else "meta"), asked.new_tokens
    for max_length in asked.max_lengths:
        memory = MeasuredMemory(model, new) if on_gpu else TracedMemory(model, new, max_length)
        for batch_size in asked.batch_sizes:
            settings = (batch_size, max_length, new, asked.batches, asked.seed, str(DTYPE).removeprefix("torch."))
            name = run_name(model_name, *settings, re.sub(r"\W+", "-", device))
            batches = batches_of_a_run(model_name, batch_size, max_length, asked.batches, asked.seed)
            rows = list(rows_of_run(name, model_name, max_length, batches, memory))
            print(f"{memory.kind}/{name}: {len(rows)} rows", flush=True)
            yield rows
    del model, memory
    if on_gpu:  # pragma: no cuda
        release_memory(torch.device("cuda"))


if __name__ == "__main__":
    main()
