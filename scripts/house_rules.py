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

import sentences

PACKAGE = "trainauto"
LONGEST_FILE = 500  # lines
LONGEST_MODULE = 600  # lines of a file of the package: a guide, files are split by subject
LONGEST_FUNCTION = 50  # lines of a function of the package
NETWORKS = "trainauto/tasks/sr/archs"  # networks are written down layer by layer, however many there are
LONGEST_LOOP = 100  # lines of these functions together: whoever reads them knows what training does
LOOP = {
    "trainauto/engine/loop.py": ("train", "train_until_done", "train_step"),
    "trainauto/engine/step.py": ("optimize_parameters",),
}

# Below the tasks nothing is known of images: a task says what its samples are.
BELOW_TASKS = ("core", "control", "distributed", "data", "memory", "optim", "storage", "models", "engine")
BELOW_TASKS += ("automations", "reporting", "integrations")
IMAGE_NAME = re.compile(r"(?:^|_)(?i:lq|gt|bicubic|pixels)(?:_|$)|^scale$")
IMAGE_NAMES_ALLOWED = {
    "trainauto/automations/dynamic_batch_size.py": "documented names",
    "trainauto/automations/plan_schedule.py": "keys of option files",
    "trainauto/data/documented_names.py": "documented names",
    "trainauto/engine/gradients.py": "the method of torch's GradScaler",
    "trainauto/memory/cost/cost_model.py": "scale of a distribution",
}

QUICK_TESTS = ("tests/unit", "tests/contract")  # run after every change: none waits for a process to start
PROCESS_MODULES = {"subprocess", "multiprocessing"}

# Written in pieces, for this file is checked as well.
MACHINE_FOLDERS = ("root", "work", "tmp/bash" + "_jobs", "opt/wheels", "opt/pypi")
INDEX_HOSTS = (("pypi", "org"), ("pypi", "python", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org"))
MACHINE_PATH = re.compile(r"(?<![\w.~})$-])/(?:" + "|".join(MACHINE_FOLDERS) + r")(?![\w-])")
INDEX_HOST = re.compile(r"\b(?:" + "|".join(r"\.".join(parts) for parts in INDEX_HOSTS) + r")\b")


def main(root: Path) -> int:
    """Print all breaches."""
    files = list(tracked_files(root))
    breaches = [
        *long_files(files, root),
        *long_functions(root),
        *long_loop(root),
        *import_cycle(root),
        *image_names(root),
        *processes_in_quick_tests(files, root),
        *machine_names(files, root),
        *sentences.refused(files, root),
    ]
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
            longest = LONGEST_MODULE if path.is_relative_to(root / PACKAGE) else LONGEST_FILE
            if lines > longest:
                yield f"{path.relative_to(root)}:{lines}: more than {longest} lines; split it by idea"


def long_functions(root: Path) -> Iterator[str]:
    """Functions of the package with too much code to read; docstrings do not count, and networks may be long."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        if path.is_relative_to(root / NETWORKS):
            continue
        for function in functions(path):
            if (lines := length(function) - docstring_length(function)) > LONGEST_FUNCTION:
                place = f"{path.relative_to(root)}:{function.lineno}"
                yield f"{place}: {function.name}() has {lines} lines, more than {LONGEST_FUNCTION}"


def long_loop(root: Path) -> Iterator[str]:
    """Training loop that no longer fits on a screen or two."""
    total = 0
    for place, names in LOOP.items():
        if not (root / place).exists():
            yield f"{place}:1: the training loop is gone; if it moved, tell {Path(__file__).name}"
            continue
        lines = {function.name: length(function) for function in functions(root / place)}
        yield from (f"{place}:1: no function {name}()" for name in names if name not in lines)
        total += sum(lines.get(name, 0) for name in names)
    if total > LONGEST_LOOP:
        names = ", ".join(name for names in LOOP.values() for name in names)
        yield f"{next(iter(LOOP))}:1: {names} have {total} lines together, more than {LONGEST_LOOP}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the name of a function to its end."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def docstring_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of its docstring: what describes many arguments is long, and none of it is code."""
    if ast.get_docstring(function) is None:
        return 0
    statement = function.body[0]
    return (statement.end_lineno or statement.lineno) - statement.lineno + 1


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


def image_names(root: Path) -> Iterator[str]:
    """Identifiers below the tasks that speak of images."""
    for package in BELOW_TASKS:
        for path in sorted((root / PACKAGE / package).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            if place not in IMAGE_NAMES_ALLOWED:
                for line, name in identifiers(ast.parse(path.read_text(encoding="utf-8"))):
                    if IMAGE_NAME.search(name):
                        yield f"{place}:{line}: '{name}' speaks of images, which only {PACKAGE}/tasks/sr knows"


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a file defines or uses, with its line."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield getattr(node, "lineno", 0), name.rpartition(".")[2]


def processes_in_quick_tests(files: Iterable[Path], root: Path) -> Iterator[str]:
    """What starts processes in the tests that should start none."""
    folders = [root / folder for folder in QUICK_TESTS]
    for path in files:
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in folders):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if start := process_start(node):
                    place = f"{path.relative_to(root)}:{node.lineno}"
                    yield f"{place}: {start} starts processes; move it to tests/integration"


def process_start(node: ast.AST) -> str:
    """Return the import of a module that starts processes, or the use of ``os.fork``; nothing for all else."""
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Attribute):
        return "os.fork" if ast.unparse(node) == "os.fork" else ""
    return next((name for name in names if name == "os.fork" or PROCESS_MODULES & set(name.split("."))), "")


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
