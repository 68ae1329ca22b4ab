"""Predicted bytes of ``generate`` against those of the same call on real tensors: GPT-2, Llama, T5, Marian."""

import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "transformers", reason="the package needs it nowhere; where it is, predictions are compared with it"
)
sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))
import generate_memory as bench

from trainauto.tasks.text.costs import LawCost
from trainauto.tasks.text.generation_trace import Generation, GenerationTracer

MOST_ERROR = 0.05
CASES = {
    "the prompt is the peak": (6, 80, Generation(4)),
    "the last step is the peak": (4, 6, Generation(24)),
    "beams": (3, 20, Generation(12, beams=3)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", bench.MODELS)
def test_predicted_bytes_are_those_of_the_real_call(name: str) -> None:
    model = bench.model_of(name)
    for case, (samples, tokens, generation) in CASES.items():
        if generation.beams > 1 and name in ("llama", "marian"):
            continue  # their beams are rows as those of the others of their kind are
        tracer = GenerationTracer(model, generation)
        traced = tracer.trace(samples, tokens)
        real, _ = bench.real_bytes(model, samples, tokens, generation)
        assert traced.batch_bytes == pytest.approx(real, rel=MOST_ERROR), case
        assert traced.held_bytes == tracer.held_bytes, case
        law = LawCost.of(model, generation)
        assert real / 2 < int(law.cost(samples, tokens, 0)) < real * 2, case
    assert not model.training


SAMPLED = {
    "nothing left out": Generation(8, do_sample=True, top_k=0),
    "as transformers does by default, in the first step": Generation(1, do_sample=True),
    "the most probable ones": Generation(8, do_sample=True, temperature=0.7, top_p=0.9),
    "tokens that were there are penalised": Generation(8, repetition_penalty=1.2),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_sampling_and_penalties_are_foretold(name: str) -> None:
    """With what drawing takes within its operator, for that comes on top in the first step."""
    model = bench.model_of(name)
    for case, generation in SAMPLED.items():
        _, allocator = bench.real_bytes(model, 16, 8, generation)
        assert GenerationTracer(model, generation).trace(16, 8).batch_bytes == pytest.approx(allocator, rel=0.01), case
