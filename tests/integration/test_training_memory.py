"""Predicted bytes of training steps against those of the same steps on real tensors: GPT-2, Llama, T5, Marian, LoRA."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("peft", reason="the package needs it nowhere; where it is, predictions are compared with it")
sys.path.append(str(Path(__file__).parents[2] / "scripts" / "bench"))
import training_memory as bench
from training_memory import Case, Sizes

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")]
"""What transformers and peft say of each other."""

SMALL = Sizes(layers=2, width=64, words=256, samples=4, tokens=64)
MOST_ERROR = 2e-3
"""Of 2 to 10 MiB, of which numbers of 8 bytes, some 50, are 0.01 %; the least mask is 0.5 %."""

CASES = {
    "dropout writes the matrix out": Case("gpt2", sizes=SMALL),
    "adapters on weights in bfloat16, computed again": Case("gpt2", "bf16", True, True, SMALL),
    "groups of heads, casts of adapters": Case("llama", "autocast", True, False, SMALL),
    "casts are computed again": Case("llama", "autocast", False, True, SMALL),
    "the matrix written out": Case("llama", sizes=SMALL, attention="eager"),
    "a bias of positions, shared by layers": Case("t5", "bf16", False, True, SMALL),
    "a mask that the decoder makes itself": Case("marian", sizes=SMALL),
    "the same with adapters": Case("marian", "autocast", True, False, SMALL),
}


@pytest.mark.parametrize("name", CASES)
def test_predicted_bytes_are_those_of_the_real_step(name: str) -> None:
    case = CASES[name]
    padded, unpadded = bench.real_steps(case)
    predicted = bench.predicted_step(case)
    assert predicted.peak_bytes == pytest.approx(padded.peak_bytes, rel=MOST_ERROR)
    assert predicted.peak_bytes >= unpadded.peak_bytes - bench.NUMBERS_BYTES
    assert predicted.takes_the_same_as(padded)


@pytest.mark.parametrize("model", ["llama", "marian"])
def test_without_a_mask_none_is_made(model: str) -> None:
    """Models then look at places and masks of their own making, whose content is known."""
    case = Case(model, sizes=SMALL, has_mask=False)
    step, again = bench.real_steps(case)
    assert step == again
    assert bench.predicted_step(case).takes_the_same_as(step)
