"""Fourteen files of three projects mean the same as files of trainauto that were written by hand."""

from pathlib import Path
from typing import Any

import pytest

from tests.foreign_files import FILES, NOT_HERE, components, converted, ours, written
from trainauto.archs import ARCHS
from trainauto.conversion.answers import Kind
from trainauto.conversion.draft import leaves
from trainauto.conversion.networks import SCALES
from trainauto.options.foreign_files import read_foreign, recognised
from trainauto.options.load import load_options
from trainauto.options.schema import Component


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_converted_file_resolves_to_the_options_of_the_one_written_by_hand(file: Path, tmp_path: Path) -> None:
    made, by_hand = load_options(written(converted(file), tmp_path)).options, load_options(ours(file)).options
    if NOT_HERE.get(file.stem, "-") in ARCHS:  # the file was written for a network that is not: its scale is filled in
        made, by_hand = (
            options.model_copy(update={"network_g": _without_scale(options)}) for options in (made, by_hand)
        )
    assert components(made) == components(by_hand)
    assert made == by_hand


def _without_scale(options: Any) -> Component:
    kept = {key: value for key, value in options.network_g.arguments.items() if key not in SCALES}
    return Component(type=options.network_g.type, **kept)


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
def test_a_network_that_is_not_here_is_named_and_written_as_it_was(file: Path) -> None:
    conversion, name = converted(file), NOT_HERE.get(file.stem)
    if name is None or name in ARCHS:
        assert conversion.is_complete
        return
    (missing,) = conversion.of(Kind.MISSING)
    assert (missing.old, conversion.tree["network_g"]["type"]) == (name, name)
    assert missing.near


def test_there_are_fourteen_files_of_three_projects() -> None:
    projects = [recognised(read_foreign(file).value) for file in FILES]
    assert sorted(map(str, projects)) == ["BasicSR"] * 6 + ["neosr"] * 3 + ["traiNNer-redux"] * 5
