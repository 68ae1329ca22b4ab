"""What every registered dataset promises."""

import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, DynamicDataset, SampleKey
from trainauto.tasks.sr.data import DATASETS
from trainauto.tasks.sr.data.reading import Reading
from trainauto.tasks.sr.degradations.presets import settings_of

Write = Callable[..., Path]


def build(kind: str, write_images: Write, scale: int, **more: object) -> DynamicDataset:
    roots = {"dataroot_gt": str(write_images("gt", 4, (30 * scale, 36 * scale)))}
    if kind in ("PairedImageDataset", "RealESRGANPairedDataset"):
        roots["dataroot_lq"] = str(write_images("lq", 4, (30, 36), shrink=scale))
    if kind == "RealESRGANDataset":
        more = {"degradations": settings_of("mild"), **more}
    return DATASETS.get(kind)(**roots, **more, scale=scale, name="photos")  # type: ignore[arg-type]


@pytest.fixture(params=sorted(DATASETS))
def dataset(request: pytest.FixtureRequest, write_images: Write) -> DynamicDataset:
    return build(request.param, write_images, scale=2)


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
        whole = dataset.full_sample(index)
        assert tuple(whole["gt"].shape[1:]) == tuple(2 * side for side in whole["lq"].shape[1:])
        assert dataset.sample_name(index)
        assert not dataset.sample_key(index).startswith("/")


def test_cut_keeps_a_corner_and_shape_tells(dataset: DynamicDataset) -> None:
    samples = [dataset[SampleKey(0, 12, seed)] for seed in range(3)]
    stacked = {name: torch.stack([sample[name] for sample in samples]) for name in ("lq", "gt")}
    parts = [dataset.workload.part(stacked, start, stop) for start, stop in ((0, 1), (1, 3))]
    for made in (dataset.collate(samples), dataset.workload.join(parts)):
        assert all(torch.equal(made[name], stacked[name]) for name in stacked)
    shape = dataset.workload.shape(stacked)
    assert (shape.samples, shape.extent, dataset.workload.weight(stacked)) == (3, 12, 3)
    assert dataset.workload.units(stacked) == 3 * 24 * 24
    cut = dataset.workload.shrink(stacked, 12, 8)
    assert torch.equal(cut["lq"], stacked["lq"][..., :8, :8])
    assert torch.equal(cut["gt"], stacked["gt"][..., :16, :16])


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", sorted(DATASETS))
def test_both_crops_keep_to_the_scale_through_plan_changes(kind: str, write_images: Write, scale: int) -> None:
    """Fault 10: scale 2 was hard-coded (C28): crops of another size than the network makes, or of another place."""
    dataset = build(kind, write_images, scale)
    with DynamicDataLoader(dataset, Plan.of(batch_size=3, lq_size=12), seed=5, lookahead=2) as loader:
        batches = iter(loader)
        seen = list(islice(batches, 2))
        loader.update_plan(Plan.of(batch_size=4, lq_size=21))
        seen += islice(batches, 4)
        loader.update_plan(Plan.of(batch_size=2, lq_size=9))  # what is under way is cut
        seen += islice(batches, 3)
    assert [batch.shape.extent for batch in seen] == [12] * 4 + [21] * 2 + [9] * 3
    for batch in seen:
        lq, gt = batch.tensors["lq"], batch.tensors["gt"]
        assert gt.shape == (*lq.shape[:2], lq.shape[2] * scale, lq.shape[3] * scale)
        assert batch.units == len(batch) * (batch.shape.extent * scale) ** 2
        shrunk = F.avg_pool2d(gt.float(), scale)
        most = 10 if kind == "RealESRGANDataset" else 2.5
        assert float((shrunk - lq.float()).abs().mean()) < most  # the same place, whichever way it was shrunk
    assert dataset.scan().smallest_size == 30


@pytest.mark.parametrize("kind", sorted(DATASETS))
def test_what_workers_are_handed_can_be_pickled(kind: str, write_images: Write, tmp_path: Path) -> None:
    """Fault 19: lambdas and local classes break where workers are spawned; the loader's own test does spawn one."""
    plain, cached = (
        build(kind, write_images, 2, **more) for more in ({}, {"reading": Reading(cache_dir=str(tmp_path / "cache"))})
    )
    for one in (plain, cached):
        again = pickle.loads(pickle.dumps(one))
        key = SampleKey(2, 12, 5)
        assert torch.equal(again[key]["gt"], one[key]["gt"])


def test_scan(dataset: DynamicDataset) -> None:
    scan = dataset.scan()
    assert (scan.samples, scan.smallest_size) == (4, 30)
