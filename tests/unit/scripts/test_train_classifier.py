"""The classifier is learned from the recordings, equals scikit-learn's, and is judged by unseen runs (B25 to B40)."""

import gzip
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
sys.path.append(str(Path(__file__).parents[3] / "scripts" / "bench"))
import classifier_calibration
import classifier_calibrations
import classifier_data
import classifier_evaluation
import classifier_training
import generate_training_data
import train_classifier
from classifier_data import Rows

from tests.acceptance import only_in_acceptance
from trainauto.tasks.text.boosted_trees import from_fixed_point, in_fixed_point
from trainauto.tasks.text.spike_classifier import SHIPPED, SpikeClassifier

PAGE = Path(__file__).parents[3] / "docs" / "classifier.md"


@pytest.fixture(scope="module")
def rows() -> Rows:
    return classifier_data.read_rows([train_classifier.DATA])


@pytest.fixture(scope="module")
def kept(rows: Rows) -> Rows:
    return classifier_data.cleaned(rows)


def test_the_trees_are_those_of_scikit_learn(kept: Rows) -> None:
    """B25: the same probabilities without it."""
    model = classifier_training.grown(kept)
    features = kept.features()
    scores = from_fixed_point(classifier_training.as_arrays(model).scores(features))
    assert 1 / (1 + np.exp(-scores)) == pytest.approx(model.predict_proba(features.T)[:, 1], abs=1e-12)


def test_the_shipped_one_is_learned_from_the_recordings(kept: Rows) -> None:
    """B40: its trees and its limits come again, as far as scikit-learn's versions agree."""
    shipped, features = SpikeClassifier.load(SHIPPED), kept.features()
    assert shipped.runs == tuple(sorted(set(kept.runs.tolist())))
    grown = classifier_training.as_arrays(classifier_training.grown(kept))
    assert from_fixed_point(shipped.trees.scores(features)) == pytest.approx(
        from_fixed_point(grown.scores(features)), abs=0.1
    )
    assert shipped.range.most_growth == pytest.approx(classifier_training.training_range(kept).most_growth)


@only_in_acceptance
def test_so_is_its_calibration(kept: Rows) -> None:
    learned, shipped = classifier_training.learned(kept), SpikeClassifier.load(SHIPPED)
    asked = kept.first, kept.batches, kept.max_input_length
    assert learned.probability(*asked) == pytest.approx(shipped.probability(*asked), abs=0.02)


def test_cleaning_drops_what_it_says_and_looks_at_no_label(rows: Rows) -> None:
    mask, dropped = classifier_data.cleaning(rows)
    assert [reason.rows for reason in dropped] == [0, 725, 73, 335]
    assert mask.sum() == len(rows) - 725 - 73 - 335
    # Another first peak makes other labels, and the same rows are kept.
    scaled = Rows(
        rows.runs, rows.first, rows.batches, rows.max_input_length, rows.peaks_mib * 1.0, rows.first_peaks_mib * 1.7
    )
    differs = classifier_data.cleaning(scaled)[0] != mask
    first_itself = np.all([x == y for x, y in zip(rows.first, rows.batches, strict=True)], axis=0)
    assert not (differs & ~first_itself).any()


def test_runs_whose_memory_holds_weights_are_dropped(rows: Rows) -> None:
    """B34: as ALMA-7B's weights in float16 would be."""
    small = rows.runs == "v1/alma_2_128_3000_0.0"
    peaks = rows.peaks_mib + 12_900 * small
    mixed = Rows(
        rows.runs, rows.first, rows.batches, rows.max_input_length, peaks, rows.first_peaks_mib + 12_900 * small
    )
    assert set(mixed.runs[classifier_data.holds_weights(mixed)].tolist()) == {"v1/alma_2_128_3000_0.0"}
    assert not classifier_data.holds_weights(rows).any()


def test_traced_and_measured_rows_are_not_mixed(kept: Rows) -> None:
    runs = np.where(kept.families == "nmt", np.char.add("traced/", kept.runs), kept.runs)
    mixed = Rows(runs, kept.first, kept.batches, kept.max_input_length, kept.peaks_mib, kept.first_peaks_mib)
    with pytest.raises(ValueError, match="traced and others measured"):
        classifier_training.learned(mixed)


def test_batches_of_unseen_runs(rows: Rows) -> None:
    """B08: a fifth of the runs, judged by what is learned from the others; docs/classifier.md has all of them."""
    part = next(classifier_training.folds(rows.groups, 5, 100))
    classifier = classifier_training.learned(classifier_data.cleaned(rows.where(~part)))
    assert not set(classifier.runs) & set(rows.runs[part].tolist())
    unseen = classifier_data.cleaned(rows.where(part))
    made = classifier_evaluation.outcome(unseen, classifier_evaluation.admitted_by(classifier, unseen, 0.1))
    assert made.share_of_spikes <= 0.1
    assert made.coverage >= 0.6
    assert classifier_evaluation.is_known(classifier, unseen).mean() >= 0.7


