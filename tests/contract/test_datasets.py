"""What every registered dataset promises."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainauto.data import DATASETS, DynamicDataset, SampleKey


@pytest.fixture(params=sorted(DATASETS))
def dataset(request: pytest.FixtureRequest, write_images: Callable[..., Path]) -> DynamicDataset:
    roots = {"dataroot_gt": str(write_images("gt", 4, (60, 72)))}
    if request.param == "PairedImageDataset":
        roots["dataroot_lq"] = str(write_images("lq", 4, (30, 36), shrink=2))
    return DATASETS.get(request.param)(**roots, scale=2, name="photos")  # type: ignore[arg-type]


def test_a_key_decides_everything(dataset: DynamicDataset) -> None:
    for seed in range(8):
        key = SampleKey(seed % len(dataset), 12, seed)
        one, other = dataset[key], dataset[key]
        assert set(one) == {"lq", "gt"}
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert one["lq"].shape == (3, 12, 12)
        assert one["gt"].shape == (3, 24, 24)
        assert one["lq"].dtype == one["gt"].dtype == torch.uint8
        assert one["lq"].is_contiguous()


def test_seeds_make_different_crops(dataset: DynamicDataset) -> None:
    assert len({dataset[SampleKey(0, 12, seed)]["gt"].numpy().tobytes() for seed in range(20)}) > 15


def test_whole_samples_fit_the_scale(dataset: DynamicDataset) -> None:
    for index in range(len(dataset)):
        whole = dataset.whole(index)
        assert tuple(whole["gt"].shape[1:]) == tuple(2 * side for side in whole["lq"].shape[1:])
        assert dataset.sample_name(index)
        assert not dataset.sample_key(index).startswith("/")


def test_cut_keeps_a_corner_and_shape_tells(dataset: DynamicDataset) -> None:
    samples = [dataset[SampleKey(0, 12, seed)] for seed in range(3)]
    stacked = {name: torch.stack([sample[name] for sample in samples]) for name in ("lq", "gt")}
    assert (dataset.shape(stacked).samples, dataset.shape(stacked).extent) == (3, 12)
    assert dataset.pixels(stacked) == 3 * 24 * 24
    cut = dataset.cut(stacked, 8)
    assert torch.equal(cut["lq"], stacked["lq"][..., :8, :8])
    assert torch.equal(cut["gt"], stacked["gt"][..., :16, :16])


def test_survey_and_pickle(dataset: DynamicDataset) -> None:
    survey = dataset.survey()
    assert (survey.samples, survey.smallest_lq_px) == (4, 30)
    again = pickle.loads(pickle.dumps(dataset))
    key = SampleKey(2, 12, 5)
    assert torch.equal(again[key]["gt"], dataset[key]["gt"])
