"""Recorded batches are cleaned and divided by what they are, not by what became of them (B34 to B39)."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
import classifier_data
import classifier_tables
import classifier_training
from classifier_data import Rows
from data_of_others import GENERATE_RUNS, missing


@pytest.fixture(scope="module")
def rows() -> Rows:
    if reason := missing(GENERATE_RUNS):
        pytest.skip(reason)
    return classifier_tables.read_rows([GENERATE_RUNS])


def named(rows: Rows, run: str) -> Rows:
    return rows.where(rows.runs == run)


def measurements(rows: Rows) -> set[tuple[float, ...]]:
    return set(zip(*(field.tolist() for field in (*rows.batches, rows.peaks_mib)), strict=True))


def test_runs_that_share_measurements_are_never_divided(rows: Rows) -> None:
    """B39: texts of which few are cut make much the same batches under two lengths."""
    runs = dict.fromkeys(rows.runs.tolist())
    measured = {run: measurements(named(rows, run)) for run in runs}
    first, second = "v1/nmt_4_256_3000_0.0", "v1/nmt_4_512_5000_0.0"
    assert len(measured[first] & measured[second]) > 0.6 * len(measured[first])
    assert set(named(rows, first).recordings.tolist()) != set(named(rows, second).recordings.tolist())
    for seed in range(3):
        for part in classifier_training.folds(rows.groups, 5, seed):
            inside, outside = set(rows.runs[part].tolist()), set(rows.runs[~part].tolist())
            assert not inside & outside
            learned_from = {run: measured[run] for run in outside}
            for run in inside:
                for other in learned_from.values():
                    shared = len(measured[run] & other) / min(len(measured[run]), len(other))
                    assert shared <= classifier_data.SHARED
    assert len(set(rows.groups.tolist())) == 54
    assert len(set(rows.recordings.tolist())) == 61


def test_inner_folds_keep_them_together_in_any_part(rows: Rows) -> None:
    """What is dropped from a part changes nothing in what belongs together."""
    part = classifier_data.cleaned(rows.where(rows.families == "nmt"))
    group = dict(zip(rows.runs.tolist(), rows.groups.tolist(), strict=True))
    assert part.groups.tolist() == [group[run] for run in part.runs.tolist()]


def test_runs_without_a_folder_are_of_their_family(rows: Rows) -> None:
    bare = np.array([run.replace("/", "") for run in rows.runs.tolist()])
    bare = np.array([run.removeprefix("v1").removeprefix("v2") for run in bare.tolist()])
    renamed = replace(rows, runs=bare)
    assert set(renamed.families.tolist()) == {"alma", "nllb", "nmt"}
    assert renamed.kinds == {"measured"}
    assert len(set(renamed.recordings.tolist())) < len(set(bare.tolist()))
    nmt = renamed.where(renamed.families == "nmt")
    assert len(set(classifier_data.levels(nmt).values())) > 10


@pytest.mark.parametrize("folder", ["v1/", ""])
def test_runs_whose_memory_holds_weights_are_dropped(rows: Rows, folder: str) -> None:
    """B34: every run of ALMA-7B would be seen; of smaller models those where weights are much of the memory."""
    of_alma = rows.where((rows.families == "alma") & np.char.startswith(rows.runs, "v1/"))
    of_alma = replace(of_alma, runs=np.char.add(folder, np.char.replace(of_alma.runs, "v1/", "")))
    for run in dict.fromkeys(of_alma.runs.tolist()):
        more = classifier_data.WEIGHTS_MIB["alma"] * (of_alma.runs == run)
        planted = replace(of_alma, peaks_mib=of_alma.peaks_mib + more, first_peaks_mib=of_alma.first_peaks_mib + more)
        assert set(planted.runs[classifier_data.holds_weights(planted)].tolist()) == {run}
    assert not classifier_data.holds_weights(rows).any()
    assert len(classifier_data.not_below_weights(rows)) == 18
    assert not [run for run in classifier_data.not_below_weights(rows) if "alma" in run]


def test_weights_of_other_families_are_seen_by_their_level(rows: Rows) -> None:
    """B34: what they take is not known."""
    other = rows.where(rows.families == "nmt")
    other = replace(other, runs=np.char.replace(other.runs, "nmt", "other"))
    more = 2000 * (other.runs == "v1/other_1_256_1000_0.0")
    planted = replace(other, peaks_mib=other.peaks_mib + more, first_peaks_mib=other.first_peaks_mib + more)
    assert set(planted.runs[classifier_data.holds_weights(planted)].tolist()) == {"v1/other_1_256_1000_0.0"}
    assert not classifier_data.holds_weights(other).any()


def test_cleaning_drops_what_it_says_and_no_row_for_being_a_spike(rows: Rows) -> None:
    mask, dropped = classifier_data.cleaning(rows)
    assert [reason.rows for reason in dropped] == [0, 725, 73, 335]
    assert mask.sum() == len(rows) - 725 - 73 - 335
    # Another first peak makes other labels, and the same rows are kept.
    differs = classifier_data.cleaning(replace(rows, first_peaks_mib=rows.first_peaks_mib * 1.7))[0] != mask
    first_itself = np.all([x == y for x, y in zip(rows.first, rows.batches, strict=True)], axis=0)
    assert not (differs & ~first_itself).any()
