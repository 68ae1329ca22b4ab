"""Runs are recorded whole, under names that tell them apart (B34 to B38)."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
import classifier_data
import generate_training_data
from generate_training_data import Batch


class SmallMemory:
    """Takes a MiB a padded token, and has room for so many."""

    kind = "measured"

    def __init__(self, room: int) -> None:
        self.room = room

    def bytes(self, batch: Batch) -> int | None:
        tokens, paddings, _, _ = batch.sizes
        return (tokens + paddings) * 2**20 if tokens + paddings <= self.room else None


def batch(texts: int, longest: int) -> Batch:
    return Batch(np.full(texts, longest))


def test_a_batch_that_does_not_fit_is_a_spike_and_the_run_goes_on() -> None:
    batches = [batch(4, 10), batch(5, 9), batch(9, 8), batch(5, 4)]
    rows = list(generate_training_data.rows_of_run("nmt_4", "nmt", 10, batches, SmallMemory(50)))
    assert [row[3] for row in rows] == [40, 45, 45, 20]  # 72 do not fit
    assert {row[8] for row in rows} == {40}
    assert [row[6] for row in rows] == [4, 5, 9, 5]
    assert not list(generate_training_data.rows_of_run("nmt_4", "nmt", 10, batches, SmallMemory(39)))


def test_masks_of_texts_that_are_continued_have_padding_on_the_left() -> None:
    texts = Batch(np.array([3, 1]))
    assert generate_training_data.mask_of(texts, on_left=False).tolist() == [[1, 1, 1], [1, 0, 0]]
    assert generate_training_data.mask_of(texts, on_left=True).tolist() == [[1, 1, 1], [0, 0, 1]]


def test_names_tell_runs_apart_and_give_their_family() -> None:
    """B39."""
    names = [generate_training_data.run_name(name, 4, 128) for name in ("org1/my_model", "org2/my_model", "my_other")]
    assert names == ["org1-my-model_4_128", "org2-my-model_4_128", "my-other_4_128"]
    assert classifier_data.family_of(f"traced/{names[0]}") == "org1-my-model"


def test_batches_are_drawn_by_model_and_none_twice() -> None:
    """B35 to B37."""
    drawn = generate_training_data.batches_of_a_run("nmt", 4, 512, 40, 0)
    assert len({batch.sizes for batch in drawn}) == len(drawn) > 30
    assert all(4 <= len(batch.lengths) <= 24 for batch in drawn)
    for most in (128, 512):
        first = generate_training_data.batches_of_a_run("nmt", 4, most, 40, 0)[0]
        assert first.lengths.tolist() == [most] * 4
    longest = [int(batch.lengths[0]) for batch in drawn]
    assert longest == sorted(longest, reverse=True)
    again, other = (generate_training_data.batches_of_a_run(name, 4, 512, 40, 0) for name in ("nmt", "nllb"))
    assert [batch.sizes for batch in again] == [batch.sizes for batch in drawn]
    assert [batch.sizes for batch in other] != [batch.sizes for batch in drawn]


def test_models_that_are_traced_take_no_memory() -> None:
    model = generate_training_data.model_of("nmt", "meta")
    assert sum(weight.numel() for weight in model.parameters()) > 7e7
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    assert {weight.dtype for weight in model.parameters()} == {generate_training_data.DTYPE}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--batches", "0"], "2 or more"),
        (["--batch-sizes", "0"], "1 or more"),
        (["--model", "my_model", "my-model"], "two models have one name"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], why: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        generate_training_data.main([str(tmp_path / "t.csv.gz"), *wrong])
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
