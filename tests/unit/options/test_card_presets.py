import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.options.card_presets import DOCUMENTED, preset_for
from trainauto.options.cards import CARDS, CardPreset, cpu_preset, find_card

GIB, MIB = 2**30, 2**20
memories_gib = st.floats(0.01, 1024)

ANCHORS = {
    "RTX 3080 10GB": (10, 0.80, 0.05, 2, 32, 32, 192),
    "RTX 3060 12GB": (12, 0.85, 0.05, 2, 64, 32, 256),
    "RTX 4090 24GB": (24, 0.90, 0.05, 4, 128, 64, 512),
}
BOUNDS = ("min_batch_size", "max_batch_size", "min_lq_size", "max_lq_size")


def numbers(card: CardPreset) -> tuple[float, ...]:
    return (card.memory_gib, card.target_vram_usage, card.safety_margin, *(getattr(card, bound) for bound in BOUNDS))


def assert_sane(card: CardPreset) -> None:
    assert 1 <= card.min_batch_size <= card.max_batch_size <= 256
    assert 8 <= card.min_lq_size <= card.max_lq_size <= 1024
    assert 0 < card.safety_margin < 0.5 <= card.target_vram_usage <= 0.95
    assert card.min_lq_size % 8 == 0
    assert card.max_lq_size % 8 == 0


@pytest.mark.parametrize("name", ANCHORS)
def test_documented_cards_keep_their_numbers_and_the_rule_agrees(name: str) -> None:
    (card,) = [card for card in CARDS if card.name == name]
    assert numbers(card) == ANCHORS[name]
    assert card.rule == DOCUMENTED
    assert numbers(preset_for(name, ANCHORS[name][0])) == ANCHORS[name]


def test_only_three_cards_are_called_documented() -> None:
    assert {card.name for card in CARDS if card.rule.startswith("documented")} == set(ANCHORS)
    assert all(card.rule.startswith(("documented", "computed")) for card in CARDS)


@given(memories_gib, memories_gib)
def test_more_memory_never_gets_less(one: float, other: float) -> None:
    small, large = preset_for("small", min(one, other)), preset_for("large", max(one, other))
    assert_sane(small)
    assert small.target_vram_usage <= large.target_vram_usage
    assert all(getattr(small, bound) <= getattr(large, bound) for bound in BOUNDS)


def test_the_rule_does_grow() -> None:
    targets = [preset_for("", memory_gib).target_vram_usage for memory_gib in (2, 4, 8, 10, 12, 24, 48)]
    assert targets == [0.5, 0.6, 0.75, 0.8, 0.85, 0.9, 0.95]


@pytest.mark.parametrize("size", [0, -1])
def test_a_card_without_memory_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="above 0"):
        find_card("NVIDIA H200", size)
    with pytest.raises(ValueError, match="above 0"):
        cpu_preset(size)


@given(st.integers(1, 64 * GIB), st.integers(1, 64 * GIB))
def test_cpu_budgets_begin_small_and_grow(one: int, other: int) -> None:
    small, large = cpu_preset(min(one, other)), cpu_preset(max(one, other))
    assert_sane(small)
    assert (small.min_lq_size, small.min_batch_size) == (8, 1)
    assert small.target_vram_usage <= large.target_vram_usage
    assert all(getattr(small, bound) <= getattr(large, bound) for bound in BOUNDS)


@pytest.mark.parametrize(
    ("budget_mib", "target", "max_batch", "max_lq"), [(100, 0.70, 8, 32), (600, 0.90, 32, 192), (2048, 0.95, 128, 512)]
)
def test_cpu_budgets_in_use(budget_mib: int, target: float, max_batch: int, max_lq: int) -> None:
    card = cpu_preset(budget_mib * MIB)
    assert card.name == f"CPU {budget_mib}MiB"
    assert card.memory_gib == budget_mib / 1024
    assert (card.target_vram_usage, card.max_batch_size, card.max_lq_size) == (target, max_batch, max_lq)
