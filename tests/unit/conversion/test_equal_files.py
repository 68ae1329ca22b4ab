"""Fourteen files of three projects mean the same as files of trainauto that were written by hand."""

from pathlib import Path

import pytest

from tests.foreign_files import FILES, FOLDER, components, converted, ours, written
from trainauto.conversion.answers import Kind
from trainauto.conversion.convert import convert
from trainauto.conversion.draft import leaves
from trainauto.options.foreign_files import Project, read_foreign, recognised
from trainauto.options.load import load_options


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_converted_file_resolves_to_the_options_of_the_one_written_by_hand(file: Path, tmp_path: Path) -> None:
    made, by_hand = load_options(written(converted(file), tmp_path)).options, load_options(ours(file)).options
    assert components(made) == components(by_hand)
    assert made == by_hand


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_key_is_answered_once_and_no_target_is_unknown(file: Path) -> None:
    conversion = converted(file)
    sources = [source for answer in conversion.answers for source in answer.source]
    assert len(sources) == len(set(sources))
    for path in leaves(conversion.theirs):
        assert any(path[: len(source)] == source for source in sources), path
    assert not conversion.of(Kind.UNKNOWN)
    assert all(answer.why for answer in conversion.of(Kind.LEFT_OUT))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_network_of_these_files_is_here(file: Path) -> None:
    assert converted(file).is_complete


@pytest.mark.parametrize(
    ("name", "near"),
    [("HiFaceGAN", "rrdbnet"), ("docres_base", "nafnet64"), ("hma_medium", "hat_s"), ("EDVR", "networks of single")],
)
def test_a_network_that_is_not_here_is_named_and_written_as_it_was(name: str, near: str) -> None:
    theirs = read_foreign(FOLDER / "basicsr_msrresnet.yml").value
    conversion = convert({**theirs, "network_g": {"type": name}}, Project.BASICSR)
    (missing,) = conversion.of(Kind.MISSING)
    assert (missing.old, conversion.tree["network_g"]["type"]) == (name, name)
    assert missing.near.startswith(near)


def test_there_are_fourteen_files_of_three_projects() -> None:
    projects = [recognised(read_foreign(file).value) for file in FILES]
    assert sorted(map(str, projects)) == ["BasicSR"] * 6 + ["neosr"] * 3 + ["traiNNer-redux"] * 5
