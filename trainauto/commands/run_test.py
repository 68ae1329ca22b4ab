"""What ``python -m trainauto test`` does: metrics of every image, bicubic enlargement beside them."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainauto.builders.data import trains_on_luma
from trainauto.builders.image_model import channels_of
from trainauto.builders.precision import choose_precision
from trainauto.builders.run_weights import named_weights
from trainauto.core.errors import InputError
from trainauto.core.files import read_text, write_text_atomically
from trainauto.core.json_text import from_json, to_json
from trainauto.core.records import ValidationRecord
from trainauto.core.words import counted
from trainauto.inference.evaluate import (
    always_validating,
    measure,
    network_to_measure,
    with_images,
    with_sets_of,
)
from trainauto.inference.load_network import GREY_ALONE, load_network
from trainauto.options.load import LoadedOptions, LoadedTest
from trainauto.reporting.formatting import WIDTH, duration, left_out, metric_text, table
from trainauto.reporting.step_stats import gain_over_baseline

LONGEST_NAME = 24
"""Columns of an image's name; of a longer one the end is shown."""


@dataclass(frozen=True)
class _Subject:
    """What is measured, on what, and where the results go."""

    loaded: LoadedOptions
    network: nn.Module
    device: torch.device
    folder: Path
    words: str
    weights: Path
    step: int = 0

    @cached_property
    def marks(self) -> dict[str, Any]:
        """Return what every line of figures says of the weights it is of."""
        with self.weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"step": self.step, "weights": str(self.weights), "weights_sha256": digest}


def test_network(
    run: Path | None,
    checkpoint: str,
    test: LoadedTest | None,
    device: str | None,
    images: tuple[str, str | None] | None,
) -> int:
    """Measure; return the exit code.

    Args:
        run: folder of a run; ``None`` takes network and weights from the test file.
        checkpoint: of the run.
        test: the test file; ``None`` takes the sets and metrics of the run.
        device: instead of the option file's.
        images: folder of high-quality images, instead of the run's sets, and that of their partners where there is one.

    Raises:
        InputError: something cannot be used.
    """
    subject = _of_run(run, checkpoint, test, device, images) if run is not None else _of_file(test, device)
    print(subject.words)
    if channels_of(subject.network) == 1 and not trains_on_luma(subject.loaded.options):
        print(GREY_ALONE)
    lines: list[str] = []
    for record in measure(subject.loaded, subject.network, subject.device, subject.folder, subject.step):
        lines += _json_lines(record, subject.marks)
        print("", *text_of(record), sep="\n")
    results = subject.folder / "metrics.jsonl"
    subject.folder.mkdir(parents=True, exist_ok=True)
    earlier_lines = _of_other_sets(results, {_set_of(line) for line in lines})
    write_text_atomically(results, "".join(f"{line}\n" for line in [*earlier_lines, *lines]))
    pictures = " and pictures" if subject.loaded.options.val.save_img else ""
    print(f"\nfigures{pictures}: {subject.folder}")
    if earlier_lines:
        before = dict.fromkeys(_set_and_weights_of(line, subject.marks) for line in earlier_lines)
        print(f"{results.name} also keeps what was measured before on {', '.join(before)}")
    return 0


def _set_of(line: str) -> str:
    """Return the set that a line of figures is about."""
    return str(from_json(line)["dataset"])


def _set_and_weights_of(line: str, now: Mapping[str, Any]) -> str:
    """Return the set that a line is about, and whose weights it is of if not of those measured now."""
    found = from_json(line)
    if found["weights_sha256"] == now["weights_sha256"]:
        return str(found["dataset"])
    if found["weights_sha256"] is None:
        return f"{found['dataset']} (of weights that were not noted)"
    step = f", step {found['step']}" if found["step"] else ""
    return f"{found['dataset']} (of other weights{step}: {Path(found['weights']).name})"


def _marked(line: str) -> str:
    """Return a line of an earlier call; where it does not name its weights, mark them as unknown."""
    found = from_json(line)
    return line if "weights_sha256" in found else to_json({"step": None, **found, **dict.fromkeys(_UNKNOWN)})


_UNKNOWN = ("weights", "weights_sha256")


