"""Every fault of the public implementation that our code could have too is named by a test that would catch it."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"\bFault (\d+): \S")
MENTIONED = re.compile(r"\bfaults? (\d+)", re.IGNORECASE)

FAULTS = {
    1: "configuration keys in another case are silently ignored",
    2: "the length is fixed from the first batch size: growing the batch ends training early",
    3: "a retry after running out of memory gives up the epoch, counts the iteration, keeps partial gradients",
    4: "any message with 'CUDA' or 'allocate' is taken for a lack of memory",
    5: "a stale peak is carried past an adjustment; one spike collapses the plan for good",
    6: "a dead band lets steady use sit above the target",
    7: "validation peaks count as training peaks; logger and automation share one counter",
    8: "when the crop is blocked, growth of the batch is never tried",
    9: "decreases ignore the minimum",
    10: "scale 2 is hard-coded",
    11: "a resume restores the automation's numbers, not the loader's",
    12: "the checkpoint overrides what the option file switches",
    13: "device 0 is hard-coded",
    14: "crop steps ignore the multiple of the network's window",
    15: "no cap by the smallest image",
    19: "lambdas and local classes that cannot be pickled",
    20: "curves of batch and crop never reach TensorBoard; max_adjustments is never enforced",
    21: "setters only record a value",
    22: "decisions from memory at start-up",
}
"""By their numbers. 16 to 18 are of rates, early stopping and clipping, which nothing here steers by itself yet."""


def written() -> Iterator[tuple[str, str]]:
    """Yield where each test function stands, and its docstring and comments."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if path == Path(__file__):
            continue
        source = path.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                within = [text for line, text in comments.items() if node.lineno <= line <= (node.end_lineno or 0)]
                yield f"{path.relative_to(TESTS)}::{node.name}", "\n".join([ast.get_docstring(node) or "", *within])


@pytest.fixture(scope="module")
def named() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for where, words in written():
        for number in NAMED.findall(words):
            found.setdefault(int(number), []).append(where)
    return found


@pytest.mark.parametrize("number", FAULTS)
def test_each_fault_is_named_by_a_test(named: dict[int, list[str]], number: int) -> None:
    assert named.get(number), f"no test says 'Fault {number}: ...' in its docstring or a comment: {FAULTS[number]}"


def test_no_other_fault_is_named(named: dict[int, list[str]]) -> None:
    assert {number: named[number] for number in named.keys() - FAULTS.keys()} == {}


def test_faults_are_written_so_that_they_are_found() -> None:
    """Of every mention in the folder, module docstrings included: it stands in a test, as ``Fault N:``."""
    mentioned = [
        number
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__)
        for number in MENTIONED.findall(path.read_text(encoding="utf-8"))
    ]
    assert sorted(map(int, mentioned)) == sorted(int(n) for _, words in written() for n in NAMED.findall(words))
