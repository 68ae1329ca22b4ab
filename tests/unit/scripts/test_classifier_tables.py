"""Tables of recorded batches are read as they are, or refused with file, row and column (B34 to B40)."""

import gzip
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
import classifier_tables

from trainauto.core.errors import InputError

ROW = ["v1/nmt_2_64", "a name", 64, 10.5, 20, 4, 2, 12, 11.5, 2, 24, 0, 12]
SECOND = ["v1/nmt_2_64", "a name", 64, 9.5, 22, 2, 2, 12, 11.5, 2, 24, 0, 12]


def changed(**cells: object) -> list[object]:
    return [cells.get(name, cell) for name, cell in zip(classifier_tables.COLUMNS, SECOND, strict=True)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """B38."""
    table = tmp_path / "t.csv.gz"
    classifier_tables.write_rows(table, [ROW, SECOND])
    rows = classifier_tables.read_rows([table])
    assert rows.runs.tolist() == ["v1/nmt_2_64"] * 2
    assert rows.peaks_mib.tolist() == [10.5, 9.5]
    assert rows.first_peaks_mib.tolist() == [11.5, 11.5]
    assert [field.tolist() for field in rows.batches] == [[2, 2], [12, 12], [20, 22]]
    assert [field.tolist() for field in rows.first] == [[2, 2], [12, 12], [24, 24]]
    assert rows.spikes.tolist() == [True, False]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (
            {"gpu_memory_mib": "nan"},
            "row 2, column gpu_memory_mib: a finite number of MiB above 0 is needed",
        ),
        ({"gpu_memory_mib": 0}, "column gpu_memory_mib"),
        ({"gpu_memory_mib": -3.5}, "column gpu_memory_mib"),
        ({"first_gpu_memory_peak_mib": "inf"}, "column first_gpu_memory_peak_mib"),
        (
            {"inference_batch_size": ""},
            "row 2, column inference_batch_size: a whole number from 1 on is needed",
        ),
        ({"max_input_length": 0}, "column max_input_length"),
        ({"top_token_size": 0, "total_tokens": 0, "total_paddings": 0}, "column top_token_size"),
        ({"total_tokens": -1}, "column total_tokens"),
        ({"total_tokens": 2**40}, "column total_tokens"),
        ({"total_tokens": 21}, "total_tokens and total_paddings are not inference_batch_size x top_token_size"),
        ({"first_total_paddings": 1}, "first_total_paddings are not first_batch_size x first_top_token_size"),
        ({"run": ""}, "column run"),
        ({"first_gpu_memory_peak_mib": 12.5}, "run v1/nmt_2_64 has several first batches"),
    ],
)
def test_cells_that_cannot_be_are_refused(tmp_path: Path, wrong: dict[str, object], why: str) -> None:
    """B26, B38: a NaN is never a spike, and a peak of 0 never one of a batch."""
    table = tmp_path / "t.csv.gz"
    classifier_tables.write_rows(table, [ROW, changed(**wrong)])
    with pytest.raises(InputError, match=re.escape(why)):
        classifier_tables.read_rows([table])


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    header, row = ",".join(classifier_tables.COLUMNS), ",".join(map(str, ROW))
    contents = {
        "plain": (f"{header}\n{row}\n".encode(), "no table of batches in .csv.gz"),
        "cut": (gzip.compress(f"{header}\n{row}\n".encode())[:40], "no table of batches"),
        "short": (gzip.compress(f"{header}\n{row}\nv1/nmt_2_64,a name\n".encode()), "row 2, column max_input_length"),
        "long": (gzip.compress(f"{header}\n{row},7\n".encode()), "row 1: more cells than columns"),
        "header": (gzip.compress(f"{header}\n".encode()), "no rows"),
        "column": (gzip.compress(b"run,model_name\nv1/nmt_2_64,a name\n"), "no column max_input_length, gpu_memory"),
        "nothing": (gzip.compress(b""), "no column run"),
    }
    for name, (content, why) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.*{why}"):
            classifier_tables.read_rows([tmp_path / name])
    with pytest.raises(InputError, match="no table of batches"):
        classifier_tables.read_rows([tmp_path / "none"])
