"""How others make batches of lengths, with Python's own numbers and lists: what the packing layer is compared with."""

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

Batches = list[list[int]]


def fixed_shuffled(lengths: Sequence[int], count: int, seed: int = 0) -> Batches:
    """Return what a loader with ``shuffle=True`` does."""
    order = list(range(len(lengths)))
    random.Random(seed).shuffle(order)
    return [order[start : start + count] for start in range(0, len(order), count)]


def fixed_sorted(lengths: Sequence[int], count: int) -> Batches:
    """Return neighbours by length, the longest first, always as many."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[start : start + count] for start in range(0, len(order), count)]


def most_tokens(lengths: Sequence[int], bound: int, cap: int | None, *, longest_first: bool = False) -> Batches:
    """Return fairseq's ``max_tokens``: neighbours by length, as long as count times longest stays within a bound."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=longest_first)
    batches: Batches = [[]]
    longest = 0
    for index in order:
        wider = max(longest, lengths[index])
        if batches[-1] and (wider * (len(batches[-1]) + 1) > bound or len(batches[-1]) == cap):
            batches.append([])
            wider = lengths[index]
        batches[-1].append(index)
        longest = wider
    return batches


def in_random_order(batches: Batches, seed: int = 0) -> Batches:
    """Return the same batches in another order, as a trainer takes them."""
    return random.Random(seed).sample(batches, len(batches))


DYNABATCH = """
import contextlib, io, json, sys, time
lengths, words, count, most, factor, repeats = json.load(sys.stdin)
from dynabatch.main import dynabatch_sampler
seconds = []
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for _ in range(repeats):
        start = time.perf_counter()
        sampler = dynabatch_sampler(
            ["w"] * len(lengths), None, count, most, max_batch_range=factor, num_workers=1, token_lengths=lengths,
            word_lengths=words, char_lengths=[6 * n for n in words],
        )
        seconds.append(time.perf_counter() - start)
print(json.dumps([[list(map(int, batch)) for batch in sampler], seconds]))
"""


def dynabatch(
    python: Path, lengths: Sequence[int], count: int, factor: float, repeats: int
) -> tuple[Batches, list[float]]:
    """Return dynabatch's batches, and the seconds that each of ``repeats`` builds took in one thread.

    Args:
        python: interpreter of an environment in which it is installed.
        lengths: tokens of the texts; it is told of a word for each 1.3 of them, and 6 characters for each word.
        count: texts of the first batch.
        factor: largest batch as a multiple of it.
        repeats: how often it is built.
    """
    words = [max(1, round(length / 1.3)) for length in lengths]
    question = json.dumps([list(lengths), words, count, max(lengths), factor, repeats])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [str(python), "-c", DYNABATCH], input=question, env=threads, capture_output=True, text=True, check=True
    )
    batches, seconds = json.loads(done.stdout)
    return batches, seconds


def padded_tokens(batches: Batches, lengths: Sequence[int]) -> int:
    """Return the tokens of batches that are padded to their own longest."""
    return sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)


def median_seconds(build: Callable[[], object], repeats: int) -> float:
    """Return what a build takes, the median of a few."""
    import statistics
    import time

    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        build()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
