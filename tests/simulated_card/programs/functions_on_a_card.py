"""Runs functions in parts where memory runs out on a card: over texts, over batches. Prints what it took as JSON.

python functions_on_a_card.py
"""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests import tokenizers
from trainauto import build_dynamic_batch_dataloader
from trainauto.core.errors import InputError
from trainauto.memory.cuda_allocator.segments import uses_expandable_segments
from trainauto.tasks.multitask.prediction.oom_guardian import OOMGuardian
from trainauto.tasks.text.text_batch import TextBatch

BYTES_A_TOKEN = 2**23


def words(batch: TextBatch) -> list[int]:
    """Count words, with scratch space for every token."""
    torch.empty(batch["input_ids"].numel() * BYTES_A_TOKEN, dtype=torch.uint8, device="cuda")
    return [int(count) - 2 for count in batch["attention_mask"].sum(1)]


def samples(batch: torch.Tensor) -> int:
    """Count samples, with 768 MiB for each."""
    torch.empty(len(batch) * 3 * 2**28, dtype=torch.uint8, device="cuda")
    return len(batch)


def main() -> None:
    """Run them."""
    texts = tokenizers.texts(60, longest=30)
    mapped = build_dynamic_batch_dataloader(texts, tokenizers.fast_tokenizer(), 32, 64, num_workers=0).map(words)
    assert mapped.results == [len(text.split()) for text in texts]
    guardian = OOMGuardian(device="cuda:0")
    parts = [part.result for part in guardian.run_in_parts(samples, torch.zeros(8, 1))]
    try:
        OOMGuardian(device="cuda:7")
    except InputError as error:
        refused = str(error)
    torch.empty(2**20, device="cuda")
    facts = {"texts": mapped.report.out_of_memory, "parts": parts, "limit": guardian.limit_bytes, "refused": refused}
    facts["used"] = [guardian.in_use_bytes(), guardian.emergency_cleanup()]
    print(json.dumps({**facts, "expandable": uses_expandable_segments(torch.device("cuda", 0))}))


if __name__ == "__main__":
    main()