@only_in_acceptance
@pytest.mark.timeout(1800)
def test_the_page_says_what_the_data_says(rows: Rows) -> None:
    """docs/classifier.md is what ``--cross-validate`` prints."""
    page = PAGE.read_text(encoding="utf-8")
    judged = classifier_evaluation.splits(rows, 10)
    for line in train_classifier.validation(rows, judged):
        assert line.strip() in page
    bins = classifier_calibration.foretold_and_seen(rows, judged)
    assert train_classifier.PLOT.read_text(encoding="utf-8") == classifier_calibration.calibration_plot(bins)


@only_in_acceptance
@pytest.mark.timeout(1800)
def test_other_ways_to_calibrate_are_as_the_page_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table in classifier_calibrations.tables(10):
        assert "\n".join(table) in page


def test_the_plot_shows_the_page_s_table() -> None:
    plot = ElementTree.fromstring(train_classifier.PLOT.read_text(encoding="utf-8"))
    said = [text for text in plot.itertext() if text.strip()]
    assert said.count("foretold probability of a spike, %") == said.count("share of batches that spiked, %") == 2
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| foretold | rows a division | seen | range |\n")
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[1:]]
    points = [text for text in said if text.startswith("foretold ") and "seen" in text]
    assert list(dict.fromkeys(points)) == [f"foretold {row[1]}, seen {row[3]}" for row in rows]
    assert len(rows) >= 8


def test_what_was_measured_is_replaced_and_the_rest_of_the_page_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, plot = tmp_path / "page.md", tmp_path / "plot.svg"
    page.write_text("Model.\n\n---\n\nold figures\n", encoding="utf-8")
    monkeypatch.setattr(train_classifier, "PAGE", page)
    monkeypatch.setattr(train_classifier, "PLOT", plot)
    train_classifier.write_page("new figures", "<svg/>")
    assert page.read_text(encoding="utf-8") == "Model.\n\n---\n\nnew figures\n"
    assert plot.read_text(encoding="utf-8") == "<svg/>"


def test_probabilities_are_what_runs_kept_out_had() -> None:
    """B26, B41: drawn to the trees' own probabilities, each run counting as one, none below what few runs say."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(5000), generator.integers(1, 10, 5000)).astype(str)
    odds = generator.normal(0, 3, len(groups))
    spikes = generator.random(len(groups)) < 1 / (1 + np.exp(-(0.5 + 0.6 * odds)))
    scores = in_fixed_point(odds)
    calibration = classifier_training.calibrated(scores, spikes, groups)
    foretold = calibration.probability(scores)
    assert foretold == pytest.approx(1 / (1 + np.exp(-(0.5 + 0.6 * odds))), abs=0.03)  # not the scores as they are
    assert (np.diff(calibration.knots) > 0).all()
    for threshold in (0.01, 0.025, 0.1):
        assert ((scores <= calibration.greatest_score(threshold)) == (foretold <= threshold)).all()
    few = np.isin(groups, np.arange(30).astype(str))
    drawn = classifier_training.calibrated(scores[few], spikes[few], groups[few])
    assert drawn.probabilities[0] == pytest.approx(1 / 31, abs=0.001)
    assert drawn.greatest_score(0.03) < scores.min()
    middle = np.abs(odds) < 1
    assert drawn.probability(scores)[middle] == pytest.approx(1 / (1 + np.exp(-odds[middle])), abs=0.1)
    with pytest.raises(ValueError, match="nothing was learned"):
        classifier_training.calibrated(scores, odds < 0, groups)


def test_the_page_says_what_the_recordings_are(rows: Rows) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for line in train_classifier.said_of_cleaning(rows):
        assert line in page
    for family in ("alma", "nllb", "nmt"):
        of = rows.where(rows.families == family)
        assert f"| {family} | {len(set(of.runs.tolist()))} | {len(of)} | {of.spikes.sum()} |" in page


def test_it_prints_what_becomes_of_any_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = gzip.decompress(train_classifier.DATA.read_bytes()).decode().splitlines()
    table = tmp_path / "some.csv.gz"
    table.write_bytes(gzip.compress("\n".join([lines[0], *lines[266:700]]).encode()))
    train_classifier.main(["--evaluate", str(table)])
    said = capsys.readouterr().out
    assert "learned from" in said
    assert said.count("| all | ") == 6  # as they are and cleaned, at three thresholds
    assert said.count("| alma | ") == 6
    assert "| v1/alma_1_256_3000_0.0 | 129 | 15 | 0.1 | " in said


def test_tables_are_generated_learned_from_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B34 to B38, B40: traced here, since there is no GPU."""
    table, out = tmp_path / "traced.csv.gz", tmp_path / "own.npz"
    generate_training_data.main([str(table), "--model", "tiny", "--traced", "--max-lengths", "128", "256"])
    made = classifier_data.read_rows([table])
    assert made.kinds == {"traced"}
    assert set(made.first.samples.tolist()) == {1, 4, 8, 64, 128, 256, 512}
    assert set(made.max_input_length.tolist()) == {128, 256}
    assert 0.2 < made.spikes.mean() < 0.9
    again = table.read_bytes()
    train_classifier.main(["--data", str(table), "--out", str(out)])
    learned = SpikeClassifier.load(out)
    admitted = learned.admits(made.first, made.batches, made.max_input_length, 0.2)
    assert classifier_evaluation.outcome(made, admitted).coverage > 0.3
    assert table.read_bytes() == again
    capsys.readouterr()
