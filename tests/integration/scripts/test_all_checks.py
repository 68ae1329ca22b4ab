import os
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from environment import Environment

from tests import line_probes
from tests.acceptance import only_in_acceptance


@pytest.fixture
def project(tmp_path: Path, all_checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one package and two tests, one of which fails."""
    monkeypatch.setattr(all_checks, "ROOT", tmp_path)
    monkeypatch.setattr(all_checks, "exit_on_sigterm", lambda: None)
    environment = Environment(Path(sys.executable), dict(os.environ))
    monkeypatch.setattr(all_checks, "prepare_or_exit", lambda extras, here: environment)
    exits = [all_checks.Check(f"exits {code}", [sys.executable, "-c", f"exit({code})"]) for code in (0, 3)]
    monkeypatch.setattr(all_checks, "quick_checks", lambda _: exits)
    types = all_checks.Check("types", [sys.executable, "-c", "print('what was found'); exit(4)"])
    monkeypatch.setattr(all_checks, "type_check", lambda _: types)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.coverage.run]\nsource = ["tested"]\nparallel = true\n'
        "[tool.coverage.report]\nshow_missing = true\nfail_under = 100\n"
    )
    (tmp_path / "tests").mkdir()
    shutil.copy(line_probes.__file__, tmp_path / "tests")
    (tmp_path / "tested.py").write_text("def twice(x):\n    return 2 * x\n\n\ndef untested():\n    return 1\n")
    (tmp_path / "test_tested.py").write_text(
        "import tested\n\n\ndef test_twice():\n    assert tested.twice(2) == 4\n\n\n"
        "def test_thrice():\n    assert tested.thrice(2) == 6\n"
    )
    return tmp_path


@only_in_acceptance
def test_every_check_is_reported_and_one_failure_fails_the_whole(
    all_checks: ModuleType, project: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    assert all_checks.main([]) == 1
    out = capfdbinary.readouterr().out.decode()
    assert out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
    assert "== types ==\nwhat was found" in out
    rows = {line[:16].strip(): line[26:].strip() for line in out[out.rindex("check   ") :].splitlines()[1:-1]}
    assert rows == {
        "exits 0": "ok",
        "exits 3": "FAILED (exit code 3)",
        "types": "FAILED (exit code 4)",
        "pytest": "FAILED (exit code 1)",
        "coverage": "FAILED (exit code 2)",
    }
    assert re.search(r"^tested\.py +4 +1 +75% +6$", out, re.MULTILINE)
    assert [path.name for path in project.glob(".coverage*")] == []


def test_chosen_tests_are_held_to_no_coverage(
    all_checks: ModuleType, project: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    all_checks.main(["-k", "twice"])
    out = capfdbinary.readouterr().out.decode()
    assert out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert "coverage" not in out
