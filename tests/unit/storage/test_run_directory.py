import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainauto.core.errors import InputError
from trainauto.storage import run_directory
from trainauto.storage.run_directory import TRAINER_RUNS, RunDirectory


def lines(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_create_makes_a_timestamped_folder_and_current_leads_to_it(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    assert run.path.parent == tmp_path / "demo"
    assert len(run.path.name) == len("20250102_030405")
    assert run.checkpoints.is_dir()
    assert run.validation.is_dir()
    assert (tmp_path / "demo" / "current").readlink() == Path(run.path.name)
    assert RunDirectory.current(tmp_path, "demo") == run


def test_the_newest_earlier_run_with_a_checkpoint_is_found(tmp_path: Path) -> None:
    base = tmp_path / "demo"
    names = ["20250101_000000", *(f"20250102_000000{number}" for number in ("_2", "_10")), "20250103_000000", "kept"]
    for name in names:
        (base / name / "checkpoints").mkdir(parents=True)
    (base / "current").symlink_to(names[1])
    newest = RunDirectory(base / names[3])
    for name in names:
        (base / name / "checkpoints" / "step_00000004").mkdir()  # half deleted
    assert newest.earlier_with_checkpoint is None
    for name in names:
        (base / name / "checkpoints" / "step_00000004" / "state.pt").touch()
    assert newest.earlier_with_checkpoint == RunDirectory(base / names[2])
    assert RunDirectory(base / names[0]).earlier_with_checkpoint is None


def test_a_second_run_in_the_same_second_gets_a_suffix_and_is_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(run_directory.datetime):  # type: ignore[name-defined, misc]
        @classmethod
        def now(cls) -> "Stopped":
            return cls(2025, 1, 2, 3, 4, 5)

    monkeypatch.setattr(run_directory, "datetime", Stopped)
    names = [RunDirectory.create(tmp_path, "demo").path.name for _ in range(3)]
    assert names == ["20250102_030405", "20250102_030405_2", "20250102_030405_3"]
    current = RunDirectory.current(tmp_path, "demo")
    assert current is not None
    assert current.path.name == names[-1]


def test_runs_created_at_once_never_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: RunDirectory.create(tmp_path, "demo"), range(16)))
    assert len({run.path for run in runs}) == 16
    assert RunDirectory.current(tmp_path, "demo") in runs
    assert not list((tmp_path / "demo").glob(".*"))


def test_without_links_current_is_a_file_with_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("a required privilege is not held by the client")

    first = RunDirectory.create(tmp_path, "demo")  # a link that the file then replaces
    monkeypatch.setattr(Path, "symlink_to", refuse)
    run = RunDirectory.create(tmp_path, "demo")
    current = tmp_path / "demo" / "current"
    assert not current.is_symlink()
    assert current.read_text() == run.path.name + "\n"
    assert RunDirectory.current(tmp_path, "demo") == run != first
    assert first.path.is_dir()


def test_no_current_run(tmp_path: Path) -> None:
    assert RunDirectory.current(tmp_path, "demo") is None
    run = RunDirectory.create(tmp_path, "demo")
    run.path.rename(tmp_path / "moved away")
    assert RunDirectory.current(tmp_path, "demo") is None  # a dangling link
    current = tmp_path / "demo" / "current"
    current.unlink()
    current.write_text("\n")
    assert RunDirectory.current(tmp_path, "demo") is None
    current.write_text("20000101_000000\n")
    assert RunDirectory.current(tmp_path, "demo") is None


def test_a_dangling_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "current").symlink_to("20000101_000000")
    run = RunDirectory.create(tmp_path, "demo")
    assert RunDirectory.current(tmp_path, "demo") == run


def test_a_folder_named_current_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "demo" / "current").mkdir(parents=True)
    with pytest.raises(InputError, match="Rename or delete"):
        RunDirectory.create(tmp_path, "demo")
    assert [entry.name for entry in (tmp_path / "demo").iterdir()] == ["current"]


def test_an_empty_name_puts_runs_right_under_the_root(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "output", "")
    assert run.path.parent == tmp_path / "output"
    assert RunDirectory.current(tmp_path / "output", "") == run


def test_options_and_config(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.write_options("name: demo  # größer\n")
    run.write_config({"name": "demo", "scale": 4})
    assert run.options_file.read_bytes() == "name: demo  # größer\n".encode()
    assert json.loads(run.config.read_text()) == {"name": "demo", "scale": 4}


@pytest.mark.parametrize("torn", ["", '{"step": 5, "losses": {"l', "\0\0\0", '{"step": 5}'])
def test_rewind_drops_later_steps_and_a_torn_line(tmp_path: Path, torn: str) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.records.write_text("".join(f'{{"step": {step}}}\n' for step in (1, 2, 3, 4)) + torn)
    run.decisions.write_text('{"step": 2}\n{"step": 2}\n{"step": 4}\n')
    run.rewind(2)
    assert lines(run.records) == [1, 2]
    assert lines(run.decisions) == [2, 2]
    assert not run.validations.exists()
    assert not list(run.path.glob(".*"))


def test_rewind_drops_garbage_between_later_lines(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.records.write_bytes(b'{"step": 1}\n{"step": 3}\n\0\0\n[]\n')
    run.rewind(1)
    assert lines(run.records) == [1]


def test_rewind_to_the_start_empties_and_an_empty_file_stays(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.records.write_text('{"step": 1}\n')
    run.decisions.write_text("")
    run.rewind(0)
    assert run.records.read_bytes() == run.decisions.read_bytes() == b""


def test_rewind_leaves_a_file_alone_that_has_nothing_to_drop(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.records.write_text('{"step": 1}\n{"step": 2}\n')
    before = run.records.stat().st_ino
    run.rewind(2)
    assert run.records.stat().st_ino == before
    assert lines(run.records) == [1, 2]


def test_rewind_killed_midway_leaves_the_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    run.records.write_text('{"step": 1}\n{"step": 2}\n')

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trainauto.core.files.os.replace", kill)
    with pytest.raises(KeyboardInterrupt):
        run.rewind(1)
    assert lines(run.records) == [1, 2]


def test_the_steps_of_a_trainer_lie_in_the_run_of_its_newest_start(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "demo")
    assert run.of_steps == run  # nothing was trained yet
    for _ in range(2):
        newest = RunDirectory.create(run.path / TRAINER_RUNS, "")
    assert run.of_steps.path == newest.path
    run.records.write_text('{"step": 1}\n')
    assert run.of_steps == run
