import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import write_options
from tests.made_runs import options_of
from trainauto.builders.registered_documents import registries
from trainauto.cli import main
from trainauto.commands.list import KINDS
from trainauto.optim.package_optimizers import Optimizers
from trainauto.options.card_presets import DOCUMENTED
from trainauto.options.cards import CARDS


def test_the_door_lists_cards_in_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "cards"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading, *rows = lines[: len(CARDS) + 1]
    assert heading.split() == ["card", "GiB", "target", "margin", "lq_size", "px", "batch", "numbers"]
    assert all(len(line) <= 100 for line in lines)
    (row,) = [row for row in rows if row.startswith("RTX 4090 24GB ")]
    assert row.split() == ["RTX", "4090", "24GB", "24", "0.90", "0.05", "64-512", "4-128", "documented"]
    start = heading.index("numbers")
    assert {row[start:] for row in rows} == {"documented", "computed"}
    memories = [float(row[: heading.index("GiB") + 3].split()[-1]) for row in rows]
    assert memories == sorted(memories)
    assert lines[-3:] == ["", "computed from the memory", DOCUMENTED]


def test_the_door_lists_cards_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "cards", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert sorted(listed, key=lambda card: card["name"]) == [
        asdict(card) for card in sorted(CARDS, key=lambda card: card.name)
    ]
    assert [card["memory_gib"] for card in listed] == sorted(card.memory_gib for card in CARDS)


def test_the_door_refuses_other_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["list", "toasters"])
    assert caught.value.code == 2
    assert "cards" in capsys.readouterr().err


def test_one_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "cards", "3060", "--json"]) == 0
    assert [card["name"] for card in json.loads(capsys.readouterr().out)] == ["RTX 3060 12GB"]
    assert main(["list", "cards", "RTX 3061"]) == 2
    assert "no known card" in capsys.readouterr().err


Listing = Callable[..., str]


@pytest.fixture
def listing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Listing:
    """What ``list`` prints on a terminal of so many columns."""

    def run(*arguments: str, columns: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["list", *arguments]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def test_every_registry_has_a_kind() -> None:
    assert set(KINDS.values()) == set(registries())


@pytest.mark.parametrize("kind", KINDS)
def test_all_names_of_a_kind_and_each_of_them(kind: str, listing: Listing) -> None:
    registry = registries()[KINDS[kind]]
    registry = registry.offered() if isinstance(registry, Optimizers) else registry
    table = listing(kind, columns=80)
    if kind != "archs":  # they stand in groups: below
        assert [line.split()[0] for line in table.split("\n\n")[0].splitlines() if line[0] != " "] == list(registry)
    assert all(len(line) <= 80 for line in table.splitlines())
    assert max(map(len, listing(kind, columns=300).splitlines())) <= 100
    assert [entry["name"] for entry in json.loads(listing(kind, "--json"))] == list(registry)
    for name in registry:
        shown = listing(kind, name, columns=80)
        assert shown.startswith(f"{name}: ")
        assert all(len(line) <= 80 for line in shown.splitlines())
        facts = json.loads(listing(kind, name, "--json"))
        assert (facts["name"], facts["kind"]) == (name, KINDS[kind])
        assert all(f"\n{argument}: " in shown for argument in facts["arguments"])


def test_arguments_with_type_default_and_text(listing: Listing) -> None:
    shown = listing("archs", "SRVGGNetCompact")  # an alias, in the case of its class
    assert shown.startswith("compact: The small network of Real-ESRGAN's")
    assert "named in: network_g, network_d" in shown
    assert "num_feat: whole number; default 64\n    channels between the convolutions.\n" in shown
    assert "scale: whole number; default the option file's\n" in shown
    schedule = listing("automations", "PlanSchedule")
    assert "changes: list of section PlannedChange; required\n" in schedule
    assert "keys of PlannedChange:\nstep: whole number; required\n" in schedule
    assert "`" not in shown + schedule
    assert "datasets.train" in listing("datasets", "gtimagedataset")


def test_a_misspelt_name_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "losses", "charbonier"]) == 2
    assert "there is no loss named 'charbonier'\n  Did you mean 'charbonnier'?" in capsys.readouterr().err


def test_what_plugins_bring(tmp_path: Path, listing: Listing, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "listed_plugin.py").write_text(
        "from torch import nn\nfrom trainauto.tasks.sr.losses import LOSSES\n\n\n"
        "@LOSSES.register('listed_loss')\nclass Listed(nn.Module):\n"
        '    """Listed only.\n\n    Args:\n        strength: how much of it.\n    """\n\n'
        "    def __init__(self, strength: float = 0.25):\n        super().__init__()\n\n\n"
        "@LOSSES.register('silent_loss')\nclass Silent(nn.Module): ...\n"
    )
    options: dict[str, Any] = options_of({"type": "compact"}, plugins=["listed_plugin"])
    file = write_options(tmp_path / "run.yml", options)
    assert "listed_loss" not in listing("losses")
    try:
        listed = listing("losses", "-opt", str(file))
        assert re.search(r"^listed_loss +Listed only\.$", listed, re.MULTILINE)
        assert re.search(r"^silent_loss +\(without a description\)$", listed, re.MULTILINE)
        assert "strength: number; default 0.25\n    how much of it.\n" in listing("losses", "listed_loss")
    finally:
        registry = registries()["loss"]
        for names in (registry._entries, registry._shown):
            names.pop("listed_loss", None)
            names.pop("silent_loss", None)
    assert main(["list", "cards", "-opt", str(file)]) == 2
    assert "plugins bring no cards" in capsys.readouterr().err
