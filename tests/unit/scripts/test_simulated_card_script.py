"""Which cards can be named, and what is said where a simulated one cannot be made."""

import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
import simulated_card
import simulated_card_build
from install import InstallError
from simulated_card_build import CACHE, Build, NotHereError, make_environment, missing_tools

from trainauto.options.card_presets import capability_of, multiprocessors_of


def test_too_little_disk_is_said_with_where_else_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(NotHereError, match=rf"4 GiB of disk are needed in .*, 1.0 GiB are free.\n.*{CACHE}\.$"):
        make_environment(tmp_path, tmp_path / "new", "2.14.1", full=False, lock_fd=0)


def test_tools_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_card_build.sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "objdump" else name)
    assert "this machine lacks objdump.\n  What to try: apt install g++" in missing_tools()


def settings_of(card: str, count: int = 1, others: str = "0MiB", capability: int | None = None) -> dict[str, str]:
    return simulated_card.card_settings(
        Namespace(
            card=card,
            count=count,
            others=others,
            capability=capability,
            multiprocessors=None,
            convolution_workspace="0MiB",
        )
    )


@pytest.mark.parametrize("name", simulated_card.CARDS)
def test_facts_of_cards_are_those_that_forecasts_take(name: str) -> None:
    settings = settings_of(f"NVIDIA {name.lower()} 8GB", others="1GiB")
    number, major_minor = int(settings["SIMULATED_CARD_MULTIPROCESSORS"]), settings["SIMULATED_CARD_CAPABILITY"]
    assert (number, tuple(map(int, major_minor))) == (multiprocessors_of(name), capability_of(name))
    assert settings["SIMULATED_CARD_OTHERS_BYTES"] == str(1 << 30)


def test_another_card_has_the_capability_that_is_given() -> None:
    assert settings_of("RTX 3060 Ti 8GB", capability=86)["SIMULATED_CARD_MULTIPROCESSORS"] == "28"


@pytest.mark.parametrize(
    ("card", "count", "others", "words"),
    [
        ("RTX 3060 Ti 8GB", 1, "0MiB", r"no card 'RTX 3060 Ti' is known .*\n  What to try: add --capability and"),
        ("RTX 4090 Laptop 16GB", 1, "0MiB", "no card 'RTX 4090 Laptop' is known"),
        ("L40 48GB", 1, "0MiB", "no card 'L40' is known"),
        ("RTX 3060", 1, "0MiB", r"--card 'RTX 3060' is no name and memory\.\n  What to try: --card 'RTX 4090 24GB'"),
        ("12GB", 1, "0MiB", "--card '12GB' is no name and memory"),
        ("RTX 3060 0GB", 1, "0MiB", "--card 'RTX 3060 0GB' is no name and memory"),
        ("RTX 3060 12GB", 1, "1TB", r"--others '1TB' is no size in MB, .*\n  What to try: --others 2GiB"),
        ("RTX 3060 12GB", 1, "-1GiB", "--others '-1GiB' is no size"),
        ("RTX 3060 12GB", 1, "13GB", "--others 13GB is more than the card has, 12GB"),
        ("RTX 3060 12GB", 0, "0MiB", "--count 0"),
    ],
)
def test_what_describes_no_card_is_refused(card: str, count: int, others: str, words: str) -> None:
    with pytest.raises(InstallError, match=words):
        settings_of(card, count, others)


def test_what_cannot_be_run_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a card that is built already, and of one whose build is interrupted."""

    def interrupted(*_: object, **__: object) -> Build:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulated_card, "exit_on_sigterm", lambda: None)
    monkeypatch.setattr(simulated_card, "prepare_or_exit", lambda **_: SimpleNamespace(python=Path(), variables={}))
    monkeypatch.setattr(simulated_card, "build", lambda *_, **__: Build(Path("p"), Path("l"), Path("b")))
    assert simulated_card.main(["run", "--", "pyton", "train.py"]) == 127
    assert "'pyton' is no program that can be run" in capfd.readouterr().err
    monkeypatch.setattr(simulated_card, "build", interrupted)
    assert simulated_card.main(["run", "--", "python"]) == 130
    assert capfd.readouterr().err == "simulated card: interrupted; the next call makes what is missing\n"
