"""What windows of shuffled samples cost in padding, and how far their batches are from a random order.

    python scripts/bench/text_windows.py

Two sets of 20,000 lengths: lognormal ones cut at 512 tokens, and ones with two humps, as of questions and articles.
Batches hold at most 16,384 padded tokens. The bias of a window is the variance of its batches' mean lengths over that
under a random order: 1 is random. ``met again`` is how many pairs of a batch's samples share one in the next epoch.
"""

import argparse
import platform
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from trainauto.core.shuffling import shuffled_order
from trainauto.data.packing import Bucketed, FewestBatches, Packing, SampleSizes, TokenCost, pack_by

SAMPLES = 20_000
BOUND = 16_384  # padded tokens
WINDOWS = (1, 2, 3, 5, 8, 12, 20, 30, 50)  # in batches of mean size, and the whole set
EPOCHS = 5
SEED = 0


def sets() -> Iterator[tuple[str, SampleSizes]]:
    """Yield each set's name and lengths."""
    generator = np.random.default_rng(SEED)
    lognormal = np.exp(generator.normal(3.5, 0.8, SAMPLES))
    short, long = np.exp(generator.normal(2.8, 0.4, SAMPLES)), generator.normal(350, 60, SAMPLES)
    two_humps = np.where(generator.random(SAMPLES) < 0.7, short, long)
    for name, lengths in (("lognormal", lognormal), ("two humps", two_humps)):
        yield name, SampleSizes(lengths.astype(np.int64).clip(1, 512))


def in_random_order(sizes: SampleSizes, epoch: int) -> Packing:
    """Return batches of a shuffled order as it comes, each filled while it keeps to the bound."""
    order = shuffled_order(len(sizes), SEED, epoch)
    ends, start, longest = [], 0, 0
    for place, tokens in enumerate(sizes.tokens[order].tolist()):
        if (place + 1 - start) * max(longest, tokens) > BOUND:
            ends.append(place)
            start, longest = place, 0
        longest = max(longest, tokens)
    return Packing(order, np.array([*ends, len(sizes)]))


def variance_of_mean_lengths(packing: Packing, sizes: SampleSizes) -> float:
    """Return how much the mean lengths of batches vary."""
    sums = np.add.reduceat(sizes.tokens[packing.order], packing.starts)
    return float(np.var(sums / packing.counts))


def met_again(packing: Packing, other: Packing) -> float:
    """Return the share of the pairs in one epoch's batches that share a batch in another epoch, too."""
    numbers = np.empty((2, len(packing.order)), np.int64)
    for row, epoch in zip(numbers, (packing, other), strict=True):
        row[epoch.order] = np.repeat(np.arange(len(epoch)), epoch.counts)
    together = np.unique(numbers[0] * len(other) + numbers[1], return_counts=True)[1]
    return float((together * (together - 1)).sum() / (packing.counts * (packing.counts - 1)).sum())


def line(name: str, packings: list[Packing], sizes: SampleSizes, random: float) -> str:
    """Return a table's line of several epochs."""
    batches = np.mean([len(packing) for packing in packings])
    waste = np.mean([packing.waste(sizes) for packing in packings])
    bias = np.mean([variance_of_mean_lengths(packing, sizes) for packing in packings]) / random
    again = np.mean([met_again(*pair) for pair in pairwise(packings)])
    return f"| {name} | {batches:.1f} | {waste:.1%} | {bias:.0f} | {again:.0%} |"


def main() -> None:
    """Print a table for each set."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"Python {platform.python_version()}, numpy {np.__version__}")
    rule = FewestBatches(TokenCost(), BOUND)
    for name, sizes in sets():
        packed = pack_by(rule, sizes)
        unsorted = [in_random_order(sizes, epoch) for epoch in range(EPOCHS)]
        random = float(np.mean([variance_of_mean_lengths(packing, sizes) for packing in unsorted]))
        print(f"\n### {name}: {sizes.tokens.mean():.0f} tokens on average, {sizes.tokens.max()} at most\n")
        print("| window, in batches | batches | padding | bias | met again |\n|---|---:|---:|---:|---:|")
        print(line("none: random order", unsorted, sizes, random))
        for window in (*WINDOWS, len(packed)):
            order = Bucketed(-(-len(sizes) * window // len(packed)))
            epochs = [order.epoch(packed, sizes, rule, SEED, epoch) for epoch in range(EPOCHS)]
            print(line(f"{window}" if window < len(packed) else f"{window}: all", epochs, sizes, random))


if __name__ == "__main__":
    main()
