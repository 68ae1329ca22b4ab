"""The command line: which commands there are, errors as people need them, exit codes."""

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence

from trainauto import __version__
from trainauto.commands import (
    convert,
    degrade,
    doctor,
    export,
    init,
    plan,
    prepare,
    replay,
    report,
    schema,
    test,
    train,
    upscale,
    validate,
)
from trainauto.commands import list as list_known
from trainauto.core.errors import InputError, TrainautoError
from trainauto.core.system_errors import FULL, reason_of, remedy
from trainauto.core.words import visible, visible_lines

# Nothing here may import torch at the top: options are checked, and the environment set, before it is loaded.

OTHER_RANKS_WAIT_S = 10.0
"""How long ranks wait that print no error of the option file: torchrun ends them once the first rank has printed it."""

READER_LEFT = 141
"""128 + SIGPIPE."""

COMMANDS = (
    init,
    convert,
    train,
    validate,
    prepare,
    degrade,
    doctor,
    plan,
    report,
    replay,
    test,
    upscale,
    export,
    list_known,
    schema,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    0 is success, 1 a failed run, 2 input that cannot be used, 130, 143 and 129 a run stopped by SIGINT, SIGTERM and
    SIGHUP.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal has no letters for ends nothing
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.execute(parsed)
        sys.stdout.flush()
    except BrokenPipeError as error:
        return _nobody_reads(error)
    except TrainautoError as error:
        if isinstance(error, InputError) and error.is_of_every_rank and os.environ.get("LOCAL_RANK", "0") != "0":
            time.sleep(OTHER_RANKS_WAIT_S)  # torchrun would end the rank that prints it when this one ended first
            return error.exit_code
        print(f"\n{visible_lines(str(error))}\n", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if not (what_to_do := remedy(error.errno)):
            raise
        where = visible(str(error.filename)) if error.filename else ""
        if error.errno in FULL:
            what = f"no space left on the disk for {where}" if where else "no space left on the disk"
        else:
            what = f"{where}: {reason_of(error.errno)}" if where else reason_of(error.errno)
        then = "resume with --auto_resume" if hasattr(parsed, "auto_resume") else "try again"
        print(f"\n{what}\n  {what_to_do}, then {then}.\n", file=sys.stderr)
        return 1
    except (RuntimeError, MemoryError) as error:
        from trainauto.engine.run_errors import failure_in_words

        if (failure := failure_in_words(error)) is None:
            raise
        what, advice = failure
        print(f"\n{visible_lines(what)}\n  {advice}\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        print("\nstopped immediately; unsaved progress is lost", file=sys.stderr)
        return int(getattr(error, "exit_code", 130))
    return code


def _nobody_reads(error: BrokenPipeError) -> int:
    """End quietly where the reader has closed the output (``| head``), with the exit code that shells know for it.

    Raises:
        BrokenPipeError: it was another pipe that broke, which is an error of ours.
    """
    try:
        print(flush=True)  # nothing may be left of what failed: try again
    except BrokenPipeError:
        # Python flushes once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    raise error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainauto", description="Training that fills the GPU by itself.")
    parser.add_argument("--version", action="version", version=f"trainauto {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
