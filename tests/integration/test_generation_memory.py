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
