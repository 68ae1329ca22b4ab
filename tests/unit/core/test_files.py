"""Where files of any name are kept."""

import os
from pathlib import Path, PureWindowsPath

import pytest

from trainauto.core.files import found_at, place_below, write_text_atomically


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("butterfly", "butterfly"),
        ("set/butterfly", "set/butterfly"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("a/./../b//c", "a/b/c"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("\N{ROCKET} \x1b[31m", "\N{ROCKET} \x1b[31m"),
        ("a\0b", "ab"),
        ("\0/x", "x"),
        (".\0./x", "x"),
        ("a\\..\\..\\b", "a/b"),
        ("C:\\Windows\\x", "C_/Windows/x"),
        ("a/C:x", "a/C_x"),
        ("\\\\server\\share", "server/share"),
        (".. /. ./x", "x"),
    ],
)
def test_no_name_leads_out_of_its_folder(name: str, place: str) -> None:
    assert place_below(Path("run"), name) == Path("run") / place


@pytest.mark.parametrize("name", ["..\\x", "C:", "c:\\x", "a/D:..\\x", "\\\\server\\share\\x", "a:b:c", ".\0./\0C:/x"])
def test_no_name_leads_out_of_its_folder_on_windows(name: str) -> None:
    folder = PureWindowsPath("D:/runs/demo")
    place = folder.joinpath(*place_below(Path("run"), name).parts[1:])
    assert place.is_relative_to(folder)
    assert len(place.parts) > len(folder.parts)
    assert ".." not in place.parts


def test_what_is_too_long_for_a_disk_is_shortened_and_stays_told_apart(tmp_path: Path) -> None:
    names = ["x" * 300, "x" * 301, "\N{ROCKET}" * 100, "y" * 200, f"{'deep' * 80}/{'z' * 300}"]
    places = [place_below(tmp_path, name) for name in names]
    assert len(set(places)) == len(names)
    assert places[3].name == "y" * 200
    for place in places:
        assert all(len(os.fsencode(part)) <= 200 for part in place.relative_to(tmp_path).parts)
        file = place.with_name(f"{place.name}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(file, "kept")
        assert file.read_text() == "kept"


def test_a_file_of_the_longest_name_can_be_written(tmp_path: Path) -> None:
    for name in ("a" * 255, "\N{ROCKET}" * 63):
        write_text_atomically(tmp_path / name, "kept")
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_what_there_is_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = [
        found_at(tmp_path),
        found_at(tmp_path / "file"),
        found_at(tmp_path / "no"),
        found_at(tmp_path / ("n" * 300)),
    ]
    assert found == ["folder", "file", "", ""]
