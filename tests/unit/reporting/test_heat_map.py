"""The picture of plans: nothing that was drawn hides another."""

from pathlib import Path

from PIL import Image

from trainauto.reporting.heat_map import LINES, draw_heat_map


def test_cards_of_equal_plans_are_all_seen(tmp_path: Path) -> None:
    edge = [(16, 8), (32, 8), (48, 4)]
    cards = ("one", "two", "three")
    draw_heat_map(
        tmp_path / "map.png",
        "title",
        [16, 32, 48],
        list(range(1, 9)),
        lambda batch, side: batch * side**2 * 1e4,
        dict.fromkeys(cards, edge),
        dict.fromkeys(cards, (48, 4)),
    )
    with Image.open(tmp_path / "map.png") as picture:
        field = picture.convert("RGB").crop((70, 40, 720, 580))
        found = {colour: count for count, colour in field.getcolors(2**20) or []}
        counts = {colour: found.get(colour, 0) for colour in LINES[:3]}
        legend = picture.convert("RGB").crop((730, 200, 950, 290)).getcolors(2**16) or []
    assert all(count > 500 for count in counts.values()), counts
    assert len(legend) > 2, "it says what line and dot are"
