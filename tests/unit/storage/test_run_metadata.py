"""What a run directory keeps of the options, for a replay to read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.commands import tiny_options
from trainauto.options.load import LoadedOptions, load_options
from trainauto.options.yaml_file import parse_yaml
from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_metadata import as_yaml, changed_options, written_options

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn")), max_size=20)
WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
SCALARS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, width=32) | PRINTABLE
TREES = st.dictionaries(
    PRINTABLE.filter(bool),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PRINTABLE.filter(bool), inner, max_size=4),
        max_leaves=12,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_what_is_written_is_read_back_by_our_own_reader(tree: dict[str, Any]) -> None:
    assert parse_yaml(as_yaml(tree), "given.yml").value == tree


def test_texts_that_look_like_numbers_stay_texts() -> None:
    shared = [1e-4, float("inf")]
    tree = {
        "a": "1e-4",
        "b": 1e-4,
        "c": "on",
        "d": "null",
        "e": "12:30",
        "f": shared,
        "g": shared,
        "h": "x" * 300 + " y",
    }
    text = as_yaml(tree)
    assert parse_yaml(text, "given.yml").value == tree
    assert "*" not in text


def test_the_version_of_a_kept_file_that_held_at_a_step(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for name in ("given.yml", "given_until_step_9.yml", "given_until_step_120.yml", "given_until_step_x.yml"):
        (tmp_path / name).touch()
    held = {step: run.kept_at(run.given, step).name for step in (1, 9, 10, 120, 121)}
    assert held == {
        1: "given_until_step_9.yml",
        9: "given_until_step_9.yml",
        10: "given_until_step_120.yml",
        120: "given_until_step_120.yml",
        121: "given.yml",
    }
    assert run.kept_at(run.origin, 5) == run.origin


def resolved(folder: Path, unwritten: str = "", **arguments: Any) -> LoadedOptions:
    """Return options with an automation; the names in ``unwritten`` are those of arguments that nobody wrote."""
    file = folder / "run.yml"
    file.write_text(as_yaml(tiny_options(folder, training_automations={"Mine": arguments})))
    names = frozenset(f"training_automations.Mine.{name}" for name in unwritten)
    return replace(load_options(file), unwritten=names)


def test_what_nobody_wrote_is_no_option_that_was_changed(tmp_path: Path) -> None:
    """Arguments a, b, c were filled in when the run was started; a run of an earlier version did not say which."""
    run = RunDirectory(tmp_path)
    before = resolved(tmp_path, "abc", a=1, b=2, c=3, d=4)
    run.write_config(before.options.model_dump(mode="json"))
    run.origin.write_text(json.dumps({"unwritten": sorted(before.unwritten)}))
    assert changed_options(run, before) == []
    assert changed_options(run, resolved(tmp_path, "abz", a=10, b=2, z=1, d=4)) == []  # another card, another version
    assert changed_options(run, resolved(tmp_path, "bc", a=10, b=2, c=3, d=4)) == [
        "training_automations.Mine.a: 1 -> 10"
    ]
    assert changed_options(run, resolved(tmp_path, "abcd", a=1, b=2, c=3, d=5)) == [
        "training_automations.Mine.d: 4 -> 5"
    ]
    run.write_config(resolved(tmp_path, d=4).options.model_dump(mode="json"))
    run.origin.unlink()
    assert changed_options(run, before) == []


def test_options_away_from_their_defaults(tmp_path: Path) -> None:
    """D25: what a person would name who is asked what is special about a run."""
    file = tmp_path / "a.yml"
    file.write_text(as_yaml(tiny_options(tmp_path, scale=2, logger={"print_freq": 100}, val={"val_freq": 6})))
    found = {key: (value, default) for key, value, default in written_options(load_options(file))}
    assert found["scale"] == ("2", "4")
    assert found["train.optim_g.lr"] == ("0.001", "")  # an argument of a part: it has none that the options know
    assert found["name"] == ("tiny", "")
    assert "logger.print_freq" not in found  # written, and as it would be anyway
