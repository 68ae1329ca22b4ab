"""What choosing tokens takes: the closed form against what real tensors take, step after step."""

import numpy as np
import pytest
import torch

from trainauto.memory.tracing.profiler_events import profiled
from trainauto.tasks.text.next_tokens import Generation, chosen_tokens

ROWS, WORDS = 4, 4000
GENERATIONS = [
    Generation(8),
    Generation(8, repetition_penalty=1.2),
    Generation(8, do_sample=True, top_k=0),
    Generation(8, do_sample=True),
    Generation(8, do_sample=True, top_k=0, temperature=0.7),
    Generation(8, do_sample=True, temperature=0.7),
    Generation(8, do_sample=True, top_k=0, top_p=0.9),
    Generation(8, do_sample=True, temperature=0.7, top_p=0.9, repetition_penalty=1.2),
]


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda values: " ".join(map(str, values)))
def test_scores_take_what_the_closed_form_says(generation: Generation) -> None:
    def steps() -> None:
        kept: list[torch.Tensor] = []
        tokens = torch.zeros(ROWS, 3, dtype=torch.long)
        for _ in range(3):
            logits = torch.rand(ROWS, 1, WORDS)
            assert chosen_tokens(logits, tokens, kept, generation).shape == (ROWS,)
            assert len(kept) == generation.kept_scores()
            del logits

    steps()
    _, events = profiled(steps, steps)
    peak = np.cumsum([event.size_bytes for event in events if event.is_tensor]).max()
    assert peak / ROWS / WORDS == pytest.approx(generation.score_bytes(4), rel=0.01)


def test_what_only_sampling_reads_plays_no_part_without_it() -> None:
    greedy = Generation(8, temperature=0.7, top_p=0.9)
    assert greedy.processors() == ()
    assert greedy.score_bytes(2) == 2 + 4 + 4
    assert Generation(8, do_sample=True, top_p=0.9).processors() == ("top_k", "top_p")


def test_what_is_not_known_is_refused() -> None:
    for unknown in (Generation(8, beams=2, do_sample=True), Generation(8, beams=2, repetition_penalty=1.1)):
        with pytest.raises(ValueError, match="several beams"):
            unknown.check()
    with pytest.raises(ValueError, match="at least one new token"):
        Generation(0).check()
