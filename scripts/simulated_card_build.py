"""What a simulated card is made of: its library, compiled from tests/simulated_card, and a CUDA build of torch."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from environment import ROOT
from install import InstallError, phase, pip, run_logged
from locking import locked

TORCH = "2.14.1"
"""Whose wheel on the package indexes is a CUDA build."""
CACHE = "SIMULATED_CARD_CACHE"
"""Where people name another folder for builds."""
SOURCES = ROOT / "tests" / "simulated_card"
NEEDED_BYTES = {False: 4 << 30, True: 9 << 30}
"""Free space that the environment takes while it is made: thin, and full."""

PREFIXES = "cuda[A-Z] __cuda[A-Z] cu[A-Z] cublas cudnn cusparse cusolver cufft cupti curand nccl nvrtc nvshmem"
TAKEN = re.compile("|".join(PREFIXES.split()))
"""Matches the names of functions of NVIDIA's libraries."""
NVIDIA = re.compile(r"lib(cu|nv)[\w]*\.so\.\d+$|libnccl\.so\.\d+$")
OPENED = re.compile(r"libcuda\.so\.1|libnvidia-ml\.so\.1|libnvrtc\.so\.\d+")
"""Libraries that programs open by name, and look functions up in."""
STUB = '__attribute__((visibility("default"))) int {0}(void) {{ simulated_card_note("{0}"); return 0; }}'


class NotHereError(InstallError):
    """This machine lacks what the card is made of; the message says what."""


@dataclass(frozen=True)
class Build:
    """What a process on the card starts with.

    Attributes:
        python: interpreter of the environment with the CUDA build of torch.
        library: what stands in for CUDA; its folder has libraries under NVIDIA's names.
        beside: packages of the project's own environment, which the interpreter finds after its own.
    """

    python: Path
    library: Path
    beside: Path


def cache_folder() -> Path:
    """Return where builds are kept, outside of the repository: they serve every checkout."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen)
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "trainauto" / "simulated_card"


def missing_tools() -> str:
    """Say what this machine lacks to build the card; empty where nothing is missing."""
    if sys.platform != "linux":
        return "it needs Linux: libraries are replaced by LD_PRELOAD"
    if lacking := [tool for tool in ("g++", "gcc", "nm", "objdump") if shutil.which(tool) is None]:
        return (
            f"the card is compiled, and this machine lacks {', '.join(lacking)}.\n"
            "  What to try: apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), then run again."
        )
    return ""


def build(python: Path, torch: str = TORCH, *, full: bool = False) -> Build:
    """Make what is missing; a second call takes no time.

    Args:
        python: interpreter of the project's environment.
        torch: version to install.
        full: install NVIDIA's libraries too; without them empty ones of their names are loaded.

    Raises:
        NotHereError: It cannot be made here.
        InstallError: It does not compile.
    """
    if lacking := missing_tools():
        raise NotHereError(lacking)
    where = "import sys, sysconfig; print('py%d.%d' % sys.version_info[:2], sysconfig.get_path('purelib'))"
    version, beside = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.split()
    folder = cache_folder() / f"torch-{torch}-{'full' if full else 'thin'}-{version}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotHereError(f"{error}.\n  What to try: name another folder in {CACHE}.") from None
    with locked(folder.parent / f"{folder.name}.lock", "another process that builds the simulated card") as lock_fd:
        if not (folder / "ready").exists():
            make_environment(python, folder, torch, full=full, lock_fd=lock_fd)
        site = next(folder.glob("lib/python*/site-packages"))
        library = make_library(site, folder.parent)
    return Build(folder / "bin" / "python", library, Path(beside))


def make_environment(python: Path, folder: Path, torch: str, *, full: bool, lock_fd: int) -> None:
    """Install torch into an environment of its own; everything else is found in the project's, beside it."""
    if (free := shutil.disk_usage(folder).free) < NEEDED_BYTES[full]:
        raise NotHereError(
            f"{NEEDED_BYTES[full] >> 30} GiB of disk are needed in {folder.parent}, {free / 2**30:.1f} GiB are free.\n"
            f"  What to try: free some, or name another folder in {CACHE}."
        )
    with phase(f"a simulated card's torch=={torch}, {'full' if full else 'without NVIDIA libraries'}"):
        run_logged([str(python), "-m", "venv", "--clear", "--without-pip", str(folder)], lock_fd=lock_fd)
        inside = folder / "bin" / "python"

        def install(*what: str) -> None:
            try:
                pip(python, "--python", str(inside), "install", *what, lock_fd=lock_fd)
            except InstallError as error:
                raise NotHereError(str(error)) from None

        install(*([] if full else ["--no-deps"]), f"torch=={torch}")
        site = next(folder.glob("lib/python*/site-packages"))
        cuda = cuda_of(site)
        if not full:
            suffix = "" if int(cuda.split(".")[0]) >= 13 else f"-cu{cuda.split('.')[0]}"
            headers = ["nvidia-cuda-runtime", *([] if suffix else ["nvidia-cuda-crt"])]
            install("--no-deps", *(f"{name}{suffix}=={cuda}.*" for name in headers))
        shutil.copy(SOURCES / "beside" / "sitecustomize.py", site)
    (folder / "ready").touch()


