"""What ``python -m trainauto plan --recipes`` prints: memory and cost of each recipe, and what fits on each card."""

import json
from typing import Any

from trainauto.commands.tables import aligned, beyond_text, most_text
from trainauto.core.units import GIB
from trainauto.forecast.finetune_recipes import FORMATS, AllRecipes, RecipePlans
from trainauto.reporting.formatting import WIDTH, wrapped

SHOWN_BATCHES = (1, 2, 4, 8, 16)
HEADINGS = ("format", "checkpoints", "4 bits")

CHECKPOINTS = "checkpoints (memory: gradient_checkpointing): blocks run again in the backward pass, to the same result."
FOUR_BITS = (
    "4 bits (load_in_4bit): the weights of linear layers are rounded to 4 bits, and unpacked each time a layer runs, "
    "which is not counted in compute."
)
COMPUTE = (
    "compute: matrix products, convolutions and attention of a pass, over those of the least. How long they take, a "
    "card's units for the format say."
)


def recipes_table(answer: AllRecipes) -> str:
    """Return the answer in words, within 80 columns."""
    least = min(found.multiplications for found in answer.recipes)
    expected = [
        (*_cells(found), *(f"{found.expected_bytes(batch) / GIB:.1f}" for batch in SHOWN_BATCHES), _times(found, least))
        for found in answer.recipes
    ]
    traced = f"{len(answer.recipes)} recipes followed in {answer.seconds:.1f} s"
    lines = [
        *wrapped(f"{answer.name}: {answer.network}; {traced}", WIDTH, ""),
        "",
        "expected peak in GiB by conversations of a pass, and what a pass computes",
        *aligned((*HEADINGS, *map(str, SHOWN_BATCHES), "compute"), expected),
        "",
        *_fits(answer),
        *_beyond(answer),
        *(line for form in FORMATS for line in wrapped(f"{form.name}: {form.costs}.", WIDTH, "  ")),
        *(line for text in (CHECKPOINTS, FOUR_BITS, COMPUTE) for line in wrapped(text, WIDTH, "  ")),
        *(line for note in answer.notes for line in wrapped(note, WIDTH, "  ")),
    ]
    return "\n".join(lines)


def _fits(answer: AllRecipes) -> list[str]:
    """Return tables of the largest batches, as many cards beside each other as there is room for."""
    lines = ["largest batch whose 99 % bound stays within the target of the card"]
    for cards in _in_width(answer.cards):
        rows = [
            (*_cells(found), *(_largest(found, answer.cards.index(card)) for card in cards)) for found in answer.recipes
        ]
        lines += [*aligned((*HEADINGS, *cards), rows), ""]
    return lines


def _beyond(answer: AllRecipes) -> list[str]:
    """Say what marked batches are, if any is."""
    cards = [card for found in answer.recipes for card in found.cards]
    looked_at = max(card.largest_batch for card in cards)
    text = beyond_text((card.frontier[-1].batch_size for card in cards if card.frontier), looked_at)
    return wrapped(text, WIDTH, "  ") if text else []


def _in_width(cards: tuple[str, ...]) -> list[list[str]]:
    """Return the cards in groups whose names fit beside the columns of recipes."""
    groups: list[list[str]] = [[]]
    room = WIDTH - sum(len(heading) + 2 for heading in HEADINGS) - 2
    for card in cards:
        if groups[-1] and sum(len(other) + 2 for other in [*groups[-1], card]) > room:
            groups.append([])
        groups[-1].append(card)
    return groups


def _cells(found: RecipePlans) -> tuple[str, ...]:
    recipe = found.recipe
    return recipe.format.name, "yes" if recipe.checkpoints else "no", "yes" if recipe.four_bits else "no"


def _times(found: RecipePlans, least: int) -> str:
    return f"x {found.multiplications / max(1, least):.2f}"


def _largest(found: RecipePlans, card: int) -> str:
    chosen = found.cards[card]
    if not chosen.frontier:
        return "-"
    return most_text(chosen.frontier[-1].batch_size, chosen.largest_batch)


def recipes_json(answer: AllRecipes) -> str:
    """Return the answer for machines: bytes throughout."""
    recipes: list[dict[str, Any]] = [
        {
            "format": found.recipe.format.name,
            "gradient_checkpointing": found.recipe.checkpoints,
            "load_in_4bit": found.recipe.four_bits,
            "overrides": found.recipe.overrides,
            "multiplications": found.multiplications,
            "persistent_bytes": found.forecast.persistent_bytes,
            "expected_peak_bytes": {batch: found.expected_bytes(batch) for batch in SHOWN_BATCHES},
            "largest_batch": {
                card.preset.name: card.frontier[-1].batch_size if card.frontier else None for card in found.cards
            },
        }
        for found in answer.recipes
    ]
    return json.dumps(
        {"name": answer.name, "network": answer.network, "notes": answer.notes, "recipes": recipes}, indent=2
    )
