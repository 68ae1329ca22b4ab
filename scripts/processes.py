"""Child processes that get our signals and give us their exit code."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process the way Ctrl-C does, so that the child it waits for is ended too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def run_in_foreground(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a command on our terminal until it ends by itself; every signal we get reaches it exactly once.

    On POSIX the child has a process group of its own: a terminal signals whole groups, and a child that also got the
    signal from us would take one Ctrl-C for two. Windows gives Ctrl-C to all processes of a console.

    Returns:
        Its exit code; 128 + number where a signal ended it.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before the child did

    def forward(number: int, _frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif sys.platform != "win32":
            child.send_signal(number)

    def suspend(_number: int, _frame: FrameType | None) -> None:
        if child is not None:
            os.killpg(child.pid, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)  # we stand here until the shell's `fg` or `bg`
            os.killpg(child.pid, signal.SIGCONT)

    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    handlers = {getattr(signal, name): forward for name in names if hasattr(signal, name)}
    if hasattr(signal, "SIGTSTP"):
        handlers[signal.SIGTSTP] = suspend
    heard = {number: handler for number, handler in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in heard.items()}  # nohup stays nohup
    try:
        group = {} if sys.platform == "win32" else {"process_group": 0}
        child = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, **group)
        for number in early:
            forward(number, None)
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def shell_command(arguments: Sequence[str]) -> str:
    """Write a command the way this system's shell reads it."""
    if sys.platform != "win32":
        import shlex

        return shlex.join(arguments)
    line = subprocess.list2cmdline(arguments)
    return line + "    (in PowerShell put & before it)" if line.startswith('"') else line


def short_path(path: Path) -> str:
    """Write a path relative to where the person stands if it lies below, else in full."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
