"""The page of ``gradients.py``."""

from collections import Counter
from collections.abc import Mapping, Sequence

from gradients_cases import LOSSES, MISUSES, WAYS, Cell
from gradients_models import MODELS
from gradients_verdict import EQUAL, GIVEN_BACK, MOST_ERROR, PASSES, REFUSED, SMALLER, WRONG, Verdict, right_outcomes

SIGNS = {EQUAL: "=", SMALLER: "s", PASSES: "p", GIVEN_BACK: "b", REFUSED: "r", WRONG: "**WRONG**"}
WAY_TITLES = {
    "engine": "The engine's step",
    "loop": "AdaptiveLoop",
    "trainer": "MemoryAwareTrainer",
}
INTRODUCTION = """\
Each cell trains three steps in float64, of which memory holds a part of the samples; a plain PyTorch loop, in which
nothing of the package is used, trains the same samples of the same model. Compared are the gradients that the optimizer
gets, the update of the weights, and buffers and weights without gradients, after each step; every sample has to be
trained once. An error is a difference of norms, relative to the plain loop's; above {most_error:g} a cell is wrong.

Memory runs out after a forward pass over more samples than there is room for (8 a step, room for 3; with "a remainder
of 1" 3 a step, room for 2), and once in the backward pass of the second part of the second step. "measured first" has a
memory budget, under which plans are measured before the first step. With dropout, and with the teacher, whose forward
pass moves its weights, the plain loop runs the same parts, for a pass over parts is another one than over the whole.
The Llama normalises in float32, whatever its weights are, which shows in errors of 1e-8 where parts are scaled later.
Loops and the engine are told weights and which losses couple samples; a Trainer finds out.

Not among the cells: a batch that is changed behind torch (`.data`, a view of numpy) in a later step, and in no step
before. Batches are compared by value in the first step; later torch's count of changes tells, which these pass by."""
LEGEND = """\
| sign | outcome |
|---|---|
| = | equal, in steps of the samples they were given |
| s | equal, but the samples came in smaller steps, since parts are no way out |
| p | parts weigh as their samples do, and a warning says so |
| b | given back whole: no smaller batch is left, and nothing has changed |
| r | refused in words |"""


def page(
    cells: Sequence[Cell], verdicts: Sequence[Verdict], scripts: Sequence[Verdict], facts: Mapping[str, str]
) -> str:
    """Return the page in Markdown."""
    by_key = {verdict.key: verdict for verdict in verdicts}
    wrong = [verdict for verdict in [*verdicts, *scripts] if verdict.outcome == WRONG]
    lines = [
        "# Gradients and updates against plain PyTorch",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}; {facts['cpu_s']} s of CPU.",
        "",
        INTRODUCTION.format(most_error=MOST_ERROR),
        "",
        f"{len(verdicts)} cells, {len(wrong)} wrong (with the scripts). A table's cell has the outcomes of all models:",
        f"{', '.join(model.name for model in MODELS)}, in this order.",
        "",
        LEGEND,
    ]
    for way in WAYS:
        here = [cell for cell in cells if cell.way == way]
        if here:
            lines += ["", f"## {WAY_TITLES[way]}", "", *_table(here, by_key)]
    lines += ["", "## Which outcome is right, and why", "", *_reasons(cells)]
    if refused := _words(verdicts, REFUSED):
        lines += ["", "## What is refused, in its words", "", *refused]
    if said := _words(verdicts, PASSES):
        lines += ["", "## What is said of parts", "", *said]
    if scripts:
        lines += ["", "## Scripts", "", "| script | outcome | in words |", "|---|---|---|"]
        lines += [f"| {script.key.split(' | ')[1]} | {script.outcome} | {_cell(script.words)} |" for script in scripts]
    if wrong:
        lines += ["", "## Wrong", "", "| cell | error | in words |", "|---|---:|---|"]
        lines += [f"| {_cell(verdict.key)} | {_error(verdict)} | {_cell(verdict.words)} |" for verdict in wrong]
    return "\n".join(lines) + "\n"


def _table(cells: Sequence[Cell], verdicts: Mapping[str, Verdict]) -> list[str]:
    lines = ["| misuse | " + " | ".join(loss.name for loss in LOSSES) + " | largest error |"]
    lines.append("|---|" + "---|" * len(LOSSES) + "---:|")
    for misuse in MISUSES:
        row = [cell for cell in cells if cell.misuse is misuse]
        if not row:
            continue
        columns = [
            " ".join(SIGNS[verdicts[cell.key].outcome] for cell in row if cell.loss is loss) or "-" for loss in LOSSES
        ]
        errors = [error for cell in row if (error := verdicts[cell.key].error) is not None]
        lines.append(f"| {misuse.name} | {' | '.join(columns)} | {max(errors, default=0.0):.0e} |")
    return lines


def _reasons(cells: Sequence[Cell]) -> list[str]:
    """Return the outcomes that are right, with the reason and the number of cells."""
    counts = Counter(right_outcomes(cell) for cell in cells)
    lines = ["| right | since | cells |", "|---|---|---:|"]
    for (right, why), count in counts.most_common():
        names = sorted(right, key=list(SIGNS).index)
        lines.append(f"| {'; '.join(names)} | {why} | {count} |")
    return lines


def _words(verdicts: Sequence[Verdict], outcome: str) -> list[str]:
    counts = Counter(verdict.words for verdict in verdicts if verdict.outcome == outcome)
    return [f"- {count} cells: {words}" for words, count in counts.most_common()]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", ",")


def _error(verdict: Verdict) -> str:
    return "" if verdict.error is None else f"{verdict.error:.1e}"
