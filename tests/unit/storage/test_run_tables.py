"""Log lines as columns."""

import numpy as np

from trainauto.storage.run_tables import table_of


def test_each_column_has_the_type_of_what_it_holds() -> None:
    table = table_of(
        [
            {"step": 1, "loss": {"l1": 0.5}, "peak": None, "reason": "a", "skipped": [], "early": True},
            {"step": 2, "loss": {"l1": "nan"}, "peak": {"allocated": 7}, "skipped": ["x"], "early": False},
        ]
    )
    assert list(table) == ["step", "loss.l1", "reason", "skipped", "early", "peak.allocated"]
    assert (table["step"].dtype, table["early"].dtype) == (np.int64, np.bool_)
    assert table["loss.l1"][0] == 0.5
    assert np.isnan(table["loss.l1"][1])
    assert np.isnan(table["peak.allocated"][0]), "no reading is no number, and not 0"
    assert table["peak.allocated"][1] == 7
    assert table["reason"].tolist() == ["a", ""]
    assert table["skipped"].tolist() == [[], ["x"]]


def test_no_lines_are_no_columns() -> None:
    assert table_of([]) == {}
