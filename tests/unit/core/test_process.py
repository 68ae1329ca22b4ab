"""What predictions do not know of a process."""

import gc
from importlib import import_module
from pathlib import Path

import pytest

from trainauto.core.process import unknown_to_predictions, unknown_torch, without_garbage_collection


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu128", "2.13.0+cpu", "2.14.1.post2"])
def test_these_were_checked(version: str) -> None:
    assert unknown_torch(version) == ""


@pytest.mark.parametrize("version", ["2.9.1", "2.10.0+cu128", "2.15.0.dev20270101", "2.15.0", "3.0.0", "unknown"])
def test_others_were_not(version: str) -> None:
    assert unknown_torch(version) == (
        f"predictions were checked with torch 2.11 to 2.14, not with {version}: it may allocate otherwise"
    )


def test_all_that_is_not_known_is_told_once() -> None:
    settings = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}
    assert unknown_to_predictions({}, "2.13.0") == []
    about_settings, about_torch = unknown_to_predictions(settings, "2.99.0")
    assert "max_split_size_mb" in about_settings
    assert "2.99.0" in about_torch


def test_only_what_is_loaded_is_kept_from_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "loaded_late.py").write_text("held = [[] for _ in range(100)]")
    counts, made = [gc.get_freeze_count()], []
    for _ in ("loads", "finds it loaded"):
        with without_garbage_collection():
            import_module("loaded_late")
        counts.append(gc.get_freeze_count())
        made.append([[counts] for _ in range(100)])  # a second freeze would count these
    before, first, second = counts
    assert first > before + 100
    assert second <= first
    assert gc.isenabled()
