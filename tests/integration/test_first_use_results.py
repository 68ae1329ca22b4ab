"""Figures of ``test`` say which weights they are of: those of another checkpoint do not pass for those of now."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.commands import command
from tests.made_runs import make_run, options_of

Write = Callable[..., Path]
METRICS = {"psnr": {"type": "calculate_psnr", "crop_border": 2}}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results" / "made" / "metrics.jsonl").read_text().splitlines()]


def measured(folder: Path, *arguments: object) -> str:
    done = command("test", *map(str, arguments), cwd=folder)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_figures_of_other_weights_are_marked(tmp_path: Path, write_images: Write) -> None:
    write_images("gt", 2, (48, 60))
    elsewhere = write_images("elsewhere", 1, (40, 44))
    network = {"type": "compact", "num_feat": 4, "num_conv": 1}
    options = options_of(network, val={"metrics": METRICS, "save_img": False}, device="cpu", num_threads=1)
    run = make_run(tmp_path, options, steps=(10, 20), best=10)
    weights = {step: run.checkpoints / f"step_{step:08d}" / "net_g_ema.safetensors" for step in (10, 20)}

    measured(tmp_path, run.path)
    of_ten = lines_of(tmp_path)
    assert {(line["step"], Path(line["weights"])) for line in of_ten} == {(10, weights[10])}
    assert len(of_ten) == 3

    # Another set with the same weights: nothing to be told apart.
    said = measured(tmp_path, run.path, elsewhere)
    assert "also keeps what was measured before on val" in said
    assert "other weights" not in said

    # The same set with others: its figures go, those of the other set are marked.
    said = measured(tmp_path, run.path, "--checkpoint", "latest")
    assert "before on elsewhere (of other weights, step 10: net_g_ema.safetensors)" in said
    by_set = {name: [line for line in lines_of(tmp_path) if line["dataset"] == name] for name in ("val", "elsewhere")}
    assert {line["step"] for line in by_set["val"]} == {20}
    assert {line["step"] for line in by_set["elsewhere"]} == {10}
    assert len({line["weights_sha256"] for line in lines_of(tmp_path)}) == 2
    assert by_set["val"][-1]["mean"] != of_ten[-1]["mean"]


def test_weights_that_were_replaced_under_their_name_are_others(tmp_path: Path, write_images: Write) -> None:
    write_images("gt", 1, (48, 60))
    elsewhere = write_images("elsewhere", 1, (40, 44))
    network = {"type": "compact", "num_feat": 4, "num_conv": 1}
    options = options_of(network, val={"metrics": METRICS, "save_img": False}, device="cpu", num_threads=1)
    run = make_run(tmp_path, options, steps=(10,), averages=False)
    measured(tmp_path, run.path)
    file = tmp_path / "results" / "made" / "metrics.jsonl"
    old = [
        {name: value for name, value in json.loads(line).items() if not name.startswith("weights")}
        for line in file.read_text().splitlines()
    ]
    weights = run.checkpoints / "step_00000010" / "net_g.safetensors"
    other = make_run(tmp_path / "other", options, steps=(20,), averages=False)
    weights.write_bytes((other.checkpoints / "step_00000020" / "net_g.safetensors").read_bytes())
    assert "before on val (of other weights, step 10: net_g.safetensors)" in measured(tmp_path, run.path, elsewhere)
    # What an earlier version has written says nothing of weights.
    file.write_text("".join(json.dumps(line) + "\n" for line in old))
    assert "before on val (of weights that were not noted)" in measured(tmp_path, run.path, elsewhere)
    of_before = [line for line in lines_of(tmp_path) if line["dataset"] == "val"]
    assert len(of_before) == 2
    assert all(line["weights"] is None for line in of_before)
