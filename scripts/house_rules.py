"""Rules of this repository that no linter knows; prints every breach as file:line: what, and exits with 1 on any.

python scripts/house_rules.py [repository]
"""

import ast
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

LONGEST_FILE = 500  # lines
LONGEST_LOOP = 60  # lines: the training loop fits on one screen
LOOP = ("trainauto/engine/loop.py", "train")
PACKAGE = "trainauto"

# Written in pieces, for this file is checked as well.
MACHINE_FOLDERS = ("root", "work", "tmp/bash" + "_jobs", "opt/wheels", "opt/pypi")
INDEX_HOSTS = (("pypi", "org"), ("pypi", "python", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org"))
MACHINE_PATH = re.compile(r"(?<![\w.~})$-])/(?:" + "|".join(MACHINE_FOLDERS) + r")(?![\w-])")
INDEX_HOST = re.compile(r"\b(?:" + "|".join(r"\.".join(parts) for parts in INDEX_HOSTS) + r")\b")


def main(root: Path) -> int:
    """Print all breaches."""
    files = list(tracked_files(root))
    breaches = [*long_files(files, root), *long_loop(root), *import_cycle(root), *machine_names(files, root)]
    for breach in breaches:
        print(breach)
    print(f"house rules: {len(files)} files, {len(breaches)} breaches")
    return 1 if breaches else 0


def tracked_files(root: Path) -> Iterator[Path]:
    """Files under version control; without git, every file outside hidden and generated folders."""
    try:
        answer = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        print("house rules: git does not answer here; looking at all files")
        paths = [Path(folder, name) for folder, name in walk(root)]
    else:
        paths = [root / os.fsdecode(name) for name in answer.stdout.split(b"\0") if name]
    yield from sorted(path for path in paths if path.is_file())  # a deleted file is tracked until the commit


def walk(root: Path) -> Iterator[tuple[str, str]]:
    """Folder and name of every file that a fresh archive of the repository could hold."""
    generated = {"__pycache__", "experiments", "build", "dist"}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in generated]
        yield from ((folder, name) for name in names)


def long_files(files: Iterable[Path], root: Path) -> Iterator[str]:
    """Python files too long to read."""
    for path in files:
        if path.suffix == ".py":
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > LONGEST_FILE:
                yield f"{path.relative_to(root)}:{lines}: more than {LONGEST_FILE} lines; split it by idea"


def long_loop(root: Path) -> Iterator[str]:
    """Training loop that no longer fits on a screen."""
    place, name = LOOP
    if not (root / place).exists():
        yield f"{place}:1: the training loop is gone; if it moved, tell {Path(__file__).name}"
        return
    tree = ast.parse((root / place).read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    if not functions:
        yield f"{place}:1: no function {name}()"
    for function in functions:
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > LONGEST_LOOP:
            yield f"{place}:{function.lineno}: {name}() has {lines} lines, more than {LONGEST_LOOP}"


def import_cycle(root: Path) -> Iterator[str]:
    """First circle of modules that import each other; an import inside a function counts, one for types does not."""
    modules = {module_name(path, root): path for path in sorted((root / PACKAGE).rglob("*.py"))}
    graph = {name: set(imported(path, name, modules)) - {name} for name, path in modules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        yield f"{modules[circle[0]].relative_to(root)}:1: import cycle: {' <- '.join(circle)}"


def module_name(path: Path, root: Path) -> str:
    """Dotted name of a file of the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, name: str, modules: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            names = (f"{base}.{alias.name}" for alias in node.names)
            yield from (module for module in (n if n in modules else base for n in names) if module in modules)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: all but the bodies of ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for branch in child.orelse:
                yield branch
                yield from statements(branch)
            continue
        yield child
        yield from statements(child)


def machine_names(files: Iterable[Path], root: Path) -> Iterator[str]:
    """Paths of the machine a file was written on, and hosts of package indexes: both are the reader's business."""
    for path in files:
        content = path.read_bytes()
        if b"\0" in content[:8192]:  # a picture, not text
            continue
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
            for pattern, kind in ((MACHINE_PATH, "path of a machine"), (INDEX_HOST, "package index host")):
                if match := pattern.search(line):
                    yield f"{path.relative_to(root)}:{number}: {kind}: {match[0]}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parent.parent).resolve()))
