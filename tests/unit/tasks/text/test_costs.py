"""Closed forms of what a batch of texts takes: growing, whole, of the right size (B08, B20, B22, B24)."""

from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from trainauto.tasks.text.costs import FORMS, LawCost, RelativeCost, TransformerSizes
from trainauto.tasks.text.generation_trace import Generation

SIZES = TransformerSizes(
    hidden=64, layers=2, vocabulary=512, intermediate=128, heads=4, key_width=32, parameters=10_000
)
SAMPLES, LONGEST = np.meshgrid(np.arange(1, 200, 7), np.arange(0, 600, 11), indexing="ij")
NONE = np.zeros(1, np.int64)
COSTS = [
    LawCost(SIZES, Generation(16)),
    LawCost(SIZES, Generation(16, beams=4)),
    LawCost(SIZES, Generation(16, do_sample=True, top_p=0.9)),
    LawCost(SIZES, None),
    RelativeCost(),
    RelativeCost(0.1),
]


@pytest.mark.parametrize(
    "cost", COSTS, ids=["generation", "beams", "sampled", "training", "relative", "relative, bold"]
)
def test_costs_are_whole_and_never_fall(cost: LawCost | RelativeCost) -> None:
    costs = cost.cost(SAMPLES, LONGEST, NONE)
    assert costs.dtype == np.int64
    assert costs.shape == SAMPLES.shape
    assert (costs > 0).all()
    assert (np.diff(costs, axis=0) >= 0).all()
    assert (np.diff(costs, axis=1) >= 0).all()
    assert cost.margin(0.1) >= 1


def test_a_generation_costs_its_cache_and_scores() -> None:
    shorter, longer = (int(LawCost(SIZES, Generation(new)).cost(8, 4, NONE)) for new in (1000, 1001))
    cache = 2 * 2 * 32 * 4  # keys and values, layers, width, bytes
    assert longer - shorter == 8 * (cache + 32 * 4)  # and a layer's keys twice while a token is added
    wide = TransformerSizes(**{**vars(SIZES), "vocabulary": 513})
    assert LawCost(wide, Generation(1000)).cost(8, 4, NONE) - shorter == 8 * (4 + 8)
    sampled = [LawCost(of, Generation(1000, do_sample=True)).cost(8, 4, NONE) for of in (wide, SIZES)]
    assert sampled[0] - sampled[1] == 8 * (4 + 4 + 4 + 4 + 5)  # logits, scores, those before, probabilities, top k
    with pytest.raises(ValueError, match="several beams"):
        LawCost(SIZES, Generation(4, beams=2, do_sample=True))


def test_a_training_step_costs_a_matrix_only_where_attention_writes_it() -> None:
    written = TransformerSizes(**{**vars(SIZES), "writes_attention": True})
    plain, matrix = (LawCost(sizes, None).cost(16, np.array([500, 1000]), NONE) for sizes in (SIZES, written))
    assert plain[1] / plain[0] < 2.2
    assert matrix[1] / matrix[0] > 2.5


def test_sizes_are_read_from_configurations() -> None:
    model = nn.Linear(10, 10, bias=False).bfloat16()
    model.config = SimpleNamespace(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=3, vocab_size=99, num_key_value_heads=2
    )
    read = TransformerSizes.of(model)
    assert (read.layers, read.key_width, read.intermediate, read.parameters) == (3, 2 * 16, 4 * 64, 100)
    assert (read.number_bytes, read.encoder_layers, read.writes_attention) == (2, 0, False)
    model.config = SimpleNamespace(
        d_model=64, num_heads=4, num_layers=3, num_decoder_layers=5, vocab_size=99, d_kv=8, d_ff=7,
        is_encoder_decoder=True, relative_attention_num_buckets=32,
    )  # fmt: skip
    read = TransformerSizes.of(model)
    assert (read.encoder_layers, read.layers, read.key_width, read.intermediate) == (3, 5, 32, 7)
    assert read.writes_attention
    del model.config.vocab_size
    with pytest.raises(ValueError, match="vocab_size"):
        LawCost.of(model, None)
    with pytest.raises(ValueError, match="Linear has no `config`"):
        LawCost.of(nn.Linear(10, 10), Generation(4))


def test_the_relative_form_follows_the_probability() -> None:
    for probability, form in FORMS.items():
        assert RelativeCost(probability).form == form
        assert RelativeCost(probability).margin(probability) == form.margin
    assert RelativeCost(0.09).form == FORMS[0.025]  # the next safer one
    with pytest.raises(ValueError, match="at least"):
        RelativeCost(0.001)
    with pytest.raises(ValueError, match="made for"):
        RelativeCost(0.1).margin(0.025)


def test_the_less_may_go_wrong_the_less_batches_grow() -> None:
    def most(probability: float) -> int:
        cost = RelativeCost(probability)
        bound = int(cost.cost(16, 256, NONE))
        counts = np.arange(16, 1000)
        fits = cost.cost(counts, 20, NONE) * cost.margin(probability) <= bound
        return int(counts[fits].max())

    assert 16 < most(0.01) <= most(0.025) < most(0.1)


def test_margins_of_a_law_grow_with_caution() -> None:
    law = LawCost(SIZES, Generation(4))
    assert 1 < law.margin(0.1) < law.margin(0.01) < LawCost(SIZES, None).margin(0.01)
    assert law.margin(0.9) == 1
    with pytest.raises(ValueError, match="probability"):
        law.margin(0)
