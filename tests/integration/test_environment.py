"""What a run was trained with: versions, and the commit read from the files of git."""

import subprocess
from pathlib import Path

import torch

from trainauto.reporting.environment import commit_of, environment


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_versions_are_those_that_are_loaded() -> None:
    found = environment()
    assert found["torch"] == torch.__version__
    assert all(found.values())
    assert "bitsandbytes" not in found


def test_the_commit_is_read_as_git_says_it(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    git(tmp_path, "init", "-q", "-b", "feature/x")
    assert commit_of(tmp_path) == ""  # nothing was committed yet
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()[:12]
    assert commit_of(tmp_path) == f"{commit} (x)"
    git(tmp_path, "pack-refs", "--all")
    assert commit_of(tmp_path) == f"{commit} (x)"
    git(tmp_path, "worktree", "add", "-q", "-b", "other", "beside")
    assert commit_of(tmp_path / "beside") == f"{commit} (other)"
    git(tmp_path, "checkout", "-q", "--detach")
    assert commit_of(tmp_path) == commit
