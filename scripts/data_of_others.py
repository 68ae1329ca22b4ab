"""Where recordings lie that others made: the repository keeps figures and sources of them, not the files."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("TRAINAUTO_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
"""The variable's folder, or ``shared/data`` beside the repository."""

GENERATE_RUNS = FOLDER / "gpu_generate_memory.csv.gz"
"""14,111 batches of `generate` in 73 runs on GPUs, from https://github.com/bendangnuksung/dynabatch."""
CUDA_HISTORIES = FOLDER / "cuda_histories"
"""Nine histories of PyTorch's CUDA allocator, from two projects; see tests/assets/cuda_histories/README.md."""

H100_STEPS = FOLDER / "h100_training_steps.csv"
"""Training steps recorded on an H100, from https://github.com/sanketpurandare/mem-run-estimator."""


def missing(path: Path) -> str:
    """Say that a file of others is not here; empty where it is."""
    if path.exists():
        return ""
    return f"{path.name} of others is not here: name its folder in TRAINAUTO_DATA (scripts/bench/data/README.md)"
