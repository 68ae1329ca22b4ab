from collections.abc import Callable

import pytest

from trainauto.core.errors import Problem
from trainauto.options.load import LoadedOptions

TILES = "tiles of 32 px with 16 px of overlap"


@pytest.mark.parametrize(
    ("overrides", "place", "what"),
    [
        (["train:total_samples=9", "train:total_iter=9", "train:warmup_steps=0"], 1, "the run has two lengths"),
        (["train:total_iter=", "train:warmup_steps=0"], 0, "the run has no length"),
        (["train:warmup_ratio=0.1"], 0, "warm-up is given twice"),
        (["train:total_iter=", "train:total_samples=9"], 0, "warmup_steps counts steps in a run that counts samples"),
        (["train:warmup_steps=500"], 1, "the warm-up of 500 steps does not end within the 500"),
        (["datasets:train:num_worker_per_gpu=5"], 1, "5 workers cannot all be busy with 4 batches"),
        (["datasets:train:dataroot_lq="], 0, "PairedImageDataset needs dataroot_lq"),
        (["datasets:val:dataroot_lq="], 0, "PairedImageDataset needs dataroot_lq"),
        (["datasets:val_2={name: b, dataroot_gt: x}"], 1, "PairedImageDataset needs dataroot_lq"),
        (["datasets:train:type=gtimagedataset"], 0, "gtimagedataset makes lq images itself"),
        (["datasets:val:dataroot_lq=data/val/gt"], 1, "dataroot_lq is the same as dataroot_gt"),
        (["datasets:val:dataroot_gt=[]"], 1, "dataroot_gt names nothing"),
        (["datasets:val:dataroot_lq=['']"], 1, "dataroot_lq names nothing"),
        (["scale=1", "datasets:val={type: GTImageDataset, dataroot_gt: x}"], 1, "at scale 1 they equal the gt images"),
        (["datasets:val_2={dataroot_gt: x, dataroot_lq: y, name: VAL_small}"], 1, "are both named 'VAL_small'"),
        (["datasets:train:name=Val_small"], 0, "datasets.train and datasets.val are both named 'val_small'"),
        (["logger:best_metric=lpips"], 1, "best_metric 'lpips' is not among val.metrics"),
        (["logger:best_metric=", "val:metrics={}", "logger:best_metric=psnr"], 1, "best_metric 'psnr' is not among"),
        (["val:val_enabled=false"], 0, "best_metric 'psnr' is never measured"),
        (["datasets:val="], 0, "there are validation options, and no validation set"),
        (["logger:best_metric=", "val:metrics={}", "val:save_img=false"], 1, "validation would leave nothing"),
        (["val:tile_size=32"], 1, TILES),
        (["val:tile_size=32", "val:tile_overlap=16"], 1, TILES),
        (["path:pretrain_network_g=x.safetensors", "path:param_key_g=params"], 1, "param_key_g chooses inside a .pth"),
        (["path:pretrain_network_d=x.safetensors", "path:param_key_d=params"], 1, "param_key_d chooses inside a .pth"),
    ],
)
def test_what_cannot_work_together(
    problems: Callable[..., tuple[Problem, ...]], overrides: list[str], place: int, what: str
) -> None:
    (problem,) = problems(*overrides)
    assert what in problem.message
    assert problem.advice
    assert problem.place is not None
    assert problem.place.file == "--force_yml" if place else problem.place.file.endswith("options.yml"), str(problem)
    assert problem.place.line


@pytest.mark.parametrize(
    "overrides",
    [
        ["train:total_iter=", "train:total_samples=9000", "train:warmup_steps=0", "train:warmup_ratio=0.1"],
        ["datasets:train:num_worker_per_gpu=4"],
        ["datasets:train:dataroot_lq=", "datasets:train:type=GTImageDataset"],
        ["datasets:train:type=MyDataset", "datasets:train:dataroot_lq="],
        ["datasets:val=", "val:val_enabled=false", "logger:best_metric="],
        ["logger:best_metric=", "val:metrics={}"],
        ["val:tile_size=33"],
        ["val:tile_size=0", "val:tile_overlap=500"],
        ["path:pretrain_network_g=x.pth", "path:param_key_g=params"],
        ["scale=1"],
    ],
)
def test_what_can(load: Callable[..., LoadedOptions], overrides: list[str]) -> None:
    assert load(*overrides).options


def test_validation_without_sets_is_fine_when_nobody_asks_for_it(load: Callable[..., LoadedOptions]) -> None:
    text = """
name: x
datasets: {train: {type: GTImageDataset, dataroot_gt: a}}
network_g: {type: span}
train: {total_iter: 1, losses: [{type: l1loss}], optim_g: {type: Adam}}
"""
    assert load(text=text).options.val.val_enabled


def test_combinations_are_judged_where_their_sections_are_valid(
    problems: Callable[..., tuple[Problem, ...]],
) -> None:
    found = problems("scale=x", "train:warmup_ratio=0.1", "val:tile_size=8", "val:val_freq=0")
    assert [problem.message.split(",")[0] for problem in found] == [
        "warm-up is given twice",
        "scale takes a whole number",
        "val.val_freq takes a number of at least 1",
    ]


def test_a_name_that_is_proposed_is_free(problems: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems("datasets:train:name=val", "datasets:val:name=val")
    assert "datasets.train and datasets.val are both named 'val'" in problem.message
    assert problem.advice == "Give each a name of its own."
    (problem,) = problems("datasets:val_2={name: train_small, dataroot_gt: x, dataroot_lq: y}")
    assert "name: val_2" in problem.advice
