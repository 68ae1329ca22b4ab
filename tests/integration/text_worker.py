"""Texts scored by a language model, in batches under a real memory budget; run in a process of its own.

    python text_worker.py BUDGET TARGET RESULT.json

Short texts are scored in double precision: what is predicted of them by their tokens is too little, so that memory runs
out in mid-run. TARGET is a share of the budget, or 0 for what the first batch takes.
"""

import json
import resource
import sys
from pathlib import Path

from trainauto.core.process import set_environment

set_environment()  # before torch is loaded, as for every CPU budget

import torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

import trainauto  # noqa: E402
from tests import tokenizers  # noqa: E402
from trainauto.data.packing import TokenCost  # noqa: E402
from trainauto.tasks.text.text_batch import TextBatch  # noqa: E402

SHORT = 24
VOCABULARY = 8192
"""Logits are 32 KiB a token: what memory there is goes to them."""


def scorer(widths: list[tuple[int, int]]) -> object:
    """Return a function that scores the texts of a batch, and notes its shape."""
    torch.manual_seed(0)
    sizes = {"n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **sizes)
    model = GPT2LMHeadModel(config).eval()

    @torch.inference_mode()
    def score(batch: TextBatch) -> torch.Tensor:
        widths.append(tuple(batch["input_ids"].shape))
        ids, mask = batch["input_ids"], batch["attention_mask"]
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        if ids.shape[1] <= SHORT:
            logits = logits.double()
        likelihood = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return (likelihood * mask[:, 1:]).sum(1).float()

    return score


def main(budget: str, target: str) -> dict[str, object]:
    torch.set_num_threads(1)
    limits = (64 * 2**30, resource.getrlimit(resource.RLIMIT_DATA)[1])  # of the process, whatever a budget does to it
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    texts = tokenizers.texts(400, longest=60)
    shapes: list[tuple[int, int]] = []
    score = scorer(shapes)
    loader = trainauto.build_dynamic_batch_dataloader(
        texts, tokenizers.fast_tokenizer(), 8, 64, num_workers=0, cost=TokenCost(), return_token_type_ids=False
    )
    mapped = loader.map(score, memory_budget=budget, target_vram_usage=float(target) or None)
    in_budget, shapes[:] = list(shapes), []
    alone = [float(score(loader.dataset.batch([index]))[0]) for index in range(0, len(texts), 7)]
    return {
        "shapes": in_budget,
        "results": [float(result) for result in mapped.results],
        "alone": alone,
        "report": vars(mapped.report),
        "limit_is_back": resource.getrlimit(resource.RLIMIT_DATA) == limits,
    }


if __name__ == "__main__":
    result = main(*sys.argv[1:3])
    Path(sys.argv[3]).write_text(json.dumps(result))
