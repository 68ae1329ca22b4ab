"""The classifier is learned from the recordings, equals scikit-learn's, and is judged by unseen runs (B25 to B40)."""

import gzip
import sys
from dataclasses import replace
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
import classifier_tables
import classifier_training
import generate_training_data
import train_classifier
from classifier_data import Rows
from data_of_others import GENERATE_RUNS, missing

from tests.acceptance import only_in_acceptance
from trainauto.core.errors import InputError
from trainauto.tasks.text.boosted_trees import from_fixed_point, in_fixed_point
from trainauto.tasks.text.spike_classifier import SHIPPED, SpikeClassifier

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "benchmarks" / "classifier.md"


@pytest.fixture(scope="module")
def rows() -> Rows:
    if reason := missing(GENERATE_RUNS):
        pytest.skip(reason)
    return classifier_tables.read_rows([GENERATE_RUNS])


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
    assert learned.probability(*asked) == pytest.approx(shipped.probability(*asked), abs=0.005)


def test_traced_and_measured_rows_are_not_mixed(kept: Rows) -> None:
    runs = np.where(kept.families == "nmt", np.char.add("traced/", kept.runs), kept.runs)
    with pytest.raises(InputError, match="traced and others measured"):
        classifier_training.learned(replace(kept, runs=runs))


def test_batches_of_unseen_runs(rows: Rows) -> None:
    """B08: a fifth of the runs, judged by what is learned from the others; benchmarks/classifier.md has all of them."""
    part = list(classifier_training.folds(rows.groups, 5, 100))[2]  # a middling one of the five
    classifier = classifier_training.learned(classifier_data.cleaned(rows.where(~part)))
    assert not set(classifier.runs) & set(rows.runs[part].tolist())
    unseen = classifier_data.cleaned(rows.where(part))
    made = classifier_evaluation.outcome(unseen, classifier_evaluation.admitted_by(classifier, unseen, 0.1))
    assert made.share_of_spikes <= 0.1
    assert made.coverage >= 0.75
    assert classifier_evaluation.is_known(classifier, unseen).mean() >= 0.7


def test_the_page_has_what_must_hold() -> None:
    """B08: in the median of the divisions, of whatever is kept together, at most 10 % spikes and 80 % of the others."""
    page = PAGE.read_text(encoding="utf-8")
    tables = page.split("| threshold | spikes among admitted | range | non-spikes admitted |")[1:]
    assert len(tables) == 4
    prose = " ".join((DOCS / "classifier.md").read_text(encoding="utf-8").split())
    for table in tables[:3]:
        for threshold in ("0.025", "0.1"):
            cells = next(line.split("|") for line in table.splitlines() if line.startswith(f"| {threshold} "))
            assert all(f" {cells[number].strip(' %')} %" in prose.replace("(", " ") for number in (2, 4))
    for table in tables:
        cells = next(line.split("|") for line in table.splitlines() if line.startswith("| 0.1 "))
        assert float(cells[2].strip(" %")) <= 10
        assert float(cells[4].strip(" %")) >= 80
        assert float(cells[7].strip(" %")) <= 30
    times = page.partition("| times as many |")[2].splitlines()[4].split("|")
    assert times[1].strip() == "0.1"
    assert float(times[4]) >= 5


class Recorded:
    """Learns nothing, and keeps what it was given to learn from."""

    def __init__(self, classifier: SpikeClassifier) -> None:
        self.classifier, self.given = classifier, list[Rows]()

    def __call__(self, rows: Rows) -> SpikeClassifier:
        self.given.append(rows)
        return self.classifier


def test_what_is_kept_out_is_judged_by_what_has_not_learned_from_it(rows: Rows) -> None:
    learner = Recorded(SpikeClassifier.load(SHIPPED))
    (judged,) = classifier_evaluation.splits(rows, 1, learner)
    parts = list(classifier_training.folds(rows.groups, 5, classifier_evaluation.FIRST_SEED))
    assert len(learner.given) == 5
    for part, given in zip(parts, learner.given, strict=True):
        assert set(given.runs.tolist()) == set(classifier_data.cleaned(rows.where(~part)).runs.tolist())
        assert not set(given.runs.tolist()) & set(rows.runs[part].tolist())
    expected = classifier_evaluation.admitted_by(learner.classifier, rows, 0.1)
    assert (judged.admitted[0.1] == expected).all()
    assert np.array_equal(np.sum(parts, axis=0), np.ones(len(rows)))


