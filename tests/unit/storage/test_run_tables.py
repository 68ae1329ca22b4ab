"""Log lines as columns."""

from pathlib import Path

import numpy as np

from trainauto.storage.run_directory import RunDirectory
from trainauto.storage.run_tables import read_records, table_of


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


def test_a_log_that_two_versions_wrote_has_one_column_of_work(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "old")
    run.config.write_text("{}")
    run.records.write_text('{"step": 1, "step_s": 0.5, "pixels": 40}\n{"step": 2, "step_s": 0.5, "units": 50}\n')
    steps = read_records(run.path).steps
    assert steps["units"].tolist() == [40, 50]
    assert "pixels" not in steps