def cuda_of(site: Path) -> str:
    """Return the version of CUDA that an installed torch was built with.

    Raises:
        NotHereError: It was built without.
    """
    text = (site / "torch" / "version.py").read_text(encoding="utf-8")
    if not (found := re.search(r"^cuda.*=\s*'([\d.]+)'", text, re.MULTILINE)):
        raise NotHereError(
            "the torch that pip installed is no CUDA build.\n"
            "  What to try: --torch with a version whose wheel has CUDA on your package index."
        )
    return found[1]


def make_library(site: Path, cache: Path) -> Path:
    """Compile the card for a torch; returns its library."""
    sources = sorted((SOURCES / "src").glob("*.*"))
    key = hashlib.sha256((site / "torch" / "version.py").read_bytes())
    for source in (*sources, Path(__file__)):
        key.update(source.read_bytes())
    folder = cache / f"library-{key.hexdigest()[:16]}-{site.parents[2].name}"
    library = folder / "libsimulated_card.so"
    if library.exists():
        return library
    with phase("compiling the simulated card"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        units = [source for source in sources if source.suffix == ".cpp"]
        options = ["-O1", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", f"-I{headers_folder(site)}"]
        with ThreadPoolExecutor() as pool:
            commands = [["g++", *options, "-c", str(unit), "-o", _object(folder, unit)] for unit in units]
            list(pool.map(run_logged, commands))
        objects = [_object(folder, unit) for unit in units]
        stubs = write_stubs(folder, objects, site)
        run_logged(["gcc", "-O1", "-fPIC", "-fno-builtin", "-c", str(stubs), "-o", _object(folder, stubs)])
        made = [*objects, _object(folder, stubs)]
        for name in {*nvidia_names(site), "libcuda.so.1", "libnvidia-ml.so.1"}:
            if OPENED.fullmatch(name):
                (folder / name).symlink_to(library.name)
                continue
            run_logged(["gcc", "-shared", f"-Wl,-soname,{name}", "-o", str(folder / name), "-x", "c", os.devnull])
        unfinished = library.with_suffix(".new")
        name = f"-Wl,-soname,{library.name}"
        run_logged(["g++", "-shared", name, *made, "-o", str(unfinished), "-ldl", "-lpthread"])
        os.replace(unfinished, library)
    return library


def headers_folder(site: Path) -> Path:
    """Return a folder with CUDA's headers: CUDA_INCLUDE, triton's, a toolkit's, or those of NVIDIA's packages.

    Raises:
        NotHereError: There is none.
    """
    candidates = [
        *map(Path, filter(None, [os.environ.get("CUDA_INCLUDE")])),
        site / "triton" / "backends" / "nvidia" / "include",
        *sorted(site.glob("nvidia/cu*/include")),
        *sorted(site.glob("nvidia/cuda_runtime/include")),
        Path("/usr/local/cuda/include"),
    ]
    for folder in candidates:
        if all((folder / name).exists() for name in ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h")):
            return folder
    raise NotHereError(
        "CUDA's headers are not here.\n  What to try: name a folder that has cuda_runtime_api.h in CUDA_INCLUDE."
    )


def write_stubs(folder: Path, objects: Sequence[str], site: Path) -> Path:
    """Write a function that says success for each that torch takes from NVIDIA's libraries and the card has not."""
    written = set(_symbols(["nm", "--defined-only", *objects], "T"))
    binaries = [*site.glob("torch/lib/*.so"), *site.glob("torch/_C*.so")]
    wanted = {name.split("@")[0] for name in _symbols(["nm", "-D", "--undefined-only", *map(str, binaries)], "U")}
    missing = sorted(name for name in wanted - written if TAKEN.match(name))
    file = folder / "stubs.c"
    file.write_text("void simulated_card_note(const char*);\n" + "\n".join(map(STUB.format, missing)) + "\n")
    return file


def nvidia_names(site: Path) -> list[str]:
    """Return the libraries of NVIDIA that torch's link to and that are not installed."""
    needed: set[str] = set()
    for binary in site.glob("torch/lib/*.so"):
        listed = subprocess.run(["objdump", "-p", binary], capture_output=True, text=True, check=True).stdout
        needed.update(re.findall(r"^\s*NEEDED\s+(\S+)$", listed, re.MULTILINE))
    installed = {file.name for file in site.glob("nvidia/**/*.so.*")}
    return sorted(name for name in needed - installed if NVIDIA.match(name))


def _symbols(command: Sequence[str], kind: str) -> Iterable[str]:
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in listed.splitlines() if re.search(rf"\s{kind}\s", line)]


def _object(folder: Path, source: Path) -> str:
    return str(folder / f"{source.stem}.o")
