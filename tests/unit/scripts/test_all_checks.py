import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from environment import Environment


@pytest.mark.parametrize(
    ("summary", "passed", "failed", "skipped"),
    [
        ("=== 226 passed in 27.27s ===", 226, 0, 0),
        ("= 3 failed, 120 passed, 2 skipped, 1 warning in 72.34s (0:01:12) =", 120, 3, 2),
        ("1 passed, 2 errors in 0.10s", 1, 2, 0),
        ("4 failed, 1 passed, 1 error in 0.10s", 1, 5, 0),
        ("\x1b[32m=== \x1b[32m\x1b[1m5 passed\x1b[0m, \x1b[33m1 skipped\x1b[0m\x1b[32m in 0.5s\x1b[0m ===", 5, 0, 1),
        ("=== no tests ran in 0.01s ===", 0, 0, 0),
        ("=== 1 passed, 3 deselected, 1 xfailed in 0.01s ===", 1, 0, 0),
        ("INTERNALERROR> trouble", 0, 0, 0),
    ],
)
def test_the_summary_of_pytest_is_counted(all_checks: ModuleType, summary: str, passed: int, failed: int, skipped: int):
    output = f"a test that prints 9 passed in 9.99s\n{summary}\n"
    expected = {"passed": passed, "failed": failed, "skipped": skipped}
    if "trouble" in summary:
        output = summary
    assert all_checks.count_tests(output) == expected


@pytest.mark.parametrize(
    ("arguments", "here", "rest"),
    [
        ([], False, []),
        (["--here", "tests/unit", "-k", "foo"], True, ["tests/unit", "-k", "foo"]),
        (["-x"], False, ["-x"]),
    ],
)
def test_arguments_that_are_not_ours_are_pytests(
    all_checks: ModuleType, arguments: list[str], here: bool, rest: list[str]
):
    assert all_checks.split_arguments(arguments) == (here, rest)


def test_option_docs_are_checked_once_there_is_a_command_line(all_checks: ModuleType, tmp_path: Path):
    assert "option docs" not in [check.name for check in all_checks.quick_checks("python", tmp_path)]
    (tmp_path / "trainauto").mkdir()
    (tmp_path / "trainauto" / "cli.py").touch()
    names = [check.name for check in all_checks.quick_checks("python", tmp_path)]
    assert names == ["ruff check", "ruff format", "import-linter", "house rules", "option docs"]


def test_the_table_tells_every_check(all_checks: ModuleType):
    outcomes = [all_checks.Outcome("ruff check", 0, 0.21), all_checks.Outcome("mypy", 1, 20.5)]
    assert all_checks.table(outcomes).splitlines()[1:] == [
        "check            seconds  result",
        "ruff check           0.2  ok",
        "mypy                20.5  FAILED (exit code 1)",
    ]


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
        '[tool.coverage.run]\nsource = ["."]\nparallel = true\n[tool.coverage.report]\nfail_under = 100\n'
    )
    (tmp_path / "tested.py").write_text("def twice(x):\n    return 2 * x\n\n\ndef untested():\n    return 1\n")
    (tmp_path / "test_tested.py").write_text(
        "import tested\n\n\ndef test_twice():\n    assert tested.twice(2) == 4\n\n\n"
        "def test_thrice():\n    assert tested.thrice(2) == 6\n"
    )
    return tmp_path


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
    assert [path.name for path in project.glob(".coverage*")] == []


def test_chosen_tests_are_held_to_no_coverage(
    all_checks: ModuleType, project: Path, capfdbinary: pytest.CaptureFixture[bytes]
):
    all_checks.main(["-k", "twice"])
    out = capfdbinary.readouterr().out.decode()
    assert out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert "coverage" not in out
