import sys
from pathlib import Path

import pytest
from install import InstallError, pip, version_in, write_constraints


def test_the_constraint_is_the_installed_torch_with_its_local_label(tmp_path: Path):
    import torch

    write_constraints(Path(sys.executable), tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text() == f"torch=={torch.__version__}\n"
    (tmp_path / "versions.txt").write_text("ruff==1.2\n")
    write_constraints(Path(sys.executable), tmp_path / "c.txt", tested=tmp_path / "versions.txt")
    assert (tmp_path / "c.txt").read_text() == f"torch=={torch.__version__}\nruff==1.2\n"


def test_version_in_another_interpreter():
    assert version_in(Path(sys.executable), "pytest") == pytest.__version__
    assert version_in(Path(sys.executable), "surely-not-there") is None


def test_a_failing_pip_is_quoted_with_advice():
    with pytest.raises(InstallError) as failed:
        pip(Path(sys.executable), "install", "--no-index", "--isolated", "surely-not-there")
    message = str(failed.value)
    assert "No matching distribution found for surely-not-there" in message
    assert "try Python 3.11 to 3.13" in message
