"""The page of finetune.py: tables and sentences that follow from its records."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

Record = dict[str, Any]

NAMES = {
    "plain": "Trainer, {batch} a pass",
    "trl": "SFTTrainer, {batch} a pass",
    "trl_default": "SFTTrainer as it comes, {batch} a pass",
    "ours": "ours, file says {batch} a pass",
    "whole": "the whole step in one pass, no budget",
}
MOST_LOSS_DIFFERENCE = 1e-3
"""Of a step of ours from the same step in one pass, relative: only rounding may tell them apart."""

INTRODUCTION = """\
One epoch of {samples} conversations, each about a picture of 64 to 160 px a side and of one to three turns, on a
Qwen3-VL of {weights_m:.1f} million random weights (AdamW, float32, a constant rate), on one thread. Every optimizer
step has {step} conversations, in as many passes as the forward batch asks for; all learn the same tokens in the
same order. Each method runs in a process of its own under an enforced budget of {budget_mib} MiB for what steps add
to weights and optimizer state, {times}, in turns; the run of median steady speed is shown. Samples a second are of
CPU time: *whole run* from the start of the process to its end (imports, looking through the data, traces, the model
written), *steady* over the last three quarters of the steps, with its range. Memory is the peak of passes (of ours:
of steps) as a share of the budget, the median and the most. Loss: of the model after the epoch on {held_back}
conversations that nobody trained on, always measured in the same way. Off by: how far the loss of a step was at
most from that of the same step in one pass."""

TRL_NOTE = """\
TRL's collator for pictures works without torchvision, which no process imported; its processor was built as
ours is, since `AutoProcessor` of this family asks for torchvision. It is told what the others do: float32, no limit
of tokens, the answers alone. Its head computes in pieces of 32,768 words; for a model of {words:,} it reserves that
much all the same, so the rows without *as it comes* have pieces of {words:,}, in its favour. *As it comes* has that
buffer and the gradient checkpointing that is its default. On a card its head computes the learned places alone;
here it computes all, so its figures on this page say little of a card."""

PLAIN_NOTE = """\
The Trainer of transformers has no collator for such conversations and was given ours. It and TRL's
weigh the passes of a step alike, however much each has to learn, since this model says that its loss takes no count
of the step's tokens: so their loss depends on the forward batch. Ours weighs passes by what they learn."""


def name_of(method: str) -> str:
    """Return what the page calls a method."""
    kind, batch, *_ = method.split()
    return NAMES[kind].format(batch=batch)


def page(result: Record) -> str:
    """Return the page in Markdown."""
    facts = result["facts"]
    times = "once" if facts["repeats"] == 1 else f"{facts['repeats']} times"
    lines = [
        "# Fine-tuning a vision-language model: ours beside transformers' Trainer and TRL's",
        "",
        f"`{facts['command']}`, {facts['date']}: {facts['machine']}, torch {facts['torch']}, transformers "
        f"{facts['transformers']}, trl {facts['trl']}.",
        *([facts["note"]] if facts["note"] else []),
        "",
        INTRODUCTION.format(**facts, times=times),
        "",
        "| | a pass | samples/s, whole run | steady | memory, median | most | OOMs | crashes | loss | off by | wall s "
        "| CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(row(record) for record in result["records"]),
        "",
        *crashes(result["records"]),
        *ahead(result["records"]),
        *behind(result["records"]),
        "",
        PLAIN_NOTE,
        "",
        TRL_NOTE.format(**facts),
        "",
        *claim(result),
    ]
    return "\n".join(lines) + "\n"


def row(record: Record) -> str:
    """Return a method's line of the table; one that died has no speed and no loss."""
    died = record["failure"] is not None
    speeds = ["", ""] if died else [f"{record['samples_per_s']:.1f}", steady(record)]
    uses = [f"{record[key]:.0%}" if record[key] else "" for key in ("use", "most_use")]
    loss = "" if died else f"{record['loss']:.4f}"
    off = "" if died else f"{record['loss_difference']:.1e}"
    cells = [name_of(record["method"]), str(record["batch"] or ""), *speeds, *uses, str(record["ooms"])]
    cells += [f"{record['failures']} of {record['runs']}", loss, off]
    return "| " + " | ".join([*cells, f"{record['wall_s']:.1f}", f"{record['cpu_s']:.1f}"]) + " |"


def steady(record: Record) -> str:
    """Return the steady speed of a method with its range over the repeats."""
    least, most = record["steady_range"]
    said = f"{record['steady_per_s']:.1f}"
    return said if least == most else f"{said} ({least:.1f} to {most:.1f})"


def crashes(records: Sequence[Record]) -> list[str]:
    """Say what those that died died of, and when."""
    died = [record for record in records if record["failure"] is not None]
    lines = [
        f"- {name_of(record['method'])}: {record['lost']} conversations untrained, {_short(record['failure'])}"
        for record in died
    ]
    return ["What died:", "", *lines, ""] if lines else []


