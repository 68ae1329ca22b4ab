"""Neither workers nor their number change what the loader draws; they end with it."""

import json
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.integration.commands import run_directory, started, step_records, tiny_options, write_options
from tests.scripted_loader import START, facts, follow, logged, photographs, run
from trainauto.core.errors import InputError
from trainauto.core.plan import Plan
from trainauto.data import DynamicDataLoader, GTImageDataset
from trainauto.data.worker_failures import WorkersFailedError, failure_of


@pytest.fixture
def dataset(write_images: Callable[..., Path]) -> GTImageDataset:
    return photographs(write_images)


def test_plan_changes_are_the_same_for_any_number_of_workers(dataset: GTImageDataset) -> None:
    seen = []
    for workers in (0, 1, 4):
        with DynamicDataLoader(dataset, START, seed=7, num_workers=workers, lookahead=4) as loader:
            batches = run(loader, range(1, 41))
        seen.append(facts(batches))
        if workers == 0:
            reference = batches
        for ours, theirs in zip(batches, reference, strict=True):
            assert torch.equal(ours.tensors["lq"], theirs.tensors["lq"])
            assert torch.equal(ours.tensors["gt"], theirs.tensors["gt"])
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("stop_after", [1, 5, 7, 12, 16, 18, 19, 25])
def test_resume_goes_on_with_the_same_batches(dataset: GTImageDataset, stop_after: int) -> None:
    with DynamicDataLoader(dataset, START, seed=7, num_workers=0, lookahead=4) as loader:
        want = facts(run(loader, range(1, 41)))
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1, lookahead=4) as first:
        before = run(first, range(1, stop_after + 1))
        state = first.state_dict()
    with DynamicDataLoader(dataset, START, seed=7, num_workers=0, lookahead=4) as second:
        second.load_state_dict(state)
        after = run(second, range(stop_after + 1, 41))
    assert facts(before) + facts(after) == want


def test_spawned_workers_and_pickles(dataset: GTImageDataset) -> None:
    """Fault 19: what workers are handed (dataset, collation, their start) has to be pickled where they are spawned."""
    assert pickle.loads(pickle.dumps(dataset)).sample_name(3) == dataset.sample_name(3)
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1, multiprocessing_context="spawn") as loader:
        spawned = facts(list(islice(loader, 3)))
    with DynamicDataLoader(dataset, START, seed=7) as loader:
        assert spawned == facts(list(islice(loader, 3)))


def test_workers_live_through_plan_changes_and_end_with_the_loader(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, START, seed=7, num_workers=2, lookahead=4) as loader:
        batches = iter(loader)
        next(batches)
        before = {child.pid for child in multiprocessing.active_children()}
        loader.update_batch_size(9)
        loader.update_lq_size(64)
        assert [len(batch) for batch in islice(batches, 6)][-1] == 9
        assert {child.pid for child in multiprocessing.active_children()} == before
        assert len(before) == 2
    assert not multiprocessing.active_children()


def test_global_random_stream_is_left_alone(dataset: GTImageDataset) -> None:
    torch.manual_seed(5)
    want = torch.rand(1)
    torch.manual_seed(5)
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1) as loader:
        next(iter(loader))
    assert torch.equal(torch.rand(1), want)


def damaged(file: Path) -> None:
    file.write_bytes(b"no image any more")


def made_a_fifo(file: Path) -> None:
    """Who opens it would wait for ever."""
    file.unlink()
    os.mkfifo(file)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("change", [damaged, made_a_fifo])
@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_file_is_named_without_a_workers_traceback(
    dataset: GTImageDataset, workers: int, change: Callable[[Path], None]
) -> None:
    broken = Path(dataset.sample_name(4))
    change(broken)
    with DynamicDataLoader(dataset, START, seed=7, num_workers=workers) as loader, pytest.raises(InputError) as caught:
        list(islice(loader, 5))
    assert str(broken) in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not multiprocessing.active_children()  # ended with the loader, though the error is still held


