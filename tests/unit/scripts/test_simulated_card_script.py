"""Which cards can be named, and what is said where a simulated one cannot be made."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import simulated_card
import simulated_card_build
from install import InstallError
from simulated_card_build import CACHE, NotHereError, make_environment, missing_tools


def test_too_little_disk_is_said_with_where_else_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(NotHereError, match=rf"4 GiB of disk are needed in .*, 1.0 GiB are free.\n.*{CACHE}\.$"):
        make_environment(tmp_path, tmp_path / "new", "2.14.1", full=False, lock_fd=0)


def test_tools_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_card_build.sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "objdump" else name)
    assert "this machine lacks objdump.\n  What to try: apt install g++" in missing_tools()


@pytest.mark.parametrize(("card", "capability"), [("RTX 3060 12GB", 86), ("nvidia l4 24GB", 89), ("L40S 48GB", 89)])
def test_a_card_is_known_by_its_name(card: str, capability: int) -> None:
    settings = simulated_card.card_settings(card, 1, "1GiB", None, "0MiB")
    assert int(settings["SIMULATED_CARD_CAPABILITY"]) == capability
    assert settings["SIMULATED_CARD_OTHERS_BYTES"] == str(1 << 30)


@pytest.mark.parametrize(
    ("card", "count", "others", "words"),
    [
        ("RTX 3060 Ti 8GB", 1, "0MiB", r"no card 'RTX 3060 Ti' is known .*\n  What to try: add --capability"),
        ("L40 48GB", 1, "0MiB", "no card 'L40' is known"),
        ("RTX 3060", 1, "0MiB", r"--card 'RTX 3060' names no size\.\n  What to try: --card 'RTX 3060 12GB'"),
        ("RTX 3060 12GB", 1, "lots", r"--others 'lots' names no size\.\n  What to try: --others 500MiB"),
        ("RTX 3060 12GB", 0, "0MiB", "--count 0"),
    ],
)
def test_what_describes_no_card_is_refused(card: str, count: int, others: str, words: str) -> None:
    with pytest.raises(InstallError, match=words):
        simulated_card.card_settings(card, count, others, None, "0MiB")
