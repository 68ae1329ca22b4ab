"""Lines that the tests run, marked by probes in place of a tracer: a plugin of pytest, `-p tests.line_probes`.

Up to Python 3.11 coverage.py can only trace, and a tracer hears of every call and line of its process: those of torch,
pytest and hypothesis as well. Here the measured files are loaded with one store before each statement, and nothing else
is slowed. Forked children mark the same memory, however they end. Children that are processes of their own are measured
by coverage.py, in tests that ask for it (the fixture ``children_covered``).

What ran is written as coverage.py's data: it combines, excludes, reports and holds against the threshold, and what is
measured is said in pyproject.toml alone.
"""

import ast
import builtins
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from coverage import Coverage, CoverageData

MARKS = "__marks__"
"""What the probes call the memory they mark: a builtin, for the namespace of a module may be copied or looked at."""


class Marks(MetaPathFinder):
    """Memory with one byte for every line of the measured files, and the finder that loads these with probes.

    Attributes:
        first: by file, where the bytes of its lines begin; fixed from the start, for forked children import as well.
        lines: by file, how many there are.
        bytes: 1 for a line that ran. Shared with forked children.
    """

    def __init__(self, packages: Sequence[str], omitted: Sequence[str] = ()) -> None:
        self.packages = frozenset(packages)
        self.first: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        total = 0
        for file in (str(path) for package in packages for path in files_of(package)):
            if not any(fnmatch(file, pattern) for pattern in omitted):
                self.first[file], self.lines[file] = total, len(Path(file).read_bytes().splitlines()) + 1
                total += self.lines[file]
        self.bytes = mmap.mmap(-1, max(1, total))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of a measured package; all others are left to the finders behind this one."""
        if fullname.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin in self.first and isinstance(spec.loader, SourceFileLoader):
            spec.loader = LoaderWithProbes(fullname, spec.origin, self.first[spec.origin])
        return spec

    def ran(self) -> dict[str, list[int]]:
        """Return the lines that ran, by file; a file that was never loaded has none."""
        ran = {}
        for file, first in self.first.items():
            marks = self.bytes[first : first + self.lines[file]]
            ran[os.path.realpath(file)] = [line for line, mark in enumerate(marks) if mark]
        return ran


def files_of(package: str) -> Iterator[Path]:
    """Return all Python files of an importable package or module, which is not imported for that."""
    spec = PathFinder.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is measured, and cannot be found")
    return iter(
        [Path(spec.origin)] if spec.submodule_search_locations is None else Path(spec.origin).parent.rglob("*.py")
    )


class LoaderWithProbes(SourceFileLoader):
    """Compiles a file with a probe before each of its statements; reads and writes no bytecode files."""

    def __init__(self, fullname: str, path: str, first: int) -> None:
        super().__init__(fullname, path)
        self.probes = Probes(first)

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file, which Python would look for among its bytecode files."""
        tree = ast.parse(self.get_data(self.path), self.path)
        return compile(self.probes.visit(tree), self.path, "exec", dont_inherit=True)


class Probes(ast.NodeTransformer):
    """Puts ``__marks__[first + line] = 1`` before every statement, and what does the same into handlers and cases."""

    def __init__(self, first: int) -> None:
        self.first = first

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Put probes into all blocks of a node."""
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):  # those of conditional expressions and lambdas are none
                setattr(node, name, list(self.probed(node, name, block)))
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        """Mark a handler's line when an exception is held against it, as coverage.py does."""
        if node.type is not None:
            mark = ast.parse(f"{MARKS}.__setitem__({self.first + node.lineno}, 1)", mode="eval").body  # gives None
            for part in ast.walk(mark):
                ast.copy_location(part, node.type)
            node.type = ast.copy_location(ast.BoolOp(ast.Or(), [mark, node.type]), node.type)
        return self.generic_visit(node)

    def probed(self, owner: ast.AST, name: str, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        if block and isinstance(owner, ast.match_case):  # only where it fits: there is no place for one before that
            yield self.probe(owner.pattern.lineno, block[0])
        first = count_of_first(owner, block) if name == "body" else 0
        yield from block[:first]
        for statement in block[:first]:
            yield self.probe(statement.lineno, statement)
        for statement in block[first:]:
            for decorator in getattr(statement, "decorator_list", ()):
                yield self.probe(decorator.lineno, statement)
            yield self.probe(statement.lineno, statement)
            yield statement

    def probe(self, line: int, place: ast.stmt) -> ast.stmt:
        marks = ast.Name(MARKS, ast.Load())
        element = ast.Subscript(marks, ast.Constant(self.first + line), ast.Store())
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([element], ast.Constant(1)), place))


def count_of_first(owner: ast.AST, body: Sequence[ast.stmt]) -> int:
    """Return how many statements nothing may be put before: a docstring, and imports from the future."""
    documented = isinstance(owner, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    count = int(documented and ast.get_docstring(owner, clean=False) is not None)
    while count < len(body) and getattr(body[count], "module", None) == "__future__":
        count += 1
    return count


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin before anything measured is imported."""
    early_config.pluginmanager.register(WrittenAtTheEnd(measure(early_config.rootpath / "pyproject.toml")))


class WrittenAtTheEnd:
    """Writes what the tests' own process ran when they are over.

    Before the session ends: afterwards a worker of pytest-xdist may be ended while it writes, on a busy machine.
    """

    def __init__(self, measurement: "Measurement") -> None:
        self.measurement = measurement

    def pytest_sessionfinish(self) -> None:
        self.measurement.write()


class Measurement:
    """Writes what ran beside coverage.py's own data."""

    def __init__(self, marks: Marks, configuration: Path) -> None:
        self.marks = marks
        self.file = os.environ.get("COVERAGE_FILE", str(configuration.with_name(".coverage")))

    def write(self) -> None:
        data = CoverageData(self.file, suffix=True)
        data.add_lines(self.marks.ran())
        data.write()


def measure(configuration: Path) -> Measurement:
    """Mark lines from here on, in this process and in all forked from it; nothing measured is imported yet."""
    measured: Any = Coverage(data_file=None, config_file=str(configuration)).get_option  # strings or lists, as it has
    marks = Marks(measured("run:source"), measured("run:omit") or ())
    setattr(builtins, MARKS, marks.bytes)
    sys.meta_path.insert(0, marks)
    return Measurement(marks, configuration)
