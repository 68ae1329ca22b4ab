"""Samples with any number of images and texts of any length become a batch."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.mixed_sets import MixedSet, mixed_set
from tests.tokenizers import bare_tokenizer, byte_tokenizer, fast_tokenizer, slow_tokenizer
from trainauto.core.errors import InputError
from trainauto.integrations.structure import leaves_of
from trainauto.multitask import HeterogeneousCollator


def image(value: float = 1.0, side: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((1, side, side), value, dtype=dtype)


def sample(text: str | None = "the quick fox", images: Any = (), task: str = "T1", **more: Any) -> dict[str, Any]:
    return {"text": text, "images": list(images) if isinstance(images, tuple) else images, "task_type": task, **more}


def test_the_published_call_gives_all_tensors_and_metadata_beside_them() -> None:
    collator = HeterogeneousCollator(tokenizer=fast_tokenizer())
    batch = collator(
        [
            sample("the quick brown fox", (image(1),)),
            sample("a dog", (image(2), image(3)), "T3", subject_id=["a", "b"]),
            sample("over", (), "T2"),
        ]
    )
    assert {name: tuple(tensor.shape) for name, tensor in batch.items() if name != "token_type_ids"} == {
        "input_ids": (3, 6),
        "attention_mask": (3, 6),
        "labels": (3, 6),
        "pixel_values": (3, 2, 1, 2, 2),
        "image_mask": (3, 2),
        "task_ids": (3,),
    }
    assert batch["attention_mask"].sum(1).tolist() == [6, 4, 3]
    assert torch.equal(batch["labels"], torch.where(batch["attention_mask"] > 0, batch["input_ids"], -100))
    assert batch["image_mask"].tolist() == [[True, False], [True, True], [False, False]]
    assert batch["pixel_values"][:, :, 0, 0, 0].tolist() == [[1, 0], [2, 3], [0, 0]]
    assert batch["task_ids"].tolist() == [0, 2, 1]
    assert [collator.tasks[number] for number in batch["task_ids"]] == ["T1", "T3", "T2"]
    assert batch["image_mask"].dtype == torch.bool
    assert batch["task_ids"].dtype == torch.int64
    assert batch.metadata == batch["metadata"]
    assert batch.metadata[1] == {"task_type": "T3", "num_images": 2, "num_tokens": 4, "subject_id": ["a", "b"]}


def always_2048(rows: list[list[int]]) -> Tensor:
    """The faulty rule of A41."""
    return torch.tensor([row + [0] * (2048 - len(row)) for row in rows])


def test_a41_a_batch_is_as_wide_as_its_own_longest_text_and_not_always_2048() -> None:
    collator = HeterogeneousCollator(fast_tokenizer())
    for words in (1, 5, 40):
        texts = [sample("fox " * words), sample("dog")]
        rows = [[1] * (words + 2), [1] * 3]
        assert collator(texts)["input_ids"].shape == (2, words + 2)
        assert always_2048(rows).shape == (2, 2048)
    images = [collator([sample(images=(image(),) * most), sample()])["pixel_values"].shape[1] for most in (1, 3, 2)]
    assert images == [1, 3, 2]


def test_metadata_is_no_models_business_and_stays_with_the_batch() -> None:
    batch = HeterogeneousCollator(fast_tokenizer())([sample(images=(image(),))])

    def forward(**inputs: Tensor) -> set[str]:
        assert all(isinstance(value, Tensor) for value in inputs.values())
        return set(inputs)

    assert "metadata" not in forward(**batch)
    assert "metadata" not in leaves_of(batch)
    moved, copied = batch.to("cpu"), copy.copy(batch)
    assert moved["metadata"] == copied["metadata"] == batch["metadata"]
    assert pickle.loads(pickle.dumps(batch))["metadata"] == batch["metadata"]  # as workers send it
    with pytest.raises(KeyError, match="pixels"):
        batch["pixels"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_either_padding_side_for_tokens_masks_and_labels(side: str) -> None:
    collator = HeterogeneousCollator(fast_tokenizer(padding_side=side), pad_to_multiple_of=8)
    batch = collator([sample("the quick"), sample("the quick brown fox")])
    place = slice(4, 8) if side == "left" else slice(0, 4)
    assert batch["input_ids"].shape == (2, 8)
    assert batch["attention_mask"][0].nonzero().flatten().tolist() == list(range(8))[place]
    assert (batch["labels"][0] != -100).nonzero().flatten().tolist() == list(range(8))[place]
    given = {"input_ids": [5, 6], "labels": [-100, 6], "task_type": "T1"}
    longer = {"input_ids": [5, 6, 7], "labels": torch.tensor([-100, 6, 7]), "task_type": "T1"}
    labels = HeterogeneousCollator(fast_tokenizer(padding_side=side))([given, longer])["labels"]
    assert labels.tolist() == [[-100, -100, 6] if side == "left" else [-100, 6, -100], [-100, 6, 7]]


@pytest.mark.parametrize("kind", ["fast", "bare", "slow", "bytes", "function", "none"])
def test_any_tokenizer(kind: str, tmp_path: Path) -> None:
    tokenizer = {
        "fast": fast_tokenizer,
        "bare": bare_tokenizer,
        "slow": lambda: slow_tokenizer(tmp_path),
        "bytes": byte_tokenizer,
        "function": lambda: lambda texts: {"input_ids": [[len(word) for word in text.split()] for text in texts]},
        "none": lambda: None,
    }[kind]()
    texts = ["the quick brown fox", "a dog"]
    if kind == "none":
        samples = [{"input_ids": torch.tensor(row), "task_type": "T1"} for row in ([1, 2, 3, 4], [5, 6])]
    else:
        samples = [sample(text) for text in texts]
    collator = HeterogeneousCollator(tokenizer)
    batch = collator(samples)
    counts = [collator.count_tokens(one) for one in samples]
    assert batch["attention_mask"].sum(1).tolist() == counts
    assert batch["input_ids"].shape == (2, max(counts))
    if kind in ("fast", "slow", "bytes"):
        expected = tokenizer(texts, padding=True, return_tensors="pt")
        assert {name: batch[name].tolist() for name in expected} == {n: t.tolist() for n, t in expected.items()}
    if kind == "bare":  # padded with its end, which the mask leaves out
        assert batch["input_ids"][1, 2:].tolist() == [tokenizer.eos_token_id] * 2


def test_texts_are_cut_where_they_are_too_long() -> None:
    cut = HeterogeneousCollator(fast_tokenizer(), max_length=5)
    row = {"input_ids": list(range(9)), "labels": list(range(9)), "task_type": "T1"}
    batch = cut([sample("the quick brown fox jumps over"), row])
    assert batch["input_ids"].shape == (2, 5)
    assert batch["input_ids"][1].tolist() == batch["labels"][1].tolist() == [0, 1, 2, 3, 4]
    assert cut.count_tokens(row) == 5
    by_model = HeterogeneousCollator(fast_tokenizer(model_max_length=4, truncation_side="left"))
    assert by_model([row])["input_ids"].tolist() == [[5, 6, 7, 8]]


def test_missing_texts_and_images() -> None:
    collator = HeterogeneousCollator(bare_tokenizer())
    batch = collator([{"task_type": "T1"}, sample(None, (image(),)), sample("the fox", None)])
    assert batch["input_ids"].shape == (3, 2)
    # A row that attends to nothing would be NaN after a softmax.
    assert batch["attention_mask"].sum(1).tolist() == [1, 1, 2]
    assert (batch["labels"][:2] == -100).all()
    assert batch["image_mask"].tolist() == [[False], [True], [False]]
    images_alone = HeterogeneousCollator()([{"task_type": "T1", "images": [image()]}])
    assert images_alone["input_ids"].shape == (1, 1)


def test_batches_without_images_are_like_the_others_where_the_shape_is_known() -> None:
    texts = [sample(), sample()]
    unknown = HeterogeneousCollator(fast_tokenizer())(texts)
    assert "pixel_values" not in unknown
    assert unknown["image_mask"].shape == (2, 0)
    known = HeterogeneousCollator(fast_tokenizer(), image_shape=(1, 2, 2))(texts)
    assert known["pixel_values"].shape == (2, 1, 1, 2, 2)
    assert not known["pixel_values"].any()
    assert not known["image_mask"].any()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float64])
def test_images_keep_their_dtype_or_get_the_one_that_is_asked_for(dtype: torch.dtype) -> None:
    samples = [sample(images=(image(3, dtype=dtype),)), sample(images=torch.full((2, 1, 2, 2), 4, dtype=dtype))]
    kept = HeterogeneousCollator(fast_tokenizer())(samples)["pixel_values"]
    assert (kept.dtype, kept.shape) == (dtype, (2, 2, 1, 2, 2))
    asked = HeterogeneousCollator(fast_tokenizer(), dtype=torch.float32)(samples)["pixel_values"]
    assert asked.dtype == torch.float32
    assert asked[1, 1, 0, 0, 0] == 4
    mixed = HeterogeneousCollator(fast_tokenizer())([samples[0], sample(images=[np.ones((1, 2, 2))])])["pixel_values"]
    assert mixed.dtype == torch.float64


def test_volumes_are_images_too() -> None:
    volume = torch.ones(1, 3, 4, 5)
    batch = HeterogeneousCollator(fast_tokenizer())([sample(images=[volume, volume]), sample()])
    assert batch["pixel_values"].shape == (2, 2, 1, 3, 4, 5)


@pytest.mark.parametrize(
    ("labels", "expected", "dtype"),
    [
        ([3, 1], [3, 1], torch.int64),
        ([3, None], [3, -100], torch.int64),
        ([torch.tensor(3), np.int64(1)], [3, 1], torch.int64),
        ([0.5, 1], [0.5, 1.0], torch.float32),
    ],
)
def test_one_label_for_each_sample(labels: list[Any], expected: list[float], dtype: torch.dtype) -> None:
    batch = HeterogeneousCollator(fast_tokenizer())([sample(label=label) for label in labels])
    assert batch["labels"].tolist() == expected
    assert batch["labels"].dtype == dtype


def test_rows_of_labels_of_their_own_length() -> None:
    batch = HeterogeneousCollator(fast_tokenizer(padding_side="left"))(
        [sample(labels=[1, 2]), sample(labels=[7]), sample()]
    )
    assert batch["labels"].tolist() == [[1, 2], [7, -100], [-100, -100]]
    fractions = HeterogeneousCollator(fast_tokenizer())([sample(labels=[0.5, 2.0]), sample(labels=[1.5, 3.0])])
    assert fractions["labels"].tolist() == [[0.5, 2.0], [1.5, 3.0]]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([], "at least one sample"),
        ([{"text": "fox"}], "sample 0 of a batch has no 'task_type'\n  Samples carry it themselves"),
        ([sample(task="T11")], "of a task 'T11'\n  Did you mean 'T1'"),
        ([sample(images=["scan.png"])], "images must be tensors or arrays"),
        ([sample(images=[image(), image(side=3)])], r"shapes \(1, 2, 2\) and \(1, 3, 3\)"),
        (
            [sample(images=[image()]), sample(images=[image(side=3)])],
            r"sample 1 .* sample 0 has \(1, 2, 2\)",
        ),
        ([sample(text=7)], "its text is no string but int"),
        ([{"input_ids": [[1]], "task_type": "T1"}], "one row of whole numbers"),
        ([sample(label="cat")], "label is 'cat', not a number"),
        ([sample(label=0.5), sample(label=None)], "sample 1 of a batch has no label"),
        ([sample(labels=[[1]])], "one row of numbers"),
        ([sample(label=1), sample(labels=[1, 2])], "sample 1 of a batch has a row of labels"),
    ],
)
def test_what_cannot_be_used_is_named(samples: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        HeterogeneousCollator(fast_tokenizer())(samples)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": "T1"}, "tasks are the names"),
        ({"tasks": ["a", "a"]}, "each once"),
        ({"max_length": 0}, "max_length is a whole number"),
        ({"pad_to_multiple_of": 1.5}, "pad_to_multiple_of"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        HeterogeneousCollator(fast_tokenizer(), **settings)


def test_texts_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(InputError, match="texts need a tokenizer"):
        HeterogeneousCollator()([sample()])


def test_of_a_dataset_it_knows_tasks_and_the_shape_of_images() -> None:
    described = mixed_set(30)
    collator = HeterogeneousCollator.of_dataset(described)
    assert collator.tasks == ("T1", "T2", "T3")
    assert collator.image_shape == (1, 2, 2)
    assert described.loaded == 1
    other = MixedSet(["describe", "compare"], [3, 4])
    assert HeterogeneousCollator.of_dataset(other).tasks == ("compare", "describe")
    assert HeterogeneousCollator.of_dataset(other).image_shape is None
    assert HeterogeneousCollator.of_dataset(other, tasks=["describe", "compare"]).tasks == ("describe", "compare")
    batch = collator([described[0], described[1]])
    assert [row["number"] for row in batch.metadata] == [0, 1]
