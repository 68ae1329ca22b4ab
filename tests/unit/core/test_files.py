"""Where files of any name are kept."""

import errno
import os
from pathlib import Path, PureWindowsPath

import pytest

from trainauto.core.files import found_at, place_below, remove_leftovers, write_atomically, write_text_atomically


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


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (OSError(errno.EROFS, "written to where nothing can be"), errno.EROFS),
        (RuntimeError("safetensors: I/O error: Input/output error (os error 5)"), errno.EIO),
    ],
)
def test_what_cannot_be_written_is_named_by_its_own_name(tmp_path: Path, error: Exception, number: int) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("half")
        raise error

    with pytest.raises(OSError, match="kept") as caught:
        write_atomically(tmp_path / "kept", write)
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "kept"))
    assert not list(tmp_path.iterdir())


def test_an_error_that_is_not_the_systems_stays_as_it_is(tmp_path: Path) -> None:
    def write(_temporary: Path) -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        write_atomically(tmp_path / "kept", write)


def test_leftovers_of_killed_writers_are_told_from_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    hexadecimal = "0123456789abcdef" * 2
    for name in (f".a.json.{hexadecimal}.tmp", f".b.png.{hexadecimal}.tmp.png", f"below/.c.{hexadecimal}.tmp"):
        (tmp_path / name).touch()
    (tmp_path / f".d.{hexadecimal}.tmp").mkdir()
    for kept in (".notes.tmp", ".template.tmpl", "e.tmp"):
        (tmp_path / kept).touch()
    remove_leftovers(tmp_path, older_than_s=3600)
    assert len(list(tmp_path.iterdir())) == 7, "of writers that may be writing"
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".notes.tmp", ".template.tmpl", "below", "e.tmp"]
    remove_leftovers(tmp_path, below=True)
    assert not list((tmp_path / "below").iterdir())
    remove_leftovers(tmp_path / "none", below=True)
