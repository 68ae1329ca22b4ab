import json
from dataclasses import asdict

import pytest

from trainauto.cli import main
from trainauto.options.card_rule import DOCUMENTED
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
