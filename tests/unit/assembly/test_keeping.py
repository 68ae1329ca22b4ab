"""What a run directory keeps of the options, for a replay to read."""

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainauto.assembly.keeping import as_yaml
from trainauto.options.yaml_file import parse_yaml
from trainauto.reporting.run_directory import RunDirectory

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn")), max_size=20)
WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
SCALARS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | PRINTABLE
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