def test_it_is_calibrated_on_runs_that_the_trees_had_not_learned_from(
    kept: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B26: scores of rows that were learned from are too sure of themselves."""
    some = kept.where(np.isin(kept.groups, np.unique(kept.groups)[::4]))
    learned_from, real = list[Rows](), classifier_training.grown
    monkeypatch.setattr(classifier_training, "grown", lambda rows: learned_from.append(rows) or real(rows))
    classifier_training.scores_kept_out(some)
    folds = list(classifier_training.folds(some.groups, classifier_training.INNER_FOLDS, 0))
    assert [len(given) for given in learned_from] == [int((~fold).sum()) for fold in folds]
    for given, fold in zip(learned_from, folds, strict=True):
        assert not set(given.groups.tolist()) & set(some.groups[fold].tolist())


def test_outcomes_are_counted_among_the_admitted_and_among_those_without_a_spike(rows: Rows) -> None:
    calm, spikes = np.flatnonzero(~rows.spikes)[:8], np.flatnonzero(rows.spikes)[:4]
    some = rows.where(np.isin(np.arange(len(rows)), [*calm, *spikes]))
    admitted = ~some.spikes
    admitted[np.flatnonzero(admitted)[:2]] = False
    admitted[np.flatnonzero(some.spikes)[:1]] = True
    made = classifier_evaluation.outcome(some, admitted)
    assert (made.rows, made.admitted, made.spikes_admitted, made.spikes) == (12, 7, 1, 4)
    assert made.share_of_spikes == 1 / 7
    assert made.coverage == 6 / 8


def test_the_best_rule_of_constant_tokens_is_the_best(rows: Rows) -> None:
    """Of all factors, the one that admits most: the first that is allowed is not it."""
    relative = rows.batches.samples * rows.batches.longest / (rows.first.samples * rows.first.longest)
    tried = [
        classifier_evaluation.outcome(rows, relative <= factor)
        for factor in np.quantile(relative, np.arange(0, 1, 0.02))
    ]
    for share in (0.05, 0.15):
        best = classifier_evaluation.best_token_rule(rows, share)
        assert best.share_of_spikes <= share
        assert best.admitted >= max(of.admitted for of in tried if of.share_of_spikes <= share)


def test_the_relative_cost_is_judged_with_its_margin(rows: Rows) -> None:
    admitted = [int(classifier_evaluation.relative_cost_admits(rows, each).sum()) for each in (0.01, 0.1)]
    assert admitted[0] < 0.6 * admitted[1]
    form = classifier_evaluation.FORMS[0.025]
    same = rows.where(np.all([x == y for x, y in zip(rows.first, rows.batches, strict=True)], axis=0))
    assert form.margin > 1
    assert not classifier_evaluation.relative_cost_admits(same, 0.025).any()


def test_cleaned_tables_are_of_cleaned_rows(rows: Rows) -> None:
    admitted = {each: np.zeros(len(rows), bool) for each in classifier_evaluation.THRESHOLDS}
    admitted[0.1] = ~rows.spikes & (np.arange(len(rows)) % 2 == 0)
    kept, _ = classifier_data.cleaning(rows)
    judged = classifier_evaluation.KeptOut(admitted, np.ones(len(rows), bool), np.zeros(len(rows)))
    raw, clean = (train_classifier._medians(rows, [judged], 0.1, of) for of in (np.ones(len(rows), bool), kept))
    coverage = (admitted[0.1] & kept).sum() / (~rows.spikes & kept).sum()
    assert f"| {coverage:.1%} |" in clean
    assert raw != clean


@only_in_acceptance
@pytest.mark.timeout(1800)
def test_the_page_says_what_the_data_says(rows: Rows) -> None:
    """docs/benchmarks/classifier.md is what ``--cross-validate`` prints."""
    _, _, measured = PAGE.read_text(encoding="utf-8").partition(train_classifier.BELOW)
    judged = train_classifier.Judged.of(rows, 10)
    assert measured == "\n".join(train_classifier.validation(rows, judged)) + "\n"
    bins = classifier_calibration.foretold_and_seen(rows, judged.apart)
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
    assert said.count("predicted probability of a spike, %") == said.count("share of batches that spiked, %") == 2
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| predicted | rows a division | observed | range |\n")
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[1:]]
    points = [text for text in said if text.startswith("predicted ") and "observed" in text]
    assert list(dict.fromkeys(points)) == [f"predicted {row[1]}, observed {row[3]}" for row in rows]
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
    with pytest.raises(InputError, match="nothing was learned"):
        classifier_training.calibrated(scores, odds < 0, groups)


def test_the_page_says_what_the_recordings_are(rows: Rows) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(train_classifier.said_of_cleaning(rows)) in page
    for family in ("alma", "nllb", "nmt"):
        of = rows.where(rows.families == family)
        assert f"| {family} | {len(set(of.runs.tolist()))} | {len(of)} | {of.spikes.sum()} |" in page


def test_it_prints_what_becomes_of_any_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := missing(GENERATE_RUNS):
        pytest.skip(reason)
    lines = gzip.decompress(GENERATE_RUNS.read_bytes()).decode().splitlines()
    table = tmp_path / "some.csv.gz"
    table.write_bytes(gzip.compress("\n".join([lines[0], *lines[266:700]]).encode()))
    train_classifier.main(["--evaluate", str(table)])
    said = capsys.readouterr().out
    assert "learned from" in said
    assert said.count("| all | ") == 2  # as they are and cleaned
    assert said.count("| alma | ") == 2
    assert "It has learned from 3 of these runs, or from copies" in said
    assert "of another kind" not in said
    assert "| v1/alma_1_256_3000_0.0 | 129 | 15 | " in said


def test_tables_are_generated_learned_from_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B34 to B38, B40: traced here, since there is no GPU."""
    table, out = tmp_path / "traced.csv.gz", tmp_path / "own.npz"
    generate_training_data.main([str(table), "--model", "tiny", "--traced", "--max-lengths", "128", "256"])
    made = classifier_tables.read_rows([table])
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
    train_classifier.main(["--evaluate", str(table)])
    assert "learned from measured runs, and these are traced" in capsys.readouterr().out


def test_copies_of_what_it_learned_from_are_known(rows: Rows) -> None:
    shipped = SpikeClassifier.load(SHIPPED)
    assert len(set(rows.runs.tolist()) - set(shipped.runs)) == 4  # all of whose rows are those of another
    assert train_classifier.runs_known_to(shipped, rows) == 73
    own = replace(rows, runs=np.char.add("own/", rows.runs), groups=np.char.add("own/", rows.groups))
    assert train_classifier.runs_known_to(shipped, own) == 0


def test_rows_of_one_family_or_of_few_runs(kept: Rows) -> None:
    """What can be said of them is; nothing is learned for naught."""
    nmt = kept.where(kept.families == "nmt")
    assert list(train_classifier.of_families(nmt)) == ["All runs are of one family."]
    two = kept.where(np.isin(kept.groups, np.unique(kept.groups)[[0, -1]]))
    assert len(set(two.families.tolist())) == 2
    (said,) = train_classifier.of_families(two)
    assert "too few to learn from" in said
    with pytest.raises(InputError, match="5 runs that share no measurements"):
        classifier_evaluation.splits(two, 1)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--data", "own.csv.gz"], "--data needs --out"),
        (["--cross-validate", "--repeats", "0"], "--repeats must be 1 or more"),
        (["--evaluate", "own.csv.gz", "--out", "o.npz"], "--evaluate does not go with --out"),
        (["--evaluate", "own.csv.gz", "--cross-validate"], "does not go with --evaluate"),
        (["--cross-validate", "--classifier", "o.npz"], "--cross-validate does not go with --classifier"),
        (["--cross-validate", "--write", "--data", "own.csv.gz"], "--write is for the recordings"),
        (["--repeats", "3"], "learning does not go with --repeats"),
        (["--evaluate", "none.csv.gz"], "none.csv.gz is no table of batches"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    """The package's own classifier is never overwritten by what is learned from other rows."""
    before = SHIPPED.stat().st_mtime_ns
    with pytest.raises(SystemExit, match="2"):
        train_classifier.main(arguments)
    assert why in capsys.readouterr().err
    assert SHIPPED.stat().st_mtime_ns == before
