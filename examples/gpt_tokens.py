"""A small GPT in plain PyTorch on the texts of Python's own help, with as many tokens a step as memory allows.

    python examples/gpt_tokens.py [--memory-budget 96MiB] [--epochs 2]

Memory follows padded tokens, samples times the longest of them. So the budget is one of tokens: short paragraphs come
many at once, long ones few, and paragraphs of similar length together. The loss is a mean over the bytes that are
predicted, not over samples; ``weigh`` says so, and parts of a batch then weigh as much as they hold.
"""

import argparse
from collections import Counter
from pydoc_data.topics import topics

import trainauto

trainauto.set_environment()  # before torch: memory that is freed goes back to the system, where the budget sees it

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

LONGEST, PARAGRAPHS = 128, 1200
FIRST_TOKENS, MOST_TOKENS = 2 * LONGEST, 256 * LONGEST
WIDTH, HEADS, LAYERS = 64, 4, 2
PADDING, BYTES = 0, 256


class Block(nn.Module):
    """Causal attention and a feed-forward network, each on what a norm gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mixed, self.projected = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        parts = self.mixed(self.norms[0](hidden)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projected(seen.transpose(1, 2).flatten(2))
        return hidden + self.feed(self.norms[1](hidden))


class SmallGPT(nn.Module):
    """Bytes in, scores of the next byte out."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES))

    def forward(self, text: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        return self.head(self.blocks(self.bytes(text) + self.places(places)))


def paragraphs() -> list[Tensor]:
    """Return the first bytes of paragraphs of Python's help."""
    texts = [part.strip() for topic in sorted(topics) for part in topics[topic].split("\n\n")]
    return [torch.tensor(list(text.encode()[:LONGEST])) for text in texts if len(text) > 1][:PARAGRAPHS]


def loss(model: nn.Module, text: Tensor) -> Tensor:
    """Return the mean cross-entropy of the next byte."""
    scores = model(text[:, :-1])
    return functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten(), ignore_index=PADDING)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-budget", default="96MiB", help="memory that steps may take")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    dataset, model = paragraphs(), SmallGPT()
    loop = trainauto.AdaptiveLoop(
        model,
        trainauto.ModelObjective("gpt", torch.optim.AdamW(model.parameters(), 2e-3), loss),
        dataset,
        tokens=trainauto.Range(FIRST_TOKENS, MOST_TOKENS),
        lengths=[len(text) for text in dataset],
        collate_fn=lambda texts: pad_sequence(texts, batch_first=True, padding_value=PADDING),
        weigh=lambda text: int((text[:, 1:] != PADDING).sum()),
        memory_budget=options.memory_budget,
        settings={"adjustment_frequency": 6},  # steps between two looks at memory; short, as the run is
        max_norm=1.0,
    )
    trained: Counter[str] = Counter()
    out_of_memory = peak_bytes = 0
    with loop:
        for batch in loop.batches(options.epochs):
            step = loop.step(batch)
            out_of_memory += step.out_of_memory
            if not step.trained:  # it changed nothing, and comes again in smaller batches
                continue
            trained.update(batch.names)
            peak_bytes = max(peak_bytes, step.peak_bytes or 0)
            for decision in step.decisions:
                print(f"step {loop.progress.steps}: {decision.plan}: {decision.reason}")

    print(f"loss of the last step: {step.losses['loss']:.2f}; {loop.progress.tokens} padded tokens")
    times = sorted(set(trained.values()))
    print(f"{trained.total()} samples trained = {options.epochs} epochs x {len(dataset)}, each {times} times")
    print(f"plan reached: {loop.plan}; peak {peak_bytes / 2**20:.1f} MiB of {options.memory_budget}")
    print(f"out of memory: {out_of_memory} times")


if __name__ == "__main__":
    main()
