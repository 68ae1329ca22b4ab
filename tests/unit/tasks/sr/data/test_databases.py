"""Images in an LMDB database as BasicSR makes them: read, paired and cached as files are."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainauto.builders.data import _identity
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader
from trainauto.tasks.sr.data import GTImageDataset, PairedImageDataset
from trainauto.tasks.sr.data import image_source as module
from trainauto.tasks.sr.data.reading import Reading

Write = Callable[..., Path]
lmdb = pytest.importorskip("lmdb")


def database_of(folder: Path, size: str = "(40,60,3)") -> Path:
    """Write a folder of images into a database beside it."""
    made = folder.with_suffix(".lmdb")
    with lmdb.open(str(made), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for file in sorted(folder.iterdir()):
            transaction.put(file.stem.encode(), file.read_bytes())
    lines = [f"{file.name} {size} 1\n" for file in sorted(folder.iterdir())]
    (made / "meta_info.txt").write_text("".join(lines), encoding="utf-8")
    return made


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_database_gives_the_crops_of_its_files(write_images: Write, tmp_path: Path, suffix: str) -> None:
    gt = write_images("gt", 3, (40, 60), suffix=suffix)
    lq = write_images("lq", 3, (20, 30), shrink=2)

    def batches(dataset: GTImageDataset | PairedImageDataset, workers: int) -> list[torch.Tensor]:
        dataset.keeps_decoded = workers > 0
        scan = dataset.scan()
        assert (scan.samples, scan.smallest_size) == (3, 20)
        plan = Plan.of(batch_size=2, lq_size=8)
        with DynamicDataLoader(dataset, plan, seed=1, num_workers=workers, lookahead=2) as loader:
            stream = iter(loader)
            return [next(stream).tensors[name].clone() for _ in range(3) for name in ("lq", "gt")]

    stored = [str(database_of(folder)) for folder in (gt, lq)]
    cached = Reading(cache_dir=str(tmp_path / "cache"))
    files = batches(GTImageDataset(str(gt), scale=2), 0)
    assert all(map(torch.equal, files, batches(GTImageDataset(stored[0], scale=2), 2)))
    assert all(map(torch.equal, files, batches(GTImageDataset(stored[0], scale=2, reading=cached), 0)))
    pairs = batches(PairedImageDataset(str(gt), str(lq), scale=2), 0)
    assert all(map(torch.equal, pairs, batches(PairedImageDataset(*stored, scale=2), 2)))
    dataset = GTImageDataset(stored[0], scale=2, reading=Reading(decode_all=True))
    assert dataset.sample_files().size_bytes == GTImageDataset(str(gt), scale=2).sample_files().size_bytes
    assert dataset.sample_key(1) == "image_001"


def test_what_a_database_lacks_is_named(write_images: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = database_of(write_images("gt", 2, (40, 60)))
    with (stored / "meta_info.txt").open("a", encoding="utf-8") as file:
        file.write("gone.png (1,1,3) 1\n")
    with pytest.raises(InputError, match=r"has no image gone\.png"):
        GTImageDataset(str(stored), scale=2).scan()
    (stored / "meta_info.txt").unlink()
    with pytest.raises(InputError, match=r"has no meta_info\.txt"):
        GTImageDataset(str(stored), scale=2)
    module._open.clear()
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(InputError, match="package lmdb is not installed"):
        GTImageDataset(str(stored), scale=2)


def test_names_with_brackets_and_sets_that_share_a_database(write_images: Write, tmp_path: Path) -> None:
    folder = write_images("gt", 2, (40, 60))
    (folder / "image_000.png").rename(folder / "photo (1).png")
    stored = database_of(folder)
    first, again = (GTImageDataset(str(stored), scale=2, name=name) for name in ("train", "val"))
    assert first.scan().samples == 2
    assert {first.sample_key(index) for index in range(2)} == {"photo (1)", "image_001"}
    assert _identity(first, 0) == _identity(again, 0) != _identity(first, 1)
    with pytest.raises(InputError, match=r"name it so that it ends in \.lmdb"):
        GTImageDataset(str(stored.rename(tmp_path / "other")), scale=2)
