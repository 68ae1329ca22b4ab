"""Degradations of option files: under the keys of BasicSR and traiNNer-redux, with presets for what is left out."""

import csv
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.commands import gan_options, merged, tiny_options, write_options
from trainauto.builders.data import build_train_set
from trainauto.builders.degradations import degradation_arguments, degradation_settings, sharpening
from trainauto.builders.image_model import build_network
from trainauto.builders.losses import target_of, targets
from trainauto.core.errors import InputError
from trainauto.data import SampleKey
from trainauto.options.degradation_options import DegradationOptions, KernelOptions
from trainauto.options.load import LoadedOptions, load_options
from trainauto.tasks.sr.data.augmentations import Augmentations
from trainauto.tasks.sr.degradations.kernels import KINDS
from trainauto.tasks.sr.degradations.sharpening import Sharpening

TEMPLATES = Path(__file__).parents[4] / "shared" / "data" / "option_templates.csv"
Load = Callable[..., LoadedOptions]


def degraded(gt: Path, of_set: Mapping[str, Any], /, **top: Any) -> dict[str, Any]:
    options = tiny_options(gt, **top)
    options["datasets"]["train"] |= {"type": "RealESRGANDataset", **of_set}
    return options


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load an option file with these keys at the top level and in its training set."""

    def loaded(of_set: Mapping[str, Any] | None = None, /, **top: Any) -> LoadedOptions:
        return load_options(write_options(tmp_path / "run.yml", degraded(tmp_path, of_set or {}, **top)))

    return loaded


def test_without_keys_it_is_real_esrgan(load: Load) -> None:
    settings = degradation_settings(load().options)
    assert settings.first.resize_range == (0.15, 1.5)
    assert settings.second.blur_prob == 0.8
    assert settings.second.blur.sigma_px == (0.2, 1.5)
    assert settings.final_sinc_prob == 0.8
    assert settings.first.codecs == {"jpeg": 1.0}
    assert list(settings.final_modes) == ["area", "bilinear-aliased", "bicubic-aliased"]


def test_a_preset_replaces_only_what_is_left_out(load: Load) -> None:
    settings = degradation_settings(
        load({"blur_sigma": [1, 2]}, degradation_preset="mild", jpeg_range=[10, 20], blur_prob=0.5).options
    )
    assert settings.first.blur.sigma_px == (1, 2)
    assert settings.second.blur.sigma_px == (0.2, 1.0)
    assert settings.first.quality == {"jpeg": (10, 20)}
    assert settings.second.quality == {"jpeg": (75, 95)}
    assert (settings.first.blur_prob, settings.second.blur_prob) == (0.5, 0)


def test_lists_weigh_as_written_or_all_alike(load: Load) -> None:
    keys = {"resize_mode_list": ["area", "lanczos"], "codec_list": ["jpeg", "webp"], "webp_range": [40, 50]}
    settings = degradation_settings(load({"kernel_list2": ["iso", "aniso"]}, **keys, codec_prob=[1, 3]).options)
    assert settings.first.resize_modes == {"area": 1, "lanczos": 1}
    assert settings.second.blur.kinds == {"iso": 1, "aniso": 1}
    assert settings.first.codecs == settings.second.codecs == {"jpeg": 1, "webp": 3}
    assert settings.first.quality == {"jpeg": (30, 95), "webp": (40, 50)}


def _templates(project: str) -> dict[str, Any]:
    """Return the keys about degradations that option files of a project have, each with its most frequent value."""
    if not TEMPLATES.is_file():
        pytest.skip("the keys of other projects' templates are not here: shared/data/option_templates.csv")
    ours = {*DegradationOptions.model_fields, *(f"datasets.train.{name}" for name in KernelOptions.model_fields)}
    found: dict[str, Any] = {}
    with TEMPLATES.open(newline="") as file:
        for row in csv.DictReader(file):
            values = row["values"].rsplit(" x", 1)[0].split(" | ")[0].split(" x")[0]
            if row["project"] == project and row["key"] in ours:
                found[row["key"]] = yaml.safe_load(values) if not values.endswith('"pl') else None
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize(("project", "keys"), [("traiNNer-redux", 45), ("BasicSR", 30)])
def test_keys_of_templates_are_taken(load: Load, caplog: pytest.LogCaptureFixture, project: str, keys: int) -> None:
    found = _templates(project)
    assert len(found) >= keys
    train = {key.rsplit(".", 1)[1]: value for key, value in found.items() if "." in key}
    top = {key: value for key, value in found.items() if "." not in key}
    train |= {key: list(KINDS) for key in ("kernel_list", "kernel_list2")}  # cut off in the table
    train |= {key: [1] * 6 for key in ("kernel_prob", "kernel_prob2") if key in train and len(train[key]) != 6}
    if project == "BasicSR":
        top.pop("gt_usm")  # of another file than the three keys of losses
    loaded = load(train, **top)
    with caplog.at_level(logging.INFO):
        settings = degradation_arguments(loaded)["degradations"]
    assert "queue_size" in caplog.text
    assert "blur_kernel_size" in caplog.text
    assert settings.first.resize_range == tuple(found["resize_range"])
    assert settings.second.quality == {"jpeg": tuple(found["jpeg_range2"])}


@pytest.mark.parametrize(
    ("top", "train", "said"),
    [
        ({"jpeg_range": [95, 30]}, {}, "write [30, 95]"),
        ({"resize_range": [1.2, 1.5]}, {}, "1 must lie in the range"),
        ({"resize_mode_list": ["bilinaer"]}, {}, "bilinear"),
        (
            {"resize_mode_list": ["area"], "resize_mode_prob": [1, 2]},
            {},
            "2 weights, and resize_mode_list has 1 entries",
        ),
        ({"resize_mode_prob": [1, 2]}, {}, "Write resize_mode_list too."),
        ({"codec_list": []}, {}, "codec_list"),
        ({"gt_usm": True, "gan_gt_usm": False}, {}, "gt_usm sharpens the target of all losses"),
        ({"resize_prob": [0, 0, 0]}, {}, "all weights are 0"),
        ({"blur_prob": 1.5}, {}, "blur_prob"),
        ({"lq_usm": True, "gt_usm": True}, {}, "lq_usm is traiNNer-redux's"),
        ({"second_blur_prob": 0.5, "blur_prob2": 0.5}, {}, "two names of one thing"),
        ({"high_order_degradation": False}, {}, "would make no low-quality images"),
        ({}, {"kernel_range": [6, 11]}, "6 is even: write 5 or 7"),
        ({}, {"betap_range": [1.5, 2]}, "1 must lie in the range"),
        ({}, {"kernel_list": ["iso"], "kernel_prob": [0.5, 0.5]}, "2 weights, and kernel_list has 1 entries"),
        ({}, {"type": "GTImageDataset", "sinc_prob": 0.5}, "sinc_prob is about low-quality images that are made at"),
        ({"jpeg_range": [30, 95]}, {"type": "GTImageDataset"}, "Write type: RealESRGANDataset in datasets.train"),
        ({}, {"dataroot_lq": "lq"}, "takes no dataroot_lq"),
        ({"dataroot_lq_prob": 0.5}, {}, "Write type: RealESRGANPairedDataset"),
        ({"dataroot_lq_prob": 0.5}, {"dataroot_lq_prob": 0.5}, "at the top level and in datasets.train"),
        ({}, {"augmentation": ["none", "cutmix"]}, "Write aug_prob too"),
        ({}, {"augmentation": ["mixupp"], "aug_prob": [1]}, "mixup"),
        ({}, {"augmentation": ["none", "mixup"], "aug_prob": [1]}, "1 weights, and augmentation has 2 entries"),
        ({}, {"lq_resize_mode": "area"}, "takes no lq_resize_mode"),
        ({}, {"type": "RealESRGANPairedDataset"}, "needs dataroot_lq"),
    ],
)
def test_what_cannot_be_is_refused(load: Load, top: dict[str, Any], train: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        load(train, **top)
    assert said in " ".join(str(refused.value).split())
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize(
    ("top", "sharpens", "names"),
    [
        ({}, Sharpening(), ["gt", "gt", "gt"]),
        ({"gt_usm": True}, Sharpening(degraded=True, target=True), ["gt", "gt", "gt"]),
        ({"l1_gt_usm": True, "gan_gt_usm": False}, Sharpening(degraded=True), ["gt_usm", "gt", "gt"]),
        (
            {"l1_gt_usm": False, "percep_gt_usm": True, "gan_gt_usm": True},
            Sharpening(degraded=True),
            ["gt", "gt_usm", "gt_usm"],
        ),
        ({"lq_usm": True, "lq_usm_radius_range": [3, 9]}, Sharpening(radii_px=(3, 9)), ["gt", "gt", "gt"]),
    ],
)
def test_what_is_sharpened(load: Load, top: dict[str, Any], sharpens: Sharpening, names: list[str]) -> None:
    losses = [{"type": "l1loss"}, {"type": "perceptualloss"}, {"type": "ganloss"}]
    options = load(**merged(gan_options(train={"losses": losses}), top)).options
    assert sharpening(options) == sharpens
    assert [target_of(options, chosen) for chosen in options.train.losses] == names
    assert set(targets(options)) == {"gt", *names}


def test_the_key_of_a_loss_decides_before_those_of_basicsr(tmp_path: Path) -> None:
    losses = [{"type": "l1loss", "target": "gt"}, {"type": "mseloss"}]
    file = write_options(tmp_path / "run.yml", degraded(tmp_path, {}, l1_gt_usm=True, train={"losses": losses}))
    options = load_options(file).options
    assert [target_of(options, chosen) for chosen in options.train.losses] == ["gt", "gt_usm"]


def test_the_set_makes_what_losses_compare_with(load: Load, write_images: Callable[..., Path]) -> None:
    folder = write_images("gt", 2, (70, 80))
    loaded = load({"dataroot_gt": str(folder)}, l1_gt_usm=True)
    dataset, _ = build_train_set(loaded, build_network(loaded))
    assert set(dataset.workload.dummy(2, 8)) == {"lq", "gt", "gt_usm"}


@pytest.mark.parametrize("keys", ["traiNNer-redux", "neosr"])
def test_augmentations_are_those_of_the_file(keys: str, tmp_path: Path, write_images: Callable[..., Path]) -> None:
    kinds, weights = ["none", "mixup", "up"], [0.5, 0.1, 0.6]
    of_redux = {"use_moa": True, "moa_augs": kinds, "moa_probs": weights, "moa_debug": True}
    top = {"train": of_redux} if keys == "traiNNer-redux" else {}
    of_set = {} if top else {"augmentation": kinds, "aug_prob": weights}
    gt = write_images("gt", 2, (64, 64))
    file = write_options(tmp_path / "run.yml", degraded(gt, {**of_set, "lq_size": 8}, **top))
    loaded: Any = load_options(file)
    dataset: Any = build_train_set(loaded, build_network(loaded, pretrained=False))[0]
    assert dataset.augmentations == Augmentations(kinds, weights)
    drawn = [[step.step for step in dataset.drawn(SampleKey(0, 8, seed))[1]] for seed in range(40)]
    assert {steps[-1] for steps in drawn} >= {"mixup", "up"}


def test_the_share_of_pairs_may_stand_at_the_top(tmp_path: Path, write_images: Callable[..., Path]) -> None:
    gt, lq = write_images("gt", 2, (64, 64)), write_images("lq", 2, (32, 32), shrink=2)
    of_set = {"type": "RealESRGANPairedDataset", "dataroot_lq": str(lq), "lq_size": 8}
    loaded: Any = load_options(write_options(tmp_path / "run.yml", degraded(gt, of_set, dataroot_lq_prob=0.25)))
    dataset: Any = build_train_set(loaded, build_network(loaded, pretrained=False))[0]
    pairs = sum(dataset.drawn(SampleKey(0, 8, seed))[1][0].step == "pair of files" for seed in range(400))
    assert pairs == pytest.approx(100, abs=4 * (400 * 0.25 * 0.75) ** 0.5)
