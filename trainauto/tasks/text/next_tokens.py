"""How the next token of every text is chosen, in tensors of the sizes that transformers makes for it.

Scores of all words are the largest tensors of a generation with a large vocabulary, and sampling makes several more of
them. What is kept of one step ends only when the next step has made the same: the scores as they came, as they were
processed, and the probabilities. ``tests/integration/test_generation_memory.py`` compares with ``generate`` on a CPU;
what sorting takes within its kernel on a GPU (``top_p``) comes on top.
"""

from typing import NamedTuple

import torch
from torch import Tensor

FLOAT_BYTES = 4
"""Scores are processed in float32, whatever a model computes in."""


class Generation(NamedTuple):
    """How texts are generated; all but ``beams`` are named as arguments of ``generate``, and mean the same.

    Greedy search, beam search and sampling. With several beams nothing else may be set. Other processors of scores
    (``min_p``, ``no_repeat_ngram_size`` ...) may take more than is foretold.

    Attributes:
        max_new_tokens: tokens that every text gets at most; memory is that of a text that gets them all.
        beams: continuations of a text that are followed at the same time (``num_beams``).
        do_sample: draw tokens by their probabilities; only then do temperature, ``top_k`` and ``top_p`` play a part.
        temperature: scores are divided by it; 1 leaves them.
        top_k: tokens that may be drawn; 0 for all. The default is that of transformers.
        top_p: probability that those which may be drawn have together; 1 for all.
        repetition_penalty: on the scores of tokens that are there already; 1 for none.
    """

    max_new_tokens: int
    beams: int = 1
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def check(self) -> None:
        """Look whether memory is known.

        Raises:
            ValueError: no token or no beam is asked for, or beams that are sampled or penalised.
        """
        if self.max_new_tokens < 1 or self.beams < 1:
            raise ValueError(f"at least one new token and one beam, got {self}")
        if self.beams > 1 and (self.do_sample or self.repetition_penalty != 1):
            raise ValueError("what several beams take is known without do_sample and repetition_penalty only")

    def processors(self) -> tuple[str, ...]:
        """Return what is made of scores before a token is chosen, in its order."""
        made = {
            "repetition_penalty": self.repetition_penalty != 1,
            "temperature": self.do_sample and self.temperature != 1,
            "top_k": self.do_sample and self.top_k > 0,
            "top_p": self.do_sample and self.top_p < 1,
        }
        return tuple(name for name, is_made in made.items() if is_made)

    def kept_scores(self) -> int:
        """Return how many tensors of scores a step of one beam leaves to the next one."""
        return 1 + bool(self.processors()) + self.do_sample

    def score_bytes(self, number_bytes: int) -> int:
        """Return the bytes of a row's scores at their peak, for each word of the vocabulary.

        Args:
            number_bytes: of a number that the model computes.
        """
        if self.beams > 1:
            return number_bytes + 4 * FLOAT_BYTES
        # Copied from the logits while everything that the step before left is there, or processed when that one's
        # scores as they came are gone.
        peaks, processed = [self.kept_scores() * FLOAT_BYTES], 0
        for name in self.processors():
            peaks.append((1 + self.do_sample) * FLOAT_BYTES + processed + _PROCESSOR_BYTES[name])
            processed = FLOAT_BYTES
        return number_bytes + FLOAT_BYTES + max(peaks)


_PROCESSOR_BYTES = {
    "repetition_penalty": 2 * FLOAT_BYTES,  # scores with a column more, and the result
    "temperature": FLOAT_BYTES,
    "top_k": 1 + FLOAT_BYTES,  # which are left out, and the result
    "top_p": 3 * FLOAT_BYTES + 8 + 2,  # sorted scores, their indices, sums; twice which are left out; the result
}
"""Bytes that a processor takes at its peak for each word, its result included."""


def chosen_tokens(logits: Tensor, tokens: Tensor, kept: list[Tensor], generation: Generation) -> Tensor:
    """Return the next token of every row, shape (rows,); of one beam.

    Args:
        logits: what the model said, shape (rows, 1 or more, vocabulary).
        tokens: of every row so far, shape (rows, tokens).
        kept: what the step before left; what this one leaves takes its places.
        generation: how texts are generated.
    """
    kept[:1] = [logits[:, -1].to(copy=True, dtype=torch.float32)]
    if generation.processors():
        scores = kept[0]
        for name in generation.processors():
            scores = _processed(name, scores, tokens)
        kept[1:2] = [scores]
        del scores
    scores_place = int(bool(generation.processors()))
    if not generation.do_sample:
        return kept[scores_place].argmax(dim=-1)
    kept[scores_place + 1 :] = [kept[scores_place].softmax(dim=-1)]
    noise = torch.empty_like(kept[-1])  # how ATen draws one sample a row
    return noise.div_(kept[-1]).argmax(dim=-1)


def _processed(name: str, scores: Tensor, tokens: Tensor) -> Tensor:
    """Make what the processor of that name makes; values do not matter."""
    match name:
        case "repetition_penalty":
            words = scores.shape[-1]
            wider = torch.nn.functional.pad(scores, (0, 1))
            return wider.scatter(1, tokens, wider.gather(1, tokens))[:, :words]
        case "temperature":
            return scores / 0.5
        case "top_k":
            return scores.masked_fill(scores < scores[:, :1], 0.0)
        case _:
            ordered, indices = scores.sort()
            sums = ordered.softmax(dim=-1).cumsum(dim=-1)
            left_out = sums <= 0.5
            left_out_of_words = left_out.scatter(1, indices, left_out)
            return scores.masked_fill(left_out_of_words, 0.0)
