"""What pip is asked to do, told in one line a phase; torch is chosen first and nothing after it may replace it."""

import importlib.metadata
import importlib.util
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TORCH = "torch==2.13.0"
TESTED_VERSIONS = "tests/versions.txt"  # from the repository's root
TAIL_LINES = 20
ALONE = ("archs", "metrics")
"""Extras installed without dependencies: they ask for torchvision, which may replace torch and is not needed here."""

IMPORT_NAMES = {  # where the import is not the name of the distribution with underscores
    "dists-pytorch": "DISTS_pytorch",
    "import-linter": "importlinter",
    "nvidia-ml-py": "pynvml",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
    "types-pyyaml": "yaml-stubs",
}

ADVICE = (  # first match in pip's output wins; the last one always matches
    (r"No space left|Disk quota", "Free some disk space: CPU torch needs 2 GB, CUDA torch about 8 GB. Then run again."),
    (
        r"NewConnectionError|Max retries|name resolution|unreachable|timed out|ReadTimeout|ProxyError|SSLError",
        "No package index answered: check the network, proxy and `pip config list`, then run again.",
    ),
    (
        r"No matching distribution|Could not find a version",
        "No build for this Python and system: try Python 3.11 to 3.13 (64 bit), or install torch as its site says and "
        "add --here.",
    ),
    (r"externally-managed", "This Python belongs to the system: leave --here out, so that .venv is used."),
    (r"", "Run again; if it fails the same way, remove .venv first, or add --here to use the running Python as it is."),
)


class InstallError(Exception):
    """The environment could not be made; the message is meant for people."""


@contextmanager
def phase(text: str) -> Iterator[None]:
    """Print what is being done, and the seconds it took once it is over."""
    start = time.monotonic()
    print(f"environment: {text} ...", end=" ", flush=True)
    ended = "failed after "
    try:
        yield
        ended = ""
    finally:
        print(f"{ended}{time.monotonic() - start:.1f} s", flush=True)


def run_logged(command: Sequence[str], *, lock_fd: int | None = None) -> None:
    """Run a command quietly.

    Args:
        command: Program and arguments.
        lock_fd: Lock to share with the command: if we are killed, it stays held until the command has ended too.

    Raises:
        InstallError: With the tail of its output and advice, if the command fails.
        KeyboardInterrupt: Ctrl-C ended the command.
    """
    shared = {"pass_fds": (lock_fd,)} if lock_fd is not None and sys.platform != "win32" else {}
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False, **shared,
    )  # fmt: skip
    if ended.returncode == -signal.SIGINT:  # before it has reached us, perhaps
        raise KeyboardInterrupt
    if ended.returncode != 0:
        raise InstallError(explain(command, ended.stdout))


def explain(command: Sequence[str], output: str) -> str:
    """Compose the message of a failed command: what ran, the end of what it said, what to try."""
    tail = "\n".join("    " + line for line in output.strip().splitlines()[-TAIL_LINES:])
    advice = next(text for pattern, text in ADVICE if re.search(pattern, output))
    return f"{subprocess.list2cmdline(command)}\nfailed; the end of its output:\n{tail}\nWhat to try: {advice}"


def pip(python: Path, *arguments: str, lock_fd: int | None = None) -> None:
    """Run pip of an environment without questions and without news about pip itself."""
    run_logged([str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments], lock_fd=lock_fd)


def version_in(python: Path, distribution: str) -> str | None:
    """Ask an environment for the version of a distribution; None where it is not installed."""
    code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    answer = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def write_constraints(python: Path, path: Path, *, tested: Path | None = None) -> None:
    """Pin the torch that is installed, local label included: an index would gladly replace a CPU or vendor build.

    Args:
        python: Interpreter of the environment.
        path: Where the constraints are written.
        tested: A file of further ones, as `tests/versions.txt`, where it is there.
    """
    version = version_in(python, "torch")
    pinned = f"torch=={version}\n" if version else ""
    further = tested.read_text(encoding="utf-8") if tested and tested.exists() else ""
    path.write_text(pinned + further, encoding="utf-8")


def requirements(root: Path, extras: Sequence[str]) -> list[str]:
    """Read from pyproject.toml what the project and the given extras require."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project.get("dependencies", []), *(line for extra in extras for line in requirements_of(root, extra))]


def requirements_of(root: Path, extra: str) -> list[str]:
    """Read from pyproject.toml what an extra requires."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"][extra])


def numbers(version: str) -> tuple[int, ...]:
    """Cut a version down to its leading numbers: 2.11.0a0+nv25 is (2, 11, 0)."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def name_of(requirement: str) -> str:
    """Name of the distribution in a requirement, as pip normalises it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


def is_satisfied(requirement: str) -> bool:
    """Whether the running interpreter already has what a requirement (`name`, `name>=1.2`) asks for.

    A module that another distribution brings counts: opencv-python serves where opencv-python-headless is asked for,
    and installing the second over the first breaks both.
    """
    name = name_of(requirement)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return importlib.util.find_spec(IMPORT_NAMES.get(name, name.replace("-", "_"))) is not None
    least = re.search(r">=\s*([\d.]+)", requirement)
    return least is None or numbers(version) >= numbers(least[1])
