"""What is published: a source distribution that holds the repository, and a wheel built from it alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import trainauto
from tests.documents import ROOT

NOT_PUBLISHED = {".git", ".ci", ".venv", "build", "dist", "data", "experiments", "results", "__pycache__", "local"}
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
    shutil.copytree(ROOT, folder / "copy", ignore=lambda _, names: [name for name in names if is_left_out(name)])
    sdist = built("sdist", folder / "copy", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return sdist, built("wheel", source, folder)


def is_left_out(name: str) -> bool:
    return name in NOT_PUBLISHED or name.endswith((".egg-info", "_cache")) or name.startswith(".coverage")


def files_of(folders: tuple[str, ...]) -> set[str]:
    """Return the repository's files in some folders, as seen from it."""
    found = (Path(place, name) for top in folders for place, _, names in os.walk(ROOT / top) for name in names)
    relative = (path.relative_to(ROOT) for path in found if path.suffix not in (".pyc", ".pyo"))
    return {path.as_posix() for path in relative if not any(map(is_left_out, path.parts))}


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


@pytest.mark.parametrize("link", ["[a](docs/a.md)", "![a](docs/images/a.png)", '<img src="a.png">'])
def test_links_that_lead_nowhere_are_found(link: str) -> None:
    assert LINK.search(link)
