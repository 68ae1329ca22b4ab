"""What ``plan`` refuses does not fit in the simulated allocator: a thin part of the bench script."""

import sys
from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import plan_refusals as bench

from trainauto.options.cards import CardPreset, card_by_words


def found(network: dict[str, object], folder: Path, images_px: int, card: CardPreset) -> list[bench.Answer]:
    return list(bench.answers(bench.Traced(network, folder), images_px, [card]))


def test_a_tiny_network_has_its_plan(tmp_path: Path) -> None:
    """A step of 15 MiB was refused on 12 GiB, since it "may have to reserve 22.96 GiB"."""
    (answer,) = found({"type": "two_convolutions", "width": 4}, tmp_path, 1792, card_by_words("RTX 3060 12GB"))
    assert (answer.what, answer.is_right) == ("chosen", True), answer.words
    assert "lq_size 256" in answer.words


def test_what_is_refused_does_not_fit(tmp_path: Path) -> None:
    (answer,) = found({"type": "compact", "num_feat": 768, "num_conv": 16}, tmp_path, 128, bench.CARDS[0])
    assert (answer.what, answer.is_right) == ("refused", True), answer.words  # 1.3 GiB between steps, of 2 GiB


@only_in_acceptance
@pytest.mark.timeout(1800)  # the largest take minutes
@pytest.mark.parametrize("network", list(bench.networks()), ids=lambda network: "-".join(map(str, network.values())))
def test_no_refusal_of_a_plan_that_fits(tmp_path: Path, network: dict[str, object]) -> None:
    traced = bench.Traced(network, tmp_path)
    asked = [(images_px, card) for images_px in bench.IMAGES_PX for card in bench.CARDS]
    answers = [answer for images_px, card in asked for answer in bench.answers(traced, images_px, [card])]
    assert len(answers) == 18
    assert [answer for answer in answers if not answer.is_right and not answer.within_doubt] == []
