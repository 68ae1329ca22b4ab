import pytest

from tests.unit.options.test_card_presets import assert_sane, numbers
from trainauto.core.errors import InputError
from trainauto.options.card_presets import preset_for
from trainauto.options.cards import CARDS, CardPreset, card_by_words, find_card, model_of

GIB, MIB = 2**30, 2**20


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_preset_is_sane_and_is_named_by_its_memory(card: CardPreset) -> None:
    assert_sane(card)
    assert card.name.endswith(f" {card.memory_gib}GB")
    assert card_by_words(card.name) == card
    assert card_by_words(f"nvidia {card.name.lower()}") == card


def test_no_report_of_a_driver_fits_two_sizes_of_one_card() -> None:
    for one in CARDS:
        for other in CARDS:
            if one.memory_gib < other.memory_gib and model_of(one.name) == model_of(other.name):
                assert 1.01 * one.memory_gib < 0.9 * other.memory_gib


@pytest.mark.parametrize(
    ("reported", "memory_mib", "found"),
    [
        # What nvidia-smi or torch show of these cards; the two differ by some hundred MiB.
        ("NVIDIA GeForce RTX 3060", 12288, "RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", 12036, "RTX 3060 12GB"),
        ("NVIDIA GeForce RTX 3060", 8192, "RTX 3060 8GB"),
        ("NVIDIA GeForce RTX 3060 Ti", 8192, "RTX 3060 Ti 8GB"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 6144, "RTX 3060 Laptop 6GB"),
        ("NVIDIA GeForce RTX 3080", 10240, "RTX 3080 10GB"),
        ("NVIDIA GeForce RTX 3080", 12288, "RTX 3080 12GB"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 16384, "RTX 3080 Laptop 16GB"),
        ("NVIDIA GeForce RTX 3050 6GB Laptop GPU", 6144, "RTX 3050 Laptop 6GB"),
        ("GeForce RTX 2080 with Max-Q Design", 7982, "RTX 2080 Laptop 8GB"),
        ("GeForce RTX 2080 Ti", 11019, "RTX 2080 Ti 11GB"),
        ("NVIDIA TITAN RTX", 24220, "TITAN RTX 24GB"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16376, "RTX 4070 Ti SUPER 16GB"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX 4090 24GB"),
        ("NVIDIA GeForce RTX 5090", 32117, "RTX 5090 32GB"),
        ("Tesla T4", 14910, "T4 16GB"),
        ("Tesla V100-SXM2-16GB", 16160, "V100 16GB"),
        ("Tesla V100-PCIE-32GB", 32510, "V100 32GB"),
        ("NVIDIA A10G", 22587, "A10G 24GB"),
        ("NVIDIA A40", 45458, "A40 48GB"),
        ("NVIDIA A100-SXM4-40GB", 40536, "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100 80GB"),
        ("NVIDIA A100-SXM4-80GB", 81153, "A100 80GB"),
        ("NVIDIA RTX A6000", 48685, "RTX A6000 48GB"),
        ("Quadro RTX 6000", 24220, "Quadro RTX 6000 24GB"),
        ("NVIDIA RTX 6000 Ada Generation", 48510, "RTX 6000 Ada 48GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97250, "RTX PRO 6000 Blackwell 96GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTX PRO 6000 Blackwell 96GB"),
        ("NVIDIA L4", 22563, "L4 24GB"),
        ("NVIDIA L40S", 45467, "L40S 48GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100 80GB"),
        ("NVIDIA H100 PCIe", 81081, "H100 80GB"),
        ("NVIDIA H100 NVL", 95830, "H100 NVL 94GB"),
        ("NVIDIA H200", 143156, "H200 141GB"),
        ("NVIDIA B200", 182630, "B200 180GB"),
    ],
)
def test_cards_are_found_by_what_drivers_report(reported: str, memory_mib: int, found: str) -> None:
    assert find_card(reported, memory_mib * MIB).name == found


@pytest.mark.parametrize(
    ("reported", "memory_bytes", "memory_gib"),
    [
        ("NVIDIA GeForce GTX 1080 Ti", int(10.91 * GIB), 11),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", int(9.75 * GIB), 10),
        ("NVIDIA H100 80GB HBM3", 20 * GIB, 20),
        ("NVIDIA GeForce RTX 3060", 24 * GIB, 24),
        ("NVIDIA GeForce RTX 4090 D", int(23.5 * GIB), 24),
        ("  ", 12 * GIB, 12),
    ],
)
def test_other_cards_get_a_preset_by_their_memory(reported: str, memory_bytes: int, memory_gib: int) -> None:
    card = find_card(reported, memory_bytes)
    assert card not in CARDS
    assert card.name == (reported.strip() or "unnamed card")
    assert numbers(card) == numbers(preset_for("any", memory_gib))
    assert card.rule.startswith("computed")
    assert f"{memory_gib} GiB" in card.rule


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("RTX 3060 12GB", "RTX 3060 12GB"),
        ("3060", "RTX 3060 12GB"),
        ("3080", "RTX 3080 10GB"),
        ("3060 8 gb", "RTX 3060 8GB"),
        ("rtx3060ti", "RTX 3060 Ti 8GB"),
        ("4070tisuper", "RTX 4070 Ti SUPER 16GB"),
        ("RTX 3080 Laptop with 16 GiB VRAM", "RTX 3080 Laptop 16GB"),
        ("RTX6000Ada", "RTX 6000 Ada 48GB"),
        ("rtxpro6000", "RTX PRO 6000 Blackwell 96GB"),
        ("h100nvl", "H100 NVL 94GB"),
        ("h200", "H200 141GB"),
        ("H100", "H100 80GB"),
        ("a100 80g", "A100 80GB"),
        ("a6000", "RTX A6000 48GB"),
        ("pro 6000", "RTX PRO 6000 Blackwell 96GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
    ],
)
def test_people_are_understood(words: str, found: str) -> None:
    assert card_by_words(words).name == found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a100", ["A100 40GB, A100 80GB", "Say which"]),
        ("RTX 6000", ["Quadro RTX 6000 24GB, RTX 6000 Ada 48GB, RTX PRO 6000 Blackwell 96GB"]),
        ("RTX 3060 16GB", ["no known card", "Did you mean 'RTX 3060 12GB'?"]),
        ("H2000", ["Did you mean 'H200'?"]),
        ("A100 30GB", ["Did you mean 'A100 80GB'?"]),
        ("12GB", ["no known card", "list cards", "--vram"]),
        ("", ["no known card", "list cards"]),
        ("my old toaster", ["no known card", "list cards"]),
    ],
)
def test_people_are_told_what_is_near(words: str, said: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        card_by_words(words)
    message = str(caught.value)
    assert all(part in message for part in said), message
    assert len(message) < 300, "never the whole list"


@pytest.mark.parametrize(
    ("name", "capability", "multiprocessors"),
    [
        ("T4 16GB", (7, 5), 40),
        ("RTX 2080 Ti 11GB", (7, 5), None),
        ("A100 80GB", (8, 0), 108),
        ("A10 24GB", (8, 6), None),
        ("RTX A6000 48GB", (8, 6), None),
        ("RTX 3060 12GB", (8, 6), 28),
        ("RTX 6000 Ada 48GB", (8, 9), None),
        ("L40S 48GB", (8, 9), 142),
        ("H100 NVL 94GB", (9, 0), None),
        ("H200 141GB", (9, 0), 132),
        ("RTX 5090 32GB", (12, 0), None),
        ("RTX PRO 6000 Blackwell 96GB", (12, 0), None),
        ("NVIDIA RTX 2000 Ada Generation", (8, 9), None),
        ("NVIDIA H100 80GB HBM3", (9, 0), 132),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 108),
        ("NVIDIA H20", (9, 0), None),
        ("NVIDIA GeForce GTX 1080 Ti", (6, 1), None),
        ("NVIDIA GeForce RTX 3060 Ti", (8, 6), None),
        ("24 GiB", None, None),
    ],
)
def test_what_kernels_ask_of_a_card_is_known_by_its_name(
    name: str, capability: tuple[int, int] | None, multiprocessors: int | None
) -> None:
    """Issue 42: a planned Hopper card has Hopper's workspaces."""
    card = preset_for(name, 16)
    assert (card.capability, card.multiprocessors) == (capability, multiprocessors)


def test_every_listed_card_has_a_compute_capability() -> None:
    assert [card.name for card in CARDS if card.capability is None] == []
