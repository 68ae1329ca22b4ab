"""What a language model trains of its texts in a second, padded and packed, on this CPU with one thread.

    python scripts/bench/text_packing.py

Help texts that ship with Python, in tokens of their own vocabulary, cut into samples of at most 128. Batches have a
budget of 4,096 tokens, padding included. Each way steps in turns (forward, backward, AdamW); seconds are the process's
own CPU time, and figures are tokens of the texts, without padding, by the median turn.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.core.words import counted
from trainauto.data.batcher import Batcher
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.data.packing import IntArray
from trainauto.data.sampler import ShuffledStream
from trainauto.engine.step import optimize_parameters
from trainauto.optim.precision import Precision
from trainauto.tasks.text.training.encoding import encode_samples
from trainauto.tasks.text.training.language_model import LanguageModel
from trainauto.tasks.text.training.networks import NetworkSettings, make_network
from trainauto.tasks.text.training.text_dataset import TextDataset, draws_of
from trainauto.tasks.text.training.text_files import read_texts
from trainauto.tasks.text.training.tokenizers import Vocabulary, train_tokenizer

LONGEST = 128
BUDGET = 4096
ROWS = (128, 256, 512, 2048)
STEPS = 2
SEED = 0
MODEL = {"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": max(ROWS)}


@dataclass
class Way:
    """One way of making batches, with a model of its own.

    Attributes:
        name: in the table.
        model: the same weights as every other's at the start.
        batches: endless.
        figures: tokens a second of each turn.
        filled: tokens of the texts, and of their rows, of all batches so far.
    """

    name: str
    model: LanguageModel
    batches: Iterator[Batch]
    figures: list[float] = field(default_factory=list)
    filled: tuple[int, int] = (0, 0)

    def turn(self) -> None:
        """Take some steps."""
        tokens, start = 0, time.process_time()
        for _ in range(STEPS):
            batch = next(self.batches)
            optimize_parameters(self.model, batch)
            tokens += batch.units
            self.filled = self.filled[0] + batch.units, self.filled[1] + batch.shape.tokens
        self.figures.append(tokens / (time.process_time() - start))


@dataclass(frozen=True)
class PaddedDraws:
    """Draws of a shuffled order, padded: what padding costs where nobody looks at lengths.

    Attributes:
        stream: of the samples.
        lengths: of all samples.
    """

    stream: ShuffledStream
    lengths: IntArray

    def batch_size(self, first_sample: int, plan: Plan) -> int:
        """Return how many of the next texts fit, padded to the longest of them."""
        epoch, place = divmod(first_sample, len(self.lengths))
        longest = np.maximum.accumulate(self.lengths[self.stream.order(epoch)[place : place + plan.size]])
        return int(np.searchsorted(longest * np.arange(1, len(longest) + 1), plan.size, "right"))

    def part_size(self, first_sample: int, samples: int, plan: Plan) -> int:
        """Return the same of a draw on its way."""
        return min(samples, self.batch_size(first_sample, plan))


def main(rounds: int) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    ways = list(all_ways())
    for turn in range(rounds + 1):
        for way in ways:
            way.turn()
            if not turn:  # kernels are made in the first one
                way.figures.clear()
    for way in ways:
        tokens, room = way.filled
        low, high = min(way.figures), max(way.figures)
        print(
            f"| {way.name} | {statistics.median(way.figures):,.0f} | {low:,.0f} to {high:,.0f} | {tokens / room:.0%} |"
        )


def all_ways() -> Iterator[Way]:
    """Yield the ways, each with the same model."""
    samples = read_texts("package:pydoc_data/topics.py", set_name="texts", file_format="strings")
    tokenizer = train_tokenizer((text for sample in samples for text in sample.texts), 2048)
    vocabulary = Vocabulary.of(tokenizer)
    texts = encode_samples(samples, tokenizer, vocabulary, max_length=LONGEST, too_long="split")
    print(f"{counted(len(texts), 'text')} of {texts.lengths.mean():.1f} tokens on average; torch {torch.__version__}")
    print("| batches | tokens/s | lowest and highest turn | texts in what is computed |")
    print("|---|---|---|---|")
    padded = TextDataset("texts", texts)
    yield way("padded, beside others of their length", padded, vocabulary, *draws_of(padded, SEED))
    shuffled = ShuffledStream(len(texts), SEED)
    yield way("padded, in random order", padded, vocabulary, shuffled, PaddedDraws(shuffled, texts.lengths))
    for row in ROWS:
        packed = TextDataset("texts", texts, row_length=row)
        yield way(f"packed into rows of {row}", packed, vocabulary, *draws_of(packed, SEED))


def way(name: str, dataset: TextDataset, vocabulary: Vocabulary, stream: ShuffledStream, batcher: Batcher) -> Way:
    """Return a way of making batches, with a model."""
    torch.manual_seed(SEED)
    network = make_network(NetworkSettings(config=MODEL, attention="sdpa"), vocabulary, longest=dataset.row_tokens)
    model = LanguageModel(
        network,
        "causal",
        dataset.workload.layout,
        vocabulary.pad,
        lambda weights: torch.optim.AdamW(weights, lr=1e-3),
        Precision(torch.device("cpu")),
    )
    plan = Plan.of(tokens=BUDGET // dataset.row_tokens * dataset.row_tokens)
    loader = DynamicDataLoader(
        dataset, plan, seed=SEED, lookahead=1, stream=stream, new_batcher=lambda _order, _sharding: batcher
    )
    return Way(name, model, iter(loader))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each way, after one that does not count")
    main(parser.parse_args().rounds)
