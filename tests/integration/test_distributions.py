"""What is published: a source distribution that holds the repository, and a wheel built from it alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import trainauto
from tests.acceptance import only_in_acceptance
from tests.documents import ROOT

BACKEND = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
FOLDERS = ("docs", "examples", "options", "scripts", "tests", "trainauto")
LINK = re.compile(r"\]\((?!https?://|#)[^)]*\)|<(?:a|img)\b[^>]*(?:href|src)=\"(?!https?://)")


def built(kind: str, source: Path, into: Path) -> Path:
    """Have the project's build backend make a distribution, as ``python -m build`` does; no network is needed."""
    command = [sys.executable, "-W", "ignore", "-c", BACKEND, f"build_{kind}", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution of a copy of the repository, and the wheel that is built from it alone."""
    folder = tmp_path_factory.mktemp("distributions")
    for path in sorted(files_of(FOLDERS)) + [path.name for path in ROOT.iterdir() if path.is_file()]:
        copy = folder / "copy" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, copy)
    sdist = built("sdist", folder / "copy", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return sdist, built("wheel", source, folder)


def files_of(folders: tuple[str, ...]) -> set[str]:
    """Return the repository's files in some folders, as seen from it; not those that git ignores."""
    files = (path for top in folders for path in (ROOT / top).rglob("*") if path.is_file())
    kept = (path.relative_to(ROOT) for path in files if path.parent.name != "__pycache__")
    return {path.as_posix() for path in kept if not path.is_relative_to("options/local")}


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_source_distribution_holds_the_repository(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert files_of(FOLDERS) - names == set()
    assert {"README.md", "CHANGELOG.md", "LICENSE", "train.py", "test.py", "zensical.toml"} <= names
    assert [name for name in names if name.endswith(".pyc")] == []


def test_the_wheel_holds_the_package_with_its_data(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files_of(("trainauto",))


def test_the_version_is_that_of_the_package(distributions: tuple[Path, Path]) -> None:
    assert metadata_of(distributions[1])["Version"] == trainauto.__version__
    assert f"-{trainauto.__version__}" in distributions[0].name


def test_the_description_reads_on_a_package_index(distributions: tuple[Path, Path]) -> None:
    """An index has neither the repository's pages nor its pictures."""
    metadata = metadata_of(distributions[1])
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "PACKAGE.md").read_text(encoding="utf-8")
    assert LINK.findall(str(metadata.get_payload())) == []
    assert metadata["Author"] == "trainauto developers"
    assert metadata.get_all("Project-URL") is None, "no address is known that would lead anywhere"


@only_in_acceptance
@pytest.mark.parametrize(
    ("task", "length"), [("sr", ["train:total_iter=20"]), ("text", ["train:total_epochs=null", "train:total_iter=20"])]
)
def test_the_wheel_alone_trains_in_an_empty_folder(
    distributions: tuple[Path, Path], tmp_path: Path, write_images: Callable[..., Path], task: str, length: list[str]
) -> None:
    """From ``init`` to a trained network; what the package needs is that of this environment."""
    python, installed, empty = sys.executable, tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    write_images("empty/photos", 4, (150, 160))
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(installed)]
    subprocess.run([*pip, str(distributions[1])], check=True)
    images = ["--images", "photos"] if task == "sr" else []
    commands = [["-c", f"import trainauto; assert trainauto.__file__.startswith({str(installed)!r})"]]
    commands += [["-m", "trainauto", "init", task, "mine", *images], ["-m", "trainauto", "doctor", "-opt", "mine.yml"]]
    commands += [["-m", "trainauto", "train", "-opt", "mine.yml", "--force_yml", *length]]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    for words in commands:
        done = subprocess.run([python, *words], cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (empty / "experiments" / "mine" / "current" / "checkpoints" / "step_00000020").is_dir()


@pytest.mark.parametrize("link", ["[a](docs/a.md)", "![a](docs/images/a.png)", '<img src="a.png">'])
def test_links_that_lead_nowhere_are_found(link: str) -> None:
    assert LINK.search(link)
