"""Augmentations: what each does to both resolutions of a crop, how often it is drawn, and from which sample."""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, SampleKey
from trainauto.tasks.sr.data import GTImageDataset
from trainauto.tasks.sr.data.augmentations import KINDS, Augmentations, Crops
from trainauto.tasks.sr.data.geometry import shrunk

SIDE, SCALE = 16, 4
SEEDS = range(40)


def flat(value: int) -> Crops:
    """Return crops of one colour."""
    return {
        "lq": np.full((SIDE, SIDE, 3), value, np.uint8),
        "gt": np.full((SIDE * SCALE, SIDE * SCALE, 3), value, np.uint8),
    }


def smooth(phase: float) -> Crops:
    """Return a smooth high-quality crop, and the same shrunk."""
    rows, columns = np.mgrid[: SIDE * SCALE, : SIDE * SCALE] / (SIDE * SCALE)
    wave = 127 + 100 * np.sin(2 * rows + phase)[..., None] * np.cos([2, 1.5, 1] * columns[..., None] + phase)
    gt = np.rint(wave).astype(np.uint8)
    return {"lq": shrunk(gt, SCALE), "gt": gt}


def augment(kind: str, crops: Crops, other: Crops, seed: int) -> tuple[Crops, dict[str, object]]:
    kept = {name: pixels.copy() for name, pixels in crops.items()}
    made, drawn = Augmentations([kind], [1.0]).applied(crops, seed, lambda: other)
    assert all(np.array_equal(kept[name], crops[name]) for name in crops), "the sample itself was changed"
    assert {name: pixels.shape for name, pixels in made.items()} == {name: p.shape for name, p in crops.items()}
    assert drawn[0].step == kind
    return made, drawn[0].values


def box_of(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a rectangle of ones, which it must be."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
    assert mask.sum() == height * width
    return int(rows[0]), int(columns[0]), int(height), int(width)


def test_mixup_averages_two_samples_alike_at_both_resolutions() -> None:
    shares = []
    for seed in range(400):
        made, values = augment("mixup", flat(200), flat(100), seed)
        share = float(str(values["share"]))
        assert (made["lq"] == round(100 + 100 * share)).all()
        assert (made["gt"] == made["lq"][0, 0, 0]).all()
        shares.append(share)
    assert 0.4 <= min(shares) < 0.41
    assert 0.59 < max(shares) <= 0.6
    assert np.mean(shares) == pytest.approx(0.5, abs=4 * 0.2 / np.sqrt(12 * 400))


@pytest.mark.parametrize("kind", ["cutmix", "resizemix"])
def test_a_box_of_another_sample_lies_at_the_same_place_in_both(kind: str) -> None:
    shares = []
    for seed in range(400):
        made, values = augment(kind, flat(10), flat(200), seed)
        low, high = box_of(made["lq"][:, :, 0] == 200), box_of(made["gt"][:, :, 0] == 200)
        assert high == tuple(SCALE * length for length in low)
        assert ((made["lq"] == 10) | (made["lq"] == 200)).all()
        assert (values["at"], values["box"]) == (low[:2], low[2:])
        shares.append(low[2] * low[3] / SIDE**2)
    # Sides sqrt(U(.1, 1)) and U(.5, .9) of the crop, made even, around a uniform centre and cut at the edges.
    rng = np.random.default_rng(0)
    expected = []
    for _ in range(20_000):
        side = np.sqrt(1 - rng.uniform(0, 0.9)) if kind == "cutmix" else rng.uniform(0.5, 0.9)
        half, centres = int(SIDE * side) // 2, rng.integers(SIDE, size=2)
        lengths = [min(SIDE, centre + half) - max(0, centre - half) for centre in centres]
        expected.append(lengths[0] * lengths[1] / SIDE**2)
    assert np.mean(shares) == pytest.approx(np.mean(expected), abs=4 * np.std(expected) / np.sqrt(400))


def test_resizemix_pastes_the_whole_of_another_sample() -> None:
    for seed in SEEDS:
        other = smooth(1.0)
        made, values = augment("resizemix", smooth(0.0), other, seed)
        (top, left), (height, width) = values["at"], values["box"]  # type: ignore[misc]
        for name, by in (("lq", 1), ("gt", SCALE)):
            tensor = torch.from_numpy(other[name].astype(np.float64)).permute(2, 0, 1)[None]
            small = F.interpolate(tensor, (height * by, width * by), mode="bicubic", antialias=True)  # type: ignore[has-type]
            place = made[name][top * by : (top + height) * by, left * by : (left + width) * by]  # type: ignore[has-type]
            assert np.abs(small[0].permute(1, 2, 0).numpy() - place).max() < 0.51


def test_cutblur_puts_the_target_into_the_low_quality_crop() -> None:
    for seed in SEEDS:
        made, _ = augment("cutblur", {**flat(10), "gt": flat(200)["gt"]}, {}, seed)
        _, _, height, width = box_of(made["lq"][:, :, 0] == 200)
        assert max(height, width) <= 0.7 * SIDE
        assert (made["gt"] == 200).all()


def test_downup_loses_detail_and_keeps_the_target() -> None:
    rng = np.random.default_rng(0)
    noise = {"lq": rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8), "gt": flat(3)["gt"]}
    ways = set()
    for seed in range(200):
        made, values = augment("downup", noise, {}, seed)
        assert (made["gt"] == 3).all()
        assert not np.array_equal(made["lq"], noise["lq"])
        assert 0.5 * SIDE <= values["size"][0] <= 0.9 * SIDE  # type: ignore[index]
        ways.add((values["down"], values["up"]))
    assert len(ways) == 8
    assert ("nearest-exact", "nearest-exact") not in ways


