"""What a run was trained with beside its options: versions, the machine, the commit."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

_PACKAGES = ("torch", "numpy", "transformers", "accelerate", "peft", "bitsandbytes", "lightning")


def environment() -> dict[str, str]:
    """Return versions of what is loaded, the machine and the commit of the code, by label."""
    import torch

    found = {
        "trainauto": importlib.metadata.version("trainauto") if _is_installed() else "from its folder",
        "commit": commit_of(Path(__file__).resolve().parents[2]),
        "Python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES if name in sys.modules},
        "system": platform.platform(terse=True),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "CUDA": torch.version.cuda or "",
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }
    return {label: text for label, text in found.items() if text}


def commit_of(checkout: Path) -> str:
    """Return the commit that a checkout of git stands at; empty where it is none.

    Read from its files: asking git would take longer than all the rest, and there may be none.
    """
    try:
        git = checkout / ".git"
        if git.is_file():  # a second working tree or a submodule: the file names its folder, from here where relative
            git = checkout / git.read_text(encoding="utf-8").split(":", 1)[1].strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head[:12]
        common = git / (git / "commondir").read_text(encoding="utf-8").strip() if (git / "commondir").exists() else git
        name = head.removeprefix("ref: ")
        if (common / name).is_file():
            return f"{(common / name).read_text(encoding='utf-8').strip()[:12]} ({name.rpartition('/')[2]})"
        packed = (common / "packed-refs").read_text(encoding="utf-8").splitlines()
        found = next(line.split()[0] for line in packed if line.endswith(f" {name}"))
        return f"{found[:12]} ({name.rpartition('/')[2]})"
    except (OSError, ValueError, IndexError, StopIteration):
        return ""


def _is_installed() -> bool:
    try:
        importlib.metadata.version("trainauto")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _version(name: str) -> str:
    return str(getattr(sys.modules[name], "__version__", ""))
