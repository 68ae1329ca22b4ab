"""What is known of samples before they are loaded: said by the dataset (A11), or measured once."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from tests.mixed_sets import DescribedSet, MixedSet, mixed_set, table_of
from trainauto.core.errors import InputError
from trainauto.tasks.multitask.batches.samples import images_in, read_samples, with_tokens


class Subjects:
    """The dataset of the published example (A12): several subjects are T3 with two images, one is T1 with one."""

    def __init__(self) -> None:
        self.samples = [{"subject_id": "a"}, {"subject_id": ["a", "b"]}, {"subject_id": "c"}]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, idx: int) -> Any:
        raise AssertionError("metadata come without loading a sample")

    def get_sample_metadata(self, idx: int) -> dict[str, Any]:
        is_multi_subject = isinstance(self.samples[idx]["subject_id"], list)
        return {"task_type": "T3" if is_multi_subject else "T1", "num_images": 2 if is_multi_subject else 1}


class Saying:
    """A dataset that says these things of its samples."""

    def __init__(self, *said: Any) -> None:
        self.said = said

    def __len__(self) -> int:
        return len(self.said)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        return {"input_ids": [1] * (idx + 3), "task_type": "a"}

    def get_sample_metadata(self, idx: int) -> Any:
        return self.said[idx]


def test_a12_the_published_rule_is_read_without_loading_a_sample() -> None:
    table = read_samples(Subjects())
    assert table.tasks == ("T1", "T3")
    assert table.task_ids.tolist() == [0, 1, 0]
    assert table.images.tolist() == [1, 2, 1]
    assert not table.knows_tokens
    assert table.described(1) == "sample 1 (task 'T3', 2 images)"


def test_a11_tasks_are_any_strings_and_tokens_are_taken_where_they_are_said() -> None:
    dataset = mixed_set(50)
    table, expected = read_samples(dataset), table_of(dataset)
    assert dataset.loaded == 0
    assert table.knows_tokens
    assert table.checksum == expected.checksum
    assert table.counts.tolist() == [dataset.tasks.count(task) for task in ("T1", "T2", "T3")]
    other = read_samples(DescribedSet(["describe", "compare"], [3, 4]))
    assert other.tasks == ("compare", "describe")
    assert other.described(0) == "sample 0 (task 'describe', 0 images, 3 tokens)"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["T1"], r"get_sample_metadata\(0\) returns \['T1'\]"),
        ({"num_images": 1}, r"get_sample_metadata\(0\) returns {'num_images': 1}"),
        ({"task_type": 3, "num_images": 1}, "task_type is 3: a task's name is a string"),
        ({"task_type": "a", "num_images": -1}, "num_images is -1"),
        ({"task_type": "a", "num_images": 1.5}, r"num_images is 1\.5"),
        ({"task_type": "a", "num_images": True}, "num_images is True"),
        ({"task_type": "a", "num_images": 1, "num_tokens": "9"}, "num_tokens is '9'"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_sample(said: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_samples(Saying(said))


def test_tokens_of_some_samples_alone_and_an_empty_dataset_are_refused() -> None:
    both = Saying({"task_type": "a", "num_images": 1, "num_tokens": 3}, {"task_type": "a", "num_images": 1})
    with pytest.raises(InputError, match="sample 1: get_sample_metadata num_tokens is missing"):
        read_samples(both)
    with pytest.raises(InputError, match="empty"):
        read_samples(Saying())


def test_streams_of_samples_are_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"a Stream does not give samples by number(.|\n)*Give a dataset with __len__"):
        read_samples(Stream())  # type: ignore[arg-type]


class Stream(IterableDataset[Any]):
    """Samples one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def test_a_dataset_that_says_nothing_is_measured_once(caplog: pytest.LogCaptureFixture) -> None:
    said = mixed_set(20)
    dataset = MixedSet(said.tasks, said.tokens)
    with caplog.at_level(logging.INFO):
        table = read_samples(dataset)
        assert read_samples(dataset) is table
    assert dataset.loaded == 20
    assert caplog.text.count("loaded once") == 1
    assert table.checksum == table_of(said).checksum
    read_samples(dataset, lambda sample: 7)  # tokens counted in another way are measured anew
    assert dataset.loaded == 40


def test_lists_are_measured_too_and_their_faults_named() -> None:
    samples = [{"task_type": "a", "input_ids": [1, 2]}, {"task_type": "b", "images": torch.zeros(3, 1, 2, 2)}]
    table = read_samples(samples)
    assert table.images.tolist() == [0, 3]
    assert table.sizes.tokens.tolist() == [2, 0]
    with pytest.raises(InputError, match="sample 1 has no 'task_type'"):
        read_samples([samples[0], {"text": "hello"}])
    with pytest.raises(InputError, match="sample 0 is a str"):
        read_samples(["hello"])
    with pytest.raises(InputError, match="sample 0: images must be"):
        read_samples([{"task_type": "a", "images": "scan.png"}])


def test_texts_need_who_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    samples = [{"task_type": "a", "text": "one two"}, {"task_type": "a", "text": "one two three"}]
    assert not read_samples(samples).knows_tokens

    def words(sample: Any) -> int:
        return len(sample["text"].split())

    assert read_samples(samples, words).sizes.tokens.tolist() == [2, 3]
    guessed = with_tokens(read_samples(samples), samples, words)
    assert guessed.sizes.tokens.tolist() == [3, 3]
    with caplog.at_level(logging.WARNING):
        assert with_tokens(read_samples(samples), samples, None).sizes.tokens.tolist() == [0, 0]
    assert "texts are not counted" in caplog.text


def test_the_longest_of_some_stands_for_all_where_only_tokens_are_not_said() -> None:
    dataset = Saying(*[{"task_type": "a", "num_images": number % 3} for number in range(500)])
    table = with_tokens(read_samples(dataset), dataset, None)
    assert set(table.sizes.tokens.tolist()) == {502}
    assert table.images.tolist() == [number % 3 for number in range(500)]
    known = read_samples(mixed_set(5))
    assert with_tokens(known, mixed_set(5), None) is known


@pytest.mark.parametrize(
    ("images", "count"),
    [
        (None, 0),
        ([], 0),
        ([torch.zeros(1, 2, 2)] * 3, 3),
        (torch.zeros(4, 1, 2, 2), 4),
        (torch.zeros(0, 1, 2, 2), 0),
        (torch.zeros(1, 2, 2), 1),
        (np.zeros((2, 1, 2, 2)), 2),
    ],
)
def test_images_are_counted_in_lists_and_tensors(images: Any, count: int) -> None:
    assert images_in({"images": images}) == count
    assert images_in({}) == 0
