from pathlib import Path
from types import ModuleType

import pytest


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
