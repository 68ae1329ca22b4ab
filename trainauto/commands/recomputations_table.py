"""What ``plan --recipes`` prints of a file of images or texts: memory against computation of gradient checkpointing."""

import json

from trainauto.commands.tables import aligned
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.forecast.card_answer import FITTING
from trainauto.forecast.recomputation import Recomputations, Recomputed
from trainauto.reporting.formatting import WIDTH, wrapped

EXPLAINED = (
    "run again: blocks that the backward pass computes once more (memory: gradient_checkpointing); `auto` takes as few "
    "as let the plan fit, in the same order. compute: multiplications of a step, over those without. fits: yes, with a "
    "probability of 99 %; likely, with less; no."
)


def recomputations_table(answer: Recomputations) -> str:
    """Return the answer in words, within 80 columns."""
    none = max(1, answer.rows[0].taken.multiplications)
    rows = [
        (
            str(row.blocks),
            size_text(row.allocated.expected_bytes),
            size_text(row.allocated.most_bytes),
            f"x {row.taken.multiplications / none:.2f}",
        )
        for row in answer.rows
    ]
    what = f"{answer.name}: {answer.plan}, {counted(answer.of, 'block')} can run again in the backward pass"
    return "\n".join(
        [
            *wrapped(what, WIDTH, ""),
            "",
            *aligned(("run again", "expected", "99 % bound", "compute"), rows),
            "",
            "fits:",
            *aligned(("run again", *(str(row.blocks) for row in answer.rows)), _fitting(answer)),
            *wrapped(EXPLAINED, WIDTH, ""),
        ]
    )


def _fitting(answer: Recomputations) -> list[tuple[str, ...]]:
    return [(card, *(FITTING[row.fits[card]] for row in answer.rows)) for card in answer.rows[0].fits]


def recomputations_json(answer: Recomputations) -> str:
    """Return the answer for machines: bytes throughout."""
    rows = [_as_dict(row) for row in answer.rows]
    return json.dumps({"name": answer.name, "plan": answer.plan.to_dict(), "blocks": answer.of, "rows": rows}, indent=2)


def _as_dict(row: Recomputed) -> dict[str, object]:
    return {
        "blocks": row.blocks,
        "expected_peak_bytes": row.allocated.expected_bytes,
        "upper_peak_bytes": row.allocated.most_bytes,
        "least_reserved_bytes": row.taken.reserved_bytes,
        "multiplications": row.taken.multiplications,
        "fits": {card: FITTING[fits] for card, fits in row.fits.items()},
    }