def _short(failure: str) -> str:
    return failure.replace("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: ", "").split(".")[0][
        :110
    ]


def ahead(records: Sequence[Record]) -> list[str]:
    """Say what ours did by itself."""
    ours = [record for record in records if record["method"].startswith("ours")]
    passes = sorted({record["batch"] for record in ours})
    sizes = " and ".join(map(str, passes))
    files = " and ".join(str(record["method"].split()[1]) for record in ours)
    failures = sum(record["ooms"] for record in ours)
    return [
        f"Whether its file said {files} conversations a pass, ours ran passes with room for {sizes} of the largest, "
        f"out of memory {failures} times; others are told a batch, and somebody has to find it.",
        "",
    ]


def behind(records: Sequence[Record]) -> list[str]:
    """Say plainly who was faster than our faster run, in a whole run and in the steady state."""
    finished = [record for record in records if record["failure"] is None and not record["method"].startswith("whole")]
    ours = [record for record in finished if record["method"].startswith("ours")]
    if not ours:
        return ["Ours came to no end."]
    lines = []
    for key, words in (("samples_per_s", "Over the whole run"), ("steady_per_s", "In the steady state")):
        best = max(float(record[key]) for record in ours)
        faster = [record for record in finished if record not in ours and record[key] > best]
        names = ", ".join(f"{name_of(record['method'])} ({record[key]:.1f})" for record in faster)
        said = f"faster were {names}" if faster else "nobody was faster"
        lines.append(f"- {words}, ours trained {best:.1f} conversations a second; {said}.")
    start = median(record["start_s"] for record in ours)
    plain = [record["start_s"] for record in finished if record["method"].startswith("plain")]
    if plain:
        lines.append(
            f"- Before its first step ours took {start:.1f} s of CPU, the Trainer {median(plain):.1f}: ours traces "
            "steps and tries one. A short run does not earn that back."
        )
    return ["Where ours loses:", "", *lines]


def claim(result: Record) -> list[str]:
    """Set the claim of the source beside what was measured."""
    by_method = {record["method"]: record for record in [*result["records"], *result["alone"]]}
    lines = [
        "## The source's claim: 2 to 4 times faster at a batch of 4 than of 1, and a smoother loss",
        "",
        "It is of graphics cards, which a pass of one conversation leaves mostly idle. No card was at hand, and one",
        "thread of a CPU has nothing idle. Here, by the Trainer of transformers under the same budget:",
        "",
        "| | 1 | 4 | 4 over 1 |",
        "|---|---:|---:|---:|",
    ]
    step = result["facts"]["step"]
    pairs = (
        (f"plain 1 {step}", f"plain 4 {step}", f"steady samples/s, steps of {step}", "steady_per_s", ".1f"),
        ("plain 1 1", "plain 4 4", "steady samples/s, a step each pass", "steady_per_s", ".1f"),
        (f"plain 1 {step}", f"plain 4 {step}", "tokens computed for each that is there", "padded", ".2f"),
        ("plain 1 1", "plain 4 4", "loss from step to step, root mean square change", "roughness", ".3f"),
    )
    for one, four, words, key, form in pairs:
        values = [float(by_method.get(method, {}).get(key) or 0.0) for method in (one, four)]
        if all(values):
            lines.append(f"| {words} | {values[0]:{form}} | {values[1]:{form}} | {values[1] / values[0]:.2f} |")
    lines += [
        "",
        "The change of the loss is over the second half of the epoch: smoother, since a step averages over more;",
        "larger passes of the same step smooth nothing. More tokens than there are: padding to the longest of a pass.",
    ]
    return lines


def roughness(losses: Sequence[float]) -> float:
    """Return the root mean square change of a loss from step to step, over the second half."""
    half = losses[len(losses) // 2 :]
    changes = [(after - before) ** 2 for before, after in pairwise(half)]
    return (sum(changes) / len(changes)) ** 0.5 if changes else 0.0


def furthest(losses: Sequence[float], reference: Sequence[float]) -> float:
    """Return the largest relative difference of the loss of a step from that of a reference."""
    return max(abs(loss / other - 1) for loss, other in zip(losses, reference, strict=True))


def steady_rate(seconds: Sequence[float], step: int) -> float:
    """Return samples a second over the last three quarters of the steps.

    Args:
        seconds: when training began, and when each step had ended.
        step: samples of each.
    """
    first = (len(seconds) - 1) // 4
    return step * (len(seconds) - 1 - first) / (seconds[-1] - seconds[first])


def is_kept(result: Record) -> bool:
    """Say whether ours holds what it promises: it ends, loses nothing, and learns what the whole step would.

    And whether the page is right that nobody imported torchvision.
    """
    ours = [record for record in result["records"] if record["method"].startswith("ours")]
    if any(record.get("torchvision") for record in result["records"]):
        return False
    return all(
        not record["failures"] and not record["lost"] and record["loss_difference"] <= MOST_LOSS_DIFFERENCE
        for record in ours
    )
