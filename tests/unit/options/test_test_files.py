"""Test files: what they mean to what validates, and what is wrong with them, in words."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from trainauto.core.errors import InputError
from trainauto.options import test_schema
from trainauto.options.load import LoadedTest, load_test_options

EXAMPLE = Path(__file__).parents[3] / "options" / "test" / "quickstart.yml"


def loaded(folder: Path, **changes: Any) -> LoadedTest:
    options = yaml.safe_load(EXAMPLE.read_text()) | changes
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({key: value for key, value in options.items() if value is not ...}, sort_keys=False))
    return load_test_options(file)


def problems(folder: Path, **changes: Any) -> list[str]:
    with pytest.raises(InputError) as raised:
        loaded(folder, **changes)
    return [str(problem) for problem in raised.value.problems]


def test_the_example_is_a_test_of_two_sets() -> None:
    found = load_test_options(EXAMPLE, ["val:save_img=false"])
    options = found.as_run.options
    assert {key: one.name for key, one in options.datasets.validation_sets.items()} == {
        "test_1": "photographs",
        "test_2": "flower",
    }
    assert (options.scale, options.network_g.arguments) == (2, {"num_feat": 24, "num_conv": 6})
    assert options.path.pretrain_network_g is not None
    assert options.path.pretrain_network_g.endswith("net_g_ema.safetensors")
    assert (options.val.val_enabled, options.val.save_img, list(options.val.metrics)) == (
        True,
        False,
        ["psnr_y", "ssim_y"],
    )
    assert (options.deterministic, options.use_amp, options.device) == (False, False, "auto")


def test_sets_without_a_name_are_called_by_their_keys(tmp_path: Path) -> None:
    sets = {key: {"type": "GTImageDataset", "dataroot_gt": key} for key in ("test_1", "test", "val")}
    found = loaded(tmp_path, datasets=sets).as_run.options.datasets.validation_sets
    assert {key: one.name for key, one in found.items()} == {"test_1": "test_1", "test": "test", "val": "val"}


def test_everything_wrong_is_said_at_once_with_its_place(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        scael=2,
        datasets={"tset": {"dataroot_gt": "x"}, "test_1": {"dataroot_gt": "x", "type": "GTImageDataset"}},
        train={"total_iter": 4},
        val={"metric": {}, "val_freq": 3},
    )
    text = "\n".join(found)
    assert all(one.startswith(f"{tmp_path}/test.yml:") for one in found)
    for words in (
        "unknown key 'scael'",
        "Did you mean 'scale'?",
        "'tset' is no data set",
        "Did you mean 'test'?",
        "unknown key 'metric' in val",
        "Did you mean 'metrics'?",
        "a test does not train",
    ):
        assert words in text
    assert len(found) == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"datasets": {}}, "datasets names no set of images"),
        ({"val": {"save_img": False}}, "the test would leave nothing"),
        ({"val": {"tile_size": 32}}, "mostly overlap"),
        ({"datasets": {"test": {"dataroot_gt": "x"}}}, "PairedImageDataset needs dataroot_lq"),
        (
            {"datasets": {key: {"name": "a", "type": "GTImageDataset", "dataroot_gt": key} for key in ("test", "val")}},
            "both named 'a'",
        ),
        (
            {"path": {"pretrain_network_g": "x.safetensors", "param_key_g": "params"}},
            "param_key_g chooses inside a .pth",
        ),
        ({"val": ...}, "'val' is missing"),
    ],
)
def test_impossible_combinations(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert words in "\n".join(problems(tmp_path, **changes))


def test_no_key_is_lost_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key of a test file is read by what turns it into options of a run; those are read by every run."""
    sections = [
        section
        for section in vars(test_schema).values()
        if isinstance(section, type) and issubclass(section, BaseModel) and section.__module__ == test_schema.__name__
    ]
    seen: set[tuple[str, str]] = set()

    def reading(self: BaseModel, name: str) -> Any:
        if name in type(self).model_fields and sys._getframe(1).f_code.co_name in ("as_of_a_run", "<dictcomp>"):
            seen.add((type(self).__name__, name))
        return object.__getattribute__(self, name)

    test = loaded(tmp_path).test
    for section in sections:
        monkeypatch.setattr(section, "__getattribute__", reading, raising=False)
    test.as_of_a_run()
    every = {(section.__name__, key) for section in sections for key in section.model_fields}
    of_weights = {("WeightsToMeasure", key) for key in test_schema.WeightsToMeasure.model_fields}  # dumped as a whole
    assert every - of_weights == seen