@pytest.mark.parametrize("workers", [0, 2])
def test_a_log_is_followed_to_the_bit_and_its_position_too(dataset: GTImageDataset, workers: int) -> None:
    """Replay: nothing asks for plans at the right moment any more, and nothing gives a batch back."""
    shrinks_in_flight = {3: Plan.of(batch_size=9, lq_size=64), 10: Plan.of(batch_size=2, lq_size=32), 27: START}
    with DynamicDataLoader(dataset, START, seed=7, lookahead=4) as loader:
        begun = loader.state_dict()
        batches = run(loader, range(1, 13), shrinks_in_flight)
        within = loader.state_dict()
        batches += run(loader, range(13, 30), shrinks_in_flight)
        state = loader.state_dict()
    assert within["given"] > 0
    for trained, before in ((0, begun), (12, within)):  # from the beginning, and from within a draw
        with DynamicDataLoader(dataset, START, seed=7, num_workers=workers, lookahead=4) as loader:
            loader.load_state_dict(before)
            followed = follow(loader, logged(batches), trained, shrinks_in_flight)
            again = loader.state_dict()
        assert facts(followed) == facts(batches[trained:])
        for ours, theirs in zip(followed, batches[trained:], strict=True):
            assert torch.equal(ours.tensors["lq"], theirs.tensors["lq"])
        assert again == state  # the growth that was asked for after step 27 has not acted yet


def test_a_worker_that_is_killed_is_named_where_samples_are_awaited_and_nowhere_else(dataset: GTImageDataset) -> None:
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1, lookahead=1) as loader:
        batches = iter(loader)
        next(batches)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join(30)  # a step may be computed meanwhile, or a log be written: nothing is raised there
        with pytest.raises(WorkersFailedError, match=r"was killed \(SIGKILL\)\n.*out-of-memory killer.* fewer workers"):
            list(islice(batches, 5))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [(MemoryError(), MemoryError), (KeyError("lq"), KeyError), (json.JSONDecodeError("cut", "{", 1), RuntimeError)],
    ids=str,
)
def test_workers_end_with_the_loader_although_what_they_raised_is_kept(
    dataset: GTImageDataset, monkeypatch: pytest.MonkeyPatch, raised: Exception, arrives: type[Exception]
) -> None:
    """Its frames hold torch's iterator; a process that ends would wait for its workers, and they for a request."""

    def fail(self: GTImageDataset, key: object) -> None:
        raise raised

    monkeypatch.setattr(GTImageDataset, "__getitem__", fail)
    with DynamicDataLoader(dataset, START, seed=7, num_workers=1) as loader:
        with pytest.raises(arrives, match="in DataLoader worker process 0") as kept:
            next(iter(loader))
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children()
    assert str(kept.value)


class Workers:
    """What torch's iterator has of its workers, after one of them has ended."""

    class Process:
        def __init__(self, exitcode: int | None) -> None:
            self.exitcode = exitcode

        def join(self, timeout: float) -> None:
            assert timeout < 2

    def __init__(self, *exitcodes: int | None) -> None:
        self._workers = [self.Process(code) for code in exitcodes]


@pytest.mark.parametrize(
    ("codes", "error", "said"),
    [
        ([None, -signal.SIGBUS], RuntimeError("exited unexpectedly"), "was ended (SIGBUS)\n  Shared memory"),
        ([-signal.SIGSEGV], EOFError(), "was ended (SIGSEGV)\n  A library"),
        ([3], ConnectionResetError(), "ended with exit code 3\n  Code that"),
        ([None], RuntimeError("received 0 items of ancdata"), "Too many open files\n  Allow more open files"),
        ([None], ValueError("of the data set's own"), ""),
    ],
)
def test_what_becomes_of_workers_is_said(codes: list[int | None], error: Exception, said: str) -> None:
    failure = failure_of(Workers(*codes), error)
    assert said in str(failure or "")
    assert (failure is None) == (not said)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for child processes")
def test_a_run_whose_worker_is_killed_saves_and_says_so_in_one_block(
    tmp_path: Path, write_images: Callable[..., Path]
) -> None:
    given = tiny_options(
        write_images("gt", 3, (90, 100)),
        train={"total_iter": 100_000},
        datasets={"train": {"num_worker_per_gpu": 1}},
        val={"val_enabled": False, "metrics": {}},
        logger={"save_checkpoint_freq": 100_000},
    )
    options = write_options(tmp_path / "run.yml", given)
    process = started(options, is_merged=False)
    records = tmp_path / "experiments" / "tiny" / "current" / "training_log.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (records.exists() and len(records.read_text().splitlines()) > 3):
        time.sleep(0.05)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for worker in workers:
        os.kill(int(worker), signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=60)
    assert workers
    assert process.returncode == 1, stderr
    assert "Traceback" not in stdout + stderr
    assert "failed and is left out" not in stdout
    assert stderr.strip().splitlines()[0] == "a worker that loads samples was killed (SIGKILL)"
    run = run_directory(options)
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == step_records(run)[-1]["step"]
