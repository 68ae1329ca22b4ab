import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainauto.reporting.trackers.names import plain_name, shown_config, shown_name
from trainauto.reporting.trackers.tracker_ids import TrackerIds

ACCEPTED = re.compile(r"[A-Za-z0-9_\-. /]+")


@pytest.mark.parametrize("name", ["loss/l1loss", "validation/val 2/psnr", "train.losses.0.type", "memory/peak_gib"])
def test_usual_names_stay_as_they_are(name: str) -> None:
    assert plain_name(name) == name == shown_name(name)


@pytest.mark.parametrize("name", ["", "<script>", "../x", "/x", "a//b", "a/../b", ".", "x" * 251, "a\nb", "\U0001f600"])
def test_others_are_made_acceptable(name: str) -> None:
    plain = plain_name(name)
    assert ACCEPTED.fullmatch(plain)
    assert len(plain) <= 250
    assert not {"", ".", ".."} & set(plain.split("/"))


@given(st.lists(st.text(max_size=300), unique=True, max_size=8))
def test_no_two_names_become_one(names: list[str]) -> None:
    plain = [plain_name(name) for name in names]
    assert len(set(plain)) == len(names)
    assert all(ACCEPTED.fullmatch(name) and len(name) <= 250 for name in plain)


def test_no_password_leaves_with_the_options() -> None:
    config: dict[str, Any] = {
        "uri": "postgresql://me:secret@host/db",
        "many": ["http://a:b@c", 3],
        "mail": "me@host",
        "none": None,
    }
    config |= {"hub.token": "abc", "plugin.api_key": ["d", "e"], "long.uri": f"http://u:{'p' * 600}@host"}
    assert shown_config(config) == {
        "uri": "postgresql://…@host/db",
        "many": ["http://…@c", 3],
        "mail": "me@host",
        "none": None,
        "hub.token": "…",
        "plugin.api_key": "…",
        "long.uri": "http://…@host",
    }


def test_what_trackers_call_a_run_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "trackers.json"
    ids = TrackerIds(file)
    assert ids.get("wandb") is None
    ids.keep("wandb", "abc")
    ids.keep("mlflow", {"run_id": "def"})
    assert TrackerIds(file).get("wandb") == "abc"
    assert TrackerIds(file).get("mlflow") == {"run_id": "def"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["trackers.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "trackers.json"
    file.write_text(content)
    assert TrackerIds(file).get("wandb") is None
    TrackerIds(file).keep("wandb", "abc")
    assert TrackerIds(file).get("wandb") == "abc"
