"""Starting several ranks as torchrun would, one process each, and what they leave."""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.commands import TRAIN, environment
from tests.integration.ready_processes import Started, begin

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("rank_worker.py")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def rank_environment(rank: int, count: int, port: int) -> dict[str, str]:
    return environment() | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }


def start(
    words: Sequence[str], count: int, folder: Path, each: Sequence[str] = (), *, afresh: bool = False
) -> list[Started]:
    """Start ``python words...`` once for each rank; ``{rank}`` becomes the number, ``{each}`` that rank's own word."""
    port = free_port()
    return [
        begin(
            [part.replace("{rank}", str(rank)).replace("{each}", each[rank] if each else "") for part in words],
            cwd=folder,
            env=rank_environment(rank, count, port),
            afresh=afresh,
        )
        for rank in range(count)
    ]


def finish(processes: Sequence[Started], timeout_s: float = 120) -> list[tuple[int, str]]:
    """Wait for all; return exit codes and what they said. A hang ends all of them and fails the test."""
    try:
        said = [process.communicate(timeout=timeout_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def worker(options: Path, count: int, *arguments: str, timeout_s: float = 120) -> list[dict[str, Any]]:
    """Train on so many ranks through rank_worker.py; return what each rank saw."""
    words = [str(WORKER), options.name, "seen_{rank}.json", *arguments]
    done = finish(start(words, count, options.parent), timeout_s)
    assert [code for code, _ in done] == [0] * count, "\n".join(text for _, text in done)
    return [json.loads((options.parent / f"seen_{rank}.json").read_text()) for rank in range(count)]


def train_ranks(options: Path, count: int, *arguments: str, each: Sequence[str] = ()) -> list[Started]:
    """Start train.py on so many ranks."""
    words = [str(TRAIN), "-opt", options.name, "--launcher", "pytorch", *arguments]
    return start(words, count, options.parent, each)


def torchrun(*arguments: str) -> list[str]:
    """Return the command that starts train.py under torchrun."""
    return [sys.executable, "-m", "torch.distributed.run", *arguments]


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started (Linux)."""
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_hard(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
