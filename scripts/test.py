"""All checks of the repository; reports every one and exits with 1 if any fails.

python scripts/test.py                          everything, with coverage and its threshold
python scripts/test.py tests/unit -k policy     arguments go to pytest; no coverage then
python scripts/test.py --here                   with this Python's own packages instead of .venv
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from environment import ROOT, prepare_or_exit
from processes import exit_on_sigterm

LINT_IMPORTS = "from importlinter.cli import lint_imports_command as c; c()"  # it has no -m form
SUMMARY_LINE = re.compile(r"^(?=.*\b(?:\d+ [a-z]+|no tests ran)\b.* in [\d.]+s\b).*$", re.MULTILINE)
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
TAIL_BYTES = 65536
PROBES = "tests.line_probes"  # measures the lines run in the tests' own processes; coverage.py those of children


@dataclass(frozen=True)
class Check:
    """A command that must end with exit code 0."""

    name: str
    command: list[str]


@dataclass(frozen=True)
class Outcome:
    """How a check ended, and how long it took."""

    name: str
    code: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; the last line counts the tests."""
    here, to_pytest = split_arguments(arguments)
    exit_on_sigterm()
    environment = prepare_or_exit(["test", "archs", "metrics"], here=here)
    python, env = str(environment.python), environment.variables
    compile_package(python, env)
    outcomes = [run_check(check, env) for check in quick_checks(python)]
    with tempfile.TemporaryDirectory(prefix="trainauto-test-") as folder:
        measured = {**env, "COVERAGE_FILE": str(Path(folder) / "coverage")}  # a run beside ours keeps its own
        with beside(type_check(python), env) as typing:
            tests, counts = run_tests(python, to_pytest, measured)
            outcomes += [show(*typing.result()), tests]
        if not to_pytest:
            outcomes.append(run_coverage(python, measured))
    print(table(outcomes))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return 0 if all(outcome.code == 0 for outcome in outcomes) else 1


def split_arguments(arguments: Sequence[str] | None) -> tuple[bool, list[str]]:
    """Take out what is ours; everything else is pytest's, in its order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--here", action="store_true", help="use the running Python's environment, replace nothing in it"
    )
    known, rest = parser.parse_known_args(arguments)
    return known.here, rest


def quick_checks(python: str, root: Path = ROOT) -> list[Check]:
    """Checks that take seconds."""
    checks = [
        Check("ruff check", [python, "-m", "ruff", "check"]),
        Check("ruff format", [python, "-m", "ruff", "format", "--check"]),
        Check("import-linter", [python, "-c", LINT_IMPORTS]),
        Check("house rules", [python, "scripts/house_rules.py"]),
    ]
    if (root / "trainauto" / "cli.py").exists():
        checks.append(Check("option docs", [python, "-m", "trainauto", "schema", "--check"]))
    return checks


def type_check(python: str) -> Check:
    """The one slow check beside the tests: 20 s without a cache."""
    return Check("mypy", [python, "-m", "mypy"])


def run_check(check: Check, env: Mapping[str, str]) -> Outcome:
    """Run one check on our terminal."""
    headline(check.name)
    start = time.monotonic()
    ended = subprocess.run(check.command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False)
    return Outcome(check.name, ended.returncode, time.monotonic() - start)


def compile_package(python: str, env: Mapping[str, str]) -> None:
    """Write the package's bytecode, once for all processes of the tests.

    Where Python is told to write none (PYTHONDONTWRITEBYTECODE), each of them would compile what it imports: 0.4 s.
    """
    command = [python, "-m", "compileall", "-qq", "--invalidation-mode", "checked-hash", "trainauto"]
    subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False)


def headline(name: str) -> None:
    """Say what comes next."""
    print(f"\n== {name} ==", flush=True)


@contextmanager
def beside(check: Check, env: Mapping[str, str]) -> Iterator[Future[tuple[Outcome, str]]]:
    """Run a check on the core that the tests leave free; gives its outcome and output when asked."""
    start = time.monotonic()
    process = subprocess.Popen(
        check.command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def collect() -> tuple[Outcome, str]:
        output = process.communicate()[0].decode(errors="replace")
        return Outcome(check.name, process.returncode, time.monotonic() - start), output

    with ThreadPoolExecutor(1) as executor:
        try:
            yield executor.submit(collect)
        finally:
            process.kill()  # only matters where we leave early


def show(outcome: Outcome, output: str) -> Outcome:
    """Print what a check beside the tests had to say."""
    headline(outcome.name)
    print(output.rstrip(), flush=True)
    return outcome


def run_tests(python: str, to_pytest: Sequence[str], env: Mapping[str, str]) -> tuple[Outcome, dict[str, int]]:
    """Run pytest, measuring lines where everything is tested; gives the outcome and the counts of its summary."""
    headline("pytest")
    both_cores = ["-n", "2", "--dist", "worksteal"]
    runner = ["-m", "pytest"] if to_pytest else ["-m", "pytest", "-p", PROBES, "--durations=10", *both_cores]
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    start = time.monotonic()
    command = [python, *runner, *colour, *to_pytest]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            tail = copy_output(process.stdout)
        except BaseException:
            process.kill()
            raise
    return Outcome("pytest", process.returncode, time.monotonic() - start), count_tests(tail)


def copy_output(pipe: BufferedReader) -> str:
    """Show a child's output as it comes and keep the end of it."""
    tail = b""
    while piece := pipe.read1(TAIL_BYTES):  # read1 does not wait for a full line: the dots keep coming
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        tail = (tail + piece)[-TAIL_BYTES:]
    return tail.decode(errors="replace")


def count_tests(output: str) -> dict[str, int]:
    """Read pytest's last summary line; errors count as failures."""
    lines = SUMMARY_LINE.findall(COLOUR.sub("", output))
    counts = {word: int(number) for number, word in COUNT.findall(lines[-1])} if lines else {}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return {"passed": counts.get("passed", 0), "failed": failed, "skipped": counts.get("skipped", 0)}


def run_coverage(python: str, env: Mapping[str, str]) -> Outcome:
    """Bring the data of all processes together and hold them against the threshold of pyproject.toml."""
    combined = run_check(Check("coverage", [python, "-m", "coverage", "combine", "--quiet"]), env)
    report = run_check(Check("coverage report", [python, "-m", "coverage", "report"]), env)
    return Outcome("coverage", combined.code or report.code, combined.seconds + report.seconds)


def table(outcomes: Sequence[Outcome]) -> str:
    """Write one line a check; checks that ran beside each other share their seconds."""
    lines = [f"{'check':<16}{'seconds':>8}  result"]
    for outcome in outcomes:
        result = "ok" if outcome.code == 0 else f"FAILED (exit code {outcome.code})"
        lines.append(f"{outcome.name:<16}{outcome.seconds:>8.1f}  {result}")
    return "\n" + "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
