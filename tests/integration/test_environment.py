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


def test_the_commit_of_a_submodule_is_its_own(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "commit", "-q", "--allow-empty", "-m", folder.name)
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "part")
    assert (outer / "part" / ".git").read_text().startswith("gitdir: ../")
    commit = git(inner, "rev-parse", "HEAD").strip()[:12]
    assert commit_of(outer / "part") == f"{commit} (main)"


def test_a_file_that_names_no_folder_is_no_checkout(tmp_path: Path) -> None:
    (tmp_path / ".git").write_bytes(b"gitdir: \xff")
    assert commit_of(tmp_path) == ""
