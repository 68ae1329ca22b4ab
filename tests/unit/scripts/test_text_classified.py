"""The bench's table of the classifier: its batches are held against the rule, and come again (B22)."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import text_batching_page
import text_classified

from trainauto.data.packing import SampleSizes, pack_by

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks" / "text_batching.md"


@pytest.mark.parametrize("name", text_classified.distributions(1))
def test_batches_of_20000_texts_keep_the_rule_and_others_are_refused(name: str) -> None:
    """B22: on the page's own lengths."""
    lengths = text_classified.distributions(20_000)[name]
    rule = text_classified.rule_of(lengths, 64, 0.1)
    batches = [batch.tolist() for batch in pack_by(rule, SampleSizes(lengths)).batches()]
    text_classified.check_rule(rule, lengths, batches)

    def refused(why: str, *wrong: list[int]) -> None:
        with pytest.raises(RuntimeError, match=why):
            text_classified.check_rule(rule, lengths, [*wrong, *batches[len(wrong) :]])

    refused("batch 0 has 63 texts", batches[0][:-1], [batches[0][-1], *batches[1]])
    refused("batch 1 has .* the rule says", batches[0], batches[1][:-1], [batches[1][-1], *batches[2]])
    refused("every text once", batches[0][:-1])
    refused("the longest first", batches[-1], *batches[1:-1], batches[0])


def test_the_page_has_the_figures_of_its_file() -> None:
    results = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
    assert text_batching_page.page(results) == PAGE.read_text(encoding="utf-8")
    rows = results["classifier"]["rows"]
    for row in rows:
        lengths = text_classified.distributions(results["classifier"]["texts"])[row["lengths"]]
        packed = pack_by(text_classified.rule_of(lengths, row["base"], row["threshold"]), SampleSizes(lengths))
        assert (len(packed), int(np.max(packed.counts))) == (row["batches"], row["most_texts"])
        assert packed.padded_tokens(SampleSizes(lengths)) == row["padded_tokens"]
    assert {row["threshold"] for row in rows} == {0.01, 0.025, 0.1}
