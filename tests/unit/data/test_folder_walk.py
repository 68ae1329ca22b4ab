"""What lies below a folder, links to folders included."""

import os
import sys
from pathlib import Path

import pytest

from trainauto.data.folder_walk import files_below, warn_of_links
from trainauto.tasks.text.training.text_files import read_texts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")


def made(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return folder


def names_of(folder: Path) -> dict[str, bool]:
    return {found.path.relative_to(folder).as_posix(): found.through_link for found in files_below(folder)}


def test_a_linked_folder_is_followed_and_a_hidden_one_is_not(tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "elsewhere", "b", "deeper/c", ".hidden")
    folder = made(tmp_path / "set", "a", ".git/x")
    (folder / "link").symlink_to(elsewhere)
    assert names_of(folder) == {"a": False, "link/b": True, "link/deeper/c": True}


def test_links_to_themselves_and_to_nothing_are_files_that_cannot_be_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "set", "a")
    (folder / "itself").symlink_to("itself")
    (folder / "nothing").symlink_to("nowhere")
    assert names_of(folder) == {"a": False, "itself": False, "nothing": False}
    assert not any(found.is_special for found in files_below(folder))


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    folder = made(tmp_path / "set", "one/a", "two/b")
    (folder / "one" / "up").symlink_to(folder)
    (folder / "two" / "self").symlink_to(folder / "two")
    (folder / "one" / "other").symlink_to(folder / "two")
    (folder / "two" / "other").symlink_to(folder / "one")
    assert names_of(folder) == {"one/a": False, "two/b": False}


def test_what_lies_in_the_folder_itself_goes_before_a_link_to_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "set", "z/a")
    (folder / "a_link").symlink_to(folder / "z")
    assert names_of(folder) == {"z/a": False}
    (folder / "file").symlink_to(folder / "z" / "a")
    assert {found.real_path for found in files_below(folder)} == {os.path.realpath(folder / "z" / "a")}


def test_links_that_texts_do_not_follow_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere, folder = made(tmp_path / "elsewhere", "b.txt"), made(tmp_path / "set", "a.txt", ".hidden/x")
    warn_of_links(folder, "texts")
    assert not caplog.text
    (folder / "link").symlink_to(elsewhere)
    (folder / ".hidden" / "link").symlink_to(elsewhere)
    warn_of_links(folder, "texts")
    assert "1 linked folder in" in caplog.text
    assert f"left out, for links are not followed to texts: {folder / 'link'}." in caplog.text
    assert [list(sample.texts) for sample in read_texts(str(folder), set_name="train")] == [["a.txt"]]