def test_up_enlarges_the_same_part_of_both() -> None:
    for seed in SEEDS:
        made, values = augment("up", smooth(0.3), {}, seed)
        if values["mode"] != "nearest-exact":
            # The low-quality crop is the shrunk target still, but for the edges, where kernels see less.
            inner = (slice(2, -2), slice(2, -2))
            difference = made["lq"][inner].astype(int) - shrunk(made["gt"], SCALE)[inner]
            assert np.abs(difference).max() <= 3
        assert made["gt"].std() < smooth(0.3)["gt"].std() * 1.2


def test_each_is_drawn_by_its_weight() -> None:
    kinds, weights = ["none", *KINDS], [0.5, 0.1, 0.1, 0.1, 0.5, 0.2, 0.3]  # weights need not sum to 1
    augmentations = Augmentations(kinds, weights)
    crops = {"lq": np.zeros((2, 2, 1), np.uint8), "gt": np.zeros((4, 4, 1), np.uint8)}
    draws = 10_000
    counts: Counter[str] = Counter()
    for seed in range(draws):
        drawn = augmentations.applied(crops, seed, lambda: crops)[1]
        counts[drawn[0].step if drawn else "none"] += 1
    for kind, weight in zip(kinds, weights, strict=True):
        share = weight / sum(weights)
        assert counts[kind] == pytest.approx(draws * share, abs=4 * np.sqrt(draws * share * (1 - share)))


def test_samples_are_mixed_with_another_image_whatever_reads_them(write_images: Callable[..., Path]) -> None:
    folder = write_images("gt", 3, (80, 96))

    def dataset() -> GTImageDataset:
        made = GTImageDataset(str(folder), scale=SCALE)
        made.augmentations = Augmentations(list(KINDS), [1.0] * len(KINDS))
        return made

    def batches(workers: int) -> list[torch.Tensor]:
        plan = Plan.of(batch_size=3, lq_size=SIDE)
        with DynamicDataLoader(dataset(), plan, seed=3, num_workers=workers, lookahead=2) as loader:
            return [batch.tensors[name].clone() for batch in islice(loader, 4) for name in ("lq", "gt")]

    assert all(torch.equal(*pair) for pair in zip(batches(0), batches(2), strict=True))
    mixed = dataset()
    partners = Counter(mixed._partner_of(SampleKey(1, SIDE, seed)).sample for seed in range(300))
    assert set(partners) == {0, 2}
    assert partners[0] == pytest.approx(150, abs=4 * np.sqrt(75))
    alone = GTImageDataset(str(folder / "image_000.png"), scale=SCALE)
    alone.augmentations = Augmentations(["cutmix"], [1.0])
    assert alone[SampleKey(0, SIDE, 1)]["lq"].shape == (3, SIDE, SIDE)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest-exact", "lanczos", "area"])
def test_crops_are_those_of_the_image_shrunk_by_any_mode(mode: str, write_images: Callable[..., Path]) -> None:
    folder = write_images("gt", 1, (83, 97))
    made = GTImageDataset(str(folder), scale=SCALE, use_hflip=False, use_rot=False, lq_resize_mode=mode)
    whole = made.full_sample(0)["lq"].numpy()
    for seed in range(20):
        crop = made[SampleKey(0, 8, seed)]["lq"].numpy()
        windows = np.lib.stride_tricks.sliding_window_view(whole, crop.shape[1:], axis=(1, 2))
        assert (windows == crop[:, None, None]).all(axis=(0, 3, 4)).any()
