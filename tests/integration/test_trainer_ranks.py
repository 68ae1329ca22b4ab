"""A Trainer on two processes (gloo) against one."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.acceptance import ACCEPTANCE
from tests.integration.ready_processes import Started, begin
from tests.trainers import Masked, Regression, tiny_model, weights

WORKER = Path(__file__).parent / "trainer_ranks.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(WORKER.parents[2]), "OMP_NUM_THREADS": "1"}


def started(folder: Path, batch_size: int, most: int, ranks: int) -> list[Started]:
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    together = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if ranks > 1 else {}
    return [
        begin(
            [str(WORKER), str(folder), str(batch_size), str(most)],
            cwd=folder,
            env={**ENVIRONMENT, **together, **({"RANK": str(rank), "LOCAL_RANK": str(rank)} if together else {})},
            is_merged=False,
        )
        for rank in range(ranks)
    ]


def result_of(folder: Path, processes: list[Started]) -> dict[str, Any]:
    for process in processes:
        _, error = process.communicate(timeout=200)
        assert process.returncode == 0, error
    return json.loads((folder / "result.json").read_text())


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    """Sums over labels, means over samples and over masks; also where the second runs out of memory (SGD, fp64)."""
    runs = {"alone": (4, 0, 1), "tight": (2, 1, 2), **({"two": (2, 0, 2)} if ACCEPTANCE else {})}
    processes = {name: started(tmp_path / name, *settings) for name, settings in runs.items()}
    results = {name: result_of(tmp_path / name, processes[name]) for name in runs}
    for name, result in results.items():
        end = result["stopped"]
        assert end["steps"] == 3, name
        assert end["reason"].startswith("eval/loss has not improved in 2 validations"), name
        assert 0 < end["norm"] <= 1.0, name
        errors = [file.read_text() for file in sorted((tmp_path / name).glob("failed_*.txt"))]
        first = "step 2: ValueError: a plugin that fails\nafter step 2"
        other = "FirstRankError: the first rank ends the run with an error of its own: ValueError: a plugin that fails"
        assert errors == [first] + [f"step 2: {other}"] * (runs[name][2] - 1), name
    for kind, fresh in (("words", tiny_model().double()), ("numbers", Regression()), ("masked", Masked())):
        alone, moved = results["alone"][kind], torch.tensor(results["alone"][kind]["weights"]).double()
        assert float((moved - weights(fresh)).norm()) > 0.01
        for name in runs.keys() - {"alone"}:
            other = results[name][kind]
            torch.testing.assert_close(torch.tensor(other["weights"]).double(), moved, rtol=1e-9, atol=1e-9)
            assert other["rates"] == alone["rates"]
            assert other["samples"] == alone["samples"]
            assert other["losses"] == pytest.approx(alone["losses"], rel=1e-6)
            assert (other["ooms"] > 0) is (name == "tight")
    mine, whole = results["tight"]["words"]["numbers"], results["alone"]["words"]["numbers"]
    assert len(mine) == len(whole) / 2
    assert set(mine) <= set(whole)
