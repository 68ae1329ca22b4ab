"""Methods' batches through one small network under a memory budget, by turns; text_batching.py starts it.

    python scripts/bench/text_throughput.py < QUESTION.json > ANSWER.json

The question holds the task, the lengths, the budget, and each method's batches; none where our loader makes them as it
goes. A batch that runs out of memory is counted and tried again in halves, for every method. Seconds are of CPU time,
which others on the machine change little; processes differ by a tenth, so that methods are compared within one.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from trainauto.core.process import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration  # noqa: E402

from trainauto.core.process import parse_size_bytes  # noqa: E402
from trainauto.data.packing import (  # noqa: E402
    Bucketed,
    CandidateCounts,
    FewestBatches,
    LongestFirst,
    PackedBatchSampler,
    SampleSizes,
    TokenCost,
    candidate_counts,
)
from trainauto.memory.monitor.meter import MemoryMeter  # noqa: E402
from trainauto.memory.monitor.oom import is_out_of_memory  # noqa: E402
from trainauto.memory.monitor.release import release_memory  # noqa: E402
from trainauto.tasks.text.map_texts import limited_memory  # noqa: E402
from trainauto.tasks.text.text_batch import TextBatch  # noqa: E402
from trainauto.tasks.text.text_dataloader import TextDataLoader  # noqa: E402
from trainauto.tasks.text.tokenized_texts import Padding, TokenizedTexts  # noqa: E402

VOCABULARY, NEW_TOKENS = 4096, 16
Function = Callable[[TextBatch], Any]


def embed() -> Function:
    """Return mean vectors of an encoder."""
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512
    )
    model = BertModel(config, add_pooling_layer=False).eval()

    @torch.inference_mode()
    def function(batch: TextBatch) -> torch.Tensor:
        states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        return (states * mask).sum(1) / mask.sum(1)

    return function


def generate() -> Function:
    """Return continuations of an encoder with a decoder, always as many tokens."""
    sizes: dict[str, Any] = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 3, "num_heads": 4}
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **sizes)
    model = T5ForConditionalGeneration(config).eval()

    @torch.inference_mode()
    def function(batch: TextBatch) -> torch.Tensor:
        tokens: torch.Tensor = model.generate(**batch, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS)
        return tokens

    return function


def train() -> Function:
    """Return a step of a language model."""
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=512, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def function(batch: TextBatch) -> None:
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()

    return function


def texts_of(lengths: list[int]) -> TokenizedTexts:
    """Return random tokens of these lengths."""
    tokens = np.random.default_rng(1).integers(2, VOCABULARY, sum(lengths))
    columns = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    padding = Padding({"input_ids": 0, "attention_mask": 0})
    return TokenizedTexts([""] * len(lengths), np.asarray(lengths), columns, padding)


def in_halves(
    function: Function, texts: TokenizedTexts, batches: list[list[int]], meter: MemoryMeter
) -> dict[str, int]:
    """Run batches; return how many, how often memory ran out, and the highest peak."""
    failures, peak_bytes, left = 0, 0, batches[::-1]
    while left:
        indices = left.pop()
        failed = False
        try:
            with meter.window() as window:
                function(texts.batch(indices))
            peak_bytes = max(peak_bytes, window.reading.allocated if window.reading else 0)
        except Exception as error:
            if not is_out_of_memory(error) or len(indices) == 1:
                raise
            failed = True
        if failed:
            release_memory(meter.device)
            failures += 1
            half = len(indices) // 2
            left += [indices[half:], indices[:half]]
    return {"failures": failures, "batches": len(batches) + failures, "peak_bytes": peak_bytes}


def main(question: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return what came of each method in each turn."""
    torch.set_num_threads(question["threads"])
    torch.manual_seed(0)
    function = {"embed": embed, "generate": generate, "train": train}[question["task"]]()
    lengths, batches = question["lengths"], question["batches"]
    texts = texts_of(lengths)
    function(texts.batch([int(np.argmin(lengths))]))  # what is loaded and made at first is in nobody's time
    if "ours" in batches and question["task"] == "train":
        sizes, rule = SampleSizes(texts.lengths), FewestBatches(TokenCost(), question["count"] * max(lengths))
        batches["ours"] = list(PackedBatchSampler(sizes, rule, Bucketed()))
    meter = MemoryMeter.of_this_process()
    turns: dict[str, list[dict[str, Any]]] = {method: [] for method in batches}
    with limited_memory(meter, parse_size_bytes(question["budget"])):
        for turn in range(question["turns"]):
            for method, made in rotated(list(batches.items()), turn):
                start = time.process_time()
                came_of_it = (
                    mapped(function, texts, question["count"])
                    if made is None
                    else in_halves(function, texts, made, meter)
                )
                turns[method].append({"seconds": time.process_time() - start, **came_of_it})
    return turns


def rotated(methods: list[tuple[str, Any]], turn: int) -> list[tuple[str, Any]]:
    """Return the methods in another order every turn: what came before has left its mark on the heap and the caches."""
    return methods[turn % len(methods) :] + methods[: turn % len(methods)]


def mapped(function: Function, texts: TokenizedTexts, count: int) -> dict[str, int]:
    """Run our loader's map; return what came of it."""
    rule = CandidateCounts(TokenCost(), count * int(max(texts.lengths)), candidate_counts(count), count)
    loader = TextDataLoader(texts, rule, PackedBatchSampler(SampleSizes(texts.lengths), rule, LongestFirst()))
    report = loader.map(function).report
    return {"failures": report.out_of_memory, "batches": report.batches, "peak_bytes": report.peak_bytes}


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
