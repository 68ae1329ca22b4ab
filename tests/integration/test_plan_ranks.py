"""``plan --ranks``: what one of several ranks takes, whose weights are whole or spread over them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import command, merged, write_options
from tests.integration.text_runs import text_options, write_texts
from trainauto.options.load import load_options

WIDE = {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 64}


def planned(folder: Path, options: dict[str, Any], *words: str) -> dict[str, Any]:
    file = write_options(folder / "run.yml", options)
    done = command("plan", "-opt", file.name, "--card", "T4", "--json", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_weights_are_spread_or_gradients_summed(tmp_path: Path) -> None:
    whole = text_options(write_texts(tmp_path))
    whole["model"]["config"] = WIDE
    spread = merged(whole, {"distributed": {"fully_shard": True}})
    alone, eight, sharded = (
        planned(tmp_path, options, *words)
        for options, words in ((whole, ()), (whole, ("--ranks", "8")), (spread, ("--ranks", "8")))
    )
    weights_bytes = 4 * (4 * 12 * 256**2 + 300 * 256)
    held = [min(traced["live_bytes"] for traced in answer["traced"]) for answer in (alone, eight, sharded)]
    assert held[1] - held[0] == pytest.approx(weights_bytes, rel=0.05)  # the buffer of the sum
    assert held[2] < held[0] - 1.5 * weights_bytes
    assert "Of 8 ranks" in eight["notes"][0]
    assert "each holds all weights" in eight["notes"][0]
    assert "spread over them" in sharded["notes"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ranks", "0"), "--ranks 0: at least 1"),
        (("--ranks", "2", "--measure"), "--measure is of one process, and --ranks 2 of several"),
        (("--ranks", "2", "--recipes"), "--recipes is of one process"),
    ],
)
def test_what_is_of_one_process_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    file = write_options(tmp_path / "run.yml", text_options(write_texts(tmp_path)))
    done = command("plan", "-opt", file.name, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_what_was_measured_on_other_ranks_is_another_step(tmp_path: Path) -> None:
    """How many hold the weights decides what each takes; where all hold all, two are as any other number."""
    base = text_options(write_texts(tmp_path))
    for key, differs in (("fully_shard", True), ("ddp_overlap", False)):
        options = load_options(
            write_options(tmp_path / f"{key}.yml", merged(base, {"distributed": {key: True}}))
        ).options
        assert (options.of_steps(2) != options.of_steps(4)) is differs