def _of_other_sets(results: Path, measured: Collection[str]) -> list[str]:
    """Return the lines of earlier calls on sets that were not measured now; lines that cannot be read are dropped."""
    try:
        lines = read_text(results, "replace").splitlines()
    except OSError:
        return []
    other_lines = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            other_lines += [_marked(line)] if _set_of(line) not in measured else []
    return other_lines


def _of_run(
    run: Path, checkpoint: str, test: LoadedTest | None, device: str | None, images: tuple[str, str | None] | None
) -> _Subject:
    trained = load_network(run, checkpoint, torch.device("cpu"))
    if test is not None:
        loaded = with_sets_of(trained.loaded, test.as_run)
        folder = Path(test.test.path.results_root) / test.test.name
    else:
        loaded = always_validating(trained.loaded if images is None else with_images(trained.loaded, *images))
        folder = Path("results") / trained.name
    chosen = choose_precision(_on(loaded, device)).device
    words = f"{trained.name}{trained.origin}: {trained.loaded.options.network_g.type} x{trained.scale}"
    network = trained.network.to(chosen)
    return _Subject(loaded, network, chosen, folder, words, trained.weights_file, trained.step or 0)


def _of_file(test: LoadedTest | None, device: str | None) -> _Subject:
    if test is None:
        raise InputError("neither a run nor a test file is given")
    options = test.test
    loaded = test.as_run
    chosen = choose_precision(_on(loaded, device)).device
    network = network_to_measure(loaded, chosen)
    weights = named_weights(str(options.path.pretrain_network_g), "g")
    words = f"{options.name}: {loaded.options.network_g.type} x{options.scale}, {weights}"
    return _Subject(loaded, network, chosen, Path(options.path.results_root) / options.name, words, weights)


def _on(loaded: LoadedOptions, device: str | None) -> LoadedOptions:
    """Return the options with another device, where one is asked for."""
    if device is None:
        return loaded
    return replace(loaded, options=loaded.options.model_copy(update={"device": device}))


def text_of(record: ValidationRecord, width: int = WIDTH) -> list[str]:
    """Return the table of a set: images, then the mean; a table a metric where one of all is too wide."""
    images = counted(len(record.scores), "image")
    tiles = f", tiles of {record.tile_px} px" if record.tile_px else ""
    head = f"{record.dataset}: {images} in {duration(record.seconds)}{tiles}"
    names = list(record.metrics)
    if not names:
        return [head]
    whole = table(_rows(record, names))
    if max(map(len, whole)) > width:
        whole = [line for name in names for line in table(_rows(record, [name]))]
    return [head, *whole, *left_out(record)]


def _rows(record: ValidationRecord, names: Sequence[str]) -> list[list[str]]:
    lines = [
        (_short(score.name), replace(record, metrics=score.metrics, baseline=score.baseline)) for score in record.scores
    ]
    heading = ["image", *(word for name in names for word in (name, "bicubic", "gain"))]
    return [heading, *([label, *_cells(row, names)] for label, row in [*lines, ("mean", record)])]


def _cells(record: ValidationRecord, names: Sequence[str]) -> list[str]:
    cells = []
    for name in names:
        gain = gain_over_baseline(record, name)
        beside = ["-", "-"] if gain is None else [metric_text(record.baseline[name]), metric_text(gain, "+")]
        cells += [metric_text(record.metrics[name]), *beside]
    return cells


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"...{name[3 - LONGEST_NAME :]}"


def _json_lines(record: ValidationRecord, weights: Mapping[str, Any]) -> list[str]:
    """Return a line an image, then one of the means; each says which weights it is of."""
    of_images: list[dict[str, Any]] = [
        {
            "dataset": record.dataset,
            "image": score.name,
            "metrics": dict(score.metrics),
            "bicubic": dict(score.baseline),
        }
        for score in record.scores
    ]
    means: dict[str, Any] = {
        "dataset": record.dataset,
        "images": len(record.scores),
        "mean": dict(record.metrics),
        "bicubic": dict(record.baseline),
        "left_out": dict(record.left_out),
        "seconds": round(record.seconds, 3),
    }
    return [to_json({**line, **weights}) for line in (*of_images, means)]
