"""Tables of runs in 80 columns."""

import pytest

from trainauto.reporting.runs.comparison_layout import Row, longest_name, tables, told_apart


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["short", "other"], ["short", "other"]),
        (["/data/one/images", "-"], ["/data/one/..", "-"]),
        (["one/data/images", "two/data/images"], ["one/data/i..", "two/data/i.."]),
        (["/data/images/001", "/data/images/002"], ["..images/001", "..images/002"]),
        (["/data/images/1/of/a/set", "/data/images/2/of/a/set"], ["..ges/1/of..", "..ges/2/of.."]),
        (["/data/images/hr", "/data/images/hr_2"], ["../images/hr", "..mages/hr_2"]),
    ],
    ids=["short", "one alone", "other beginnings", "other ends", "other middles", "one begins as the other"],
)
def test_long_values_show_where_they_differ(values: list[str], shown: list[str]) -> None:
    assert told_apart(values, 12) == shown


def test_up_to_three_runs_have_a_column_each_of_the_same_width_in_all_blocks() -> None:
    options, course = tables(["one", "two"], [[Row("lr", ["0.1", "-"])], [Row("training loss", ["0.5", "0.25000"])]])
    assert options == [
        "                 one      two",
        "  lr             0.1        -",
    ]
    assert course[1] == "  training loss  0.5  0.25000"


def test_a_label_that_is_too_long_stands_above_its_values() -> None:
    label = "training_automations.DynamicBatchSizeOptimizer.max_batch_size"
    (lines,) = tables(["one", "two", "three"], [[Row(label, ["8", "16", "32"]), Row("steps", ["1", "2", "3"])]])
    assert lines == [
        "         one  two  three",
        f"  {label}",
        "           8   16     32",
        "  steps    1    2      3",
    ]


def test_more_runs_have_a_line_each_in_as_many_tables_as_it_takes() -> None:
    rows = [Row(f"option_of_some_length_{number}", [str(number * run) for run in range(4)]) for number in range(4)]
    (lines,) = tables(["a", "b", "c", "d"], [rows])
    assert [line.split() for line in lines[:2]] == [[row.label for row in rows[:3]], ["a", "0", "0", "0"]]
    assert lines[5] == ""
    assert [line.split() for line in lines[6:]] == [[rows[3].label], ["a", "0"], ["b", "3"], ["c", "6"], ["d", "9"]]


@pytest.mark.parametrize("runs", range(2, 9))
def test_no_line_is_wider_than_80_columns(runs: int) -> None:
    names = [str(number) * longest_name(runs) for number in range(runs)]
    labels = ["steps", "a.label.of.thirty-four.characters.", "an.option.of.a.long.name" * 5]
    values = [[f"{number}{'/path' * 9}/{number}" for number in range(runs)], ["0.0001"] * runs]
    rows = [Row(label, cells) for label in labels for cells in values]
    lines = [line for block in tables(names, [rows, rows[:1]]) for line in block]
    assert 70 < max(map(len, lines)) <= 80
