"""What a run prints on a terminal of 80 columns and 24 rows: all that matters at its start, and no line that is cut."""

import os
import platform
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.commands import TRAIN, environment, run_directory, tiny_options, train, write_options
from tests.integration.ready_processes import begin

fcntl, pty, termios = map(pytest.importorskip, ("fcntl", "pty", "termios"))

pytestmark = [
    pytest.mark.skipif(
        platform.system() != "Linux", reason="a terminal is made as on Linux, where budgets are enforced"
    ),
]

Write = Callable[..., Path]
COLUMNS, ROWS = 80, 24
LONG_LINES = ("DynamicBatchSizeOptimizer: in", "step ", "memory budget of ", "the first batch ")


def on_a_terminal(options: Path, *arguments: str) -> list[str]:
    """Train on a terminal of its own; return what it prints in lines, redrawn ones included, without control codes."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    words = [str(TRAIN), "-opt", options.name, *arguments]
    variables = {name: value for name, value in environment().items() if name != "COLUMNS"} | {"TERM": "xterm"}
    process = begin(words, cwd=options.parent, env=variables, in_new_session=True, terminal=theirs)
    os.close(theirs)
    printed = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # nobody is at the other end any more
            break
        if not read:
            break
        printed += read
    process.communicate()
    assert process.returncode == 0, printed.decode()
    os.close(terminal)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode())
    return [line for line in re.split(r"[\r\n]+", plain) if line]


def controlled(gt: Path) -> dict[str, object]:
    controller = {"adjustment_frequency": 4, "max_lq_size": 48, "max_batch_size": 64}
    return tiny_options(
        gt,
        network_g={"type": "compact", "num_feat": 24, "num_conv": 6},
        datasets={"train": {"lq_size": 24}},
        train={"total_iter": 14},
        memory={"cpu_budget": "64MiB"},
        training_automations={"DynamicBatchSizeOptimizer": controller},
    )


def is_bar(line: str) -> bool:
    return set(line) <= set("━╸╺ ")


def test_a_run_starts_on_one_screen(tmp_path: Path, write_images: Write) -> None:
    file = write_options(tmp_path / "run.yml", controlled(write_images("gt", 3, (200, 220))))
    lines = on_a_terminal(file)
    assert max(map(len, lines)) <= COLUMNS, [line for line in lines if len(line) > COLUMNS]
    start = [
        line
        for line in lines[: next(n for n, line in enumerate(lines) if line.lstrip().startswith("1/14"))]
        if not is_bar(line)
    ]
    assert len(start) <= ROWS, "\n".join(start)
    said = " ".join(" ".join(start).split())
    run = run_directory(file)
    for what in (
        "run tiny, 14 steps",
        "network compact x2, ",
        "data train 3 (the smallest: 100 px of the input), val 1",
        f"directory experiments/tiny/{run.name}",
        "memory 64.0 MiB; peaks are steered to ",
        "bounds lq_size 8 to 48, batch_size 1 to 64 (file, else preset CPU 64MiB)",
        "plan batch_size 4, lq_size 24 (4@24), unless measuring finds a better one",
        "measured before the first batch: batch_size ",
        "the first batch has the plan batch_size ",
        "to stop Ctrl-C finishes the step and saves",
        "to resume the same command with --auto_resume (a checkpoint every 5 steps)",
    ):
        assert what in said, "\n".join(start)
    # Where each bound comes from is looked up in the log, one line each, whatever the terminal.
    log = (run / "training.log").read_text()
    assert "min_lq_size 8 (preset), max_lq_size 48 (file)\n" in log
    assert "for keys that the option file does not set\n" in log
    assert "(preset)" not in said
    assert max(map(len, log.splitlines())) > 120
    # What a screen promises: the same command with --auto_resume resumes it.
    resumed = on_a_terminal(file, "--auto_resume", "--force_yml", "train:total_iter=16")
    assert max(map(len, resumed)) <= COLUMNS, resumed
    assert "resumed     after step 14, " in "\n".join(resumed)


@only_in_acceptance
def test_lines_in_a_pipe_are_wrapped_too(tmp_path: Path, write_images: Write) -> None:
    file = write_options(tmp_path / "run.yml", controlled(write_images("gt", 3, (200, 220))))
    done = train(file)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= COLUMNS
    # A line of a controller that judges a period is one of the longest; the log keeps it whole.
    long = [line[24:] for line in (run_directory(file) / "training.log").read_text().splitlines()]
    long = [line for line in long if len(line) > COLUMNS and line.startswith(LONG_LINES)]
    # What was chosen before the first step had its line then; the log has the reason, too.
    long = [line for line in long if ": before the first batch: " not in line]
    assert long
    printed = " ".join(done.stdout.split())
    assert [line for line in long if line not in printed] == []
