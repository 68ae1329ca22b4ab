"""Short names that tell runs apart."""

import pytest

from trainauto.reporting.runs.names import names_of, same_start


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/e/small/20260101_101010", "/e/large/20260102_101010"], ["small", "large"]),
        (["/e/small/20260101_101010", "/e/small/20260102_101010"], ["20260101_101010", "20260102_101010"]),
        (["/e/a/20260101_101010", "/e/a/20260102_101010", "/e/b/1"], ["20260101_101010", "20260102_101010", "b"]),
        (["/one/e/a/1", "/two/e/a/1"], ["/one/e/a/1", "/two/e/a/1"]),
        (["/e/a/1", "/f/a/2", "/f/b/1", "/f/b/2"], ["a/1", "a/2", "b/1", "b/2"]),
        (["/output/memory/1", "/other/memory/1"], ["output", "other"]),
    ],
    ids=["experiments", "one experiment", "both kinds", "nothing but the path", "experiment and folder", "Trainers"],
)
def test_the_shortest_that_no_other_has(paths: list[str], names: list[str]) -> None:
    assert names_of(paths, 20) == names


@pytest.mark.parametrize(
    ("experiments", "longest", "names"),
    [
        (["net_lr_0.0001_small", "net_lr_0.0005_small"], 12, ["0.0001_small", "0.0005_small"]),
        (["net_lr_0.0001_small", "net_lr_0.0005_small"], 11, ["A", "B"]),
        (["my_experiment", "my_experiment_2"], 12, ["experiment", "experiment_2"]),
        (["exceptional", "experimental"], 11, ["A", "B"]),
    ],
    ids=["the words of all", "still too long", "one begins as the other", "no word of all"],
)
def test_long_names_lose_what_all_begin_with(experiments: list[str], longest: int, names: list[str]) -> None:
    assert names_of([f"/e/{name}/20260101_101010" for name in experiments], longest) == names


def test_letters_end_at_26_runs() -> None:
    names = names_of([f"/e/{'x' * 30}{number:02}/1" for number in range(28)], 10)
    assert names[0] == "A"
    assert names[25:] == ["Z", "run 27", "run 28"]


def test_what_texts_begin_with() -> None:
    assert [same_start(texts) for texts in (["abc", "abd"], ["ab", "abc"], ["", "a"], ["x", "y"])] == [2, 2, 0, 0]
