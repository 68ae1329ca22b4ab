"""What the logs of a run say about time and quality, and the page made of it: pure functions of records."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf, isinf
from statistics import median
from typing import Any

Record = dict[str, Any]
Curve = Sequence[Sequence[float]]
"""Validations in order: seconds of training, samples, dB of PSNR-Y above bicubic."""

Group = list[Record]
METRIC = "psnr_y"
START = "start"
EXPLANATION = (
    "Every run trains {samples} samples under the same budget and ends its schedule (cosine, warm-up) with the last;",
    "`start, same pixels` trains as many pixels instead, in more of the smaller crops. `start` keeps the plan of the",
    "option file, `memory` and `throughput` are objectives of the controller, `target16` holds 16 samples a step in as",
    "many pieces as fit. Quality: PSNR-Y above bicubic, averaged weights, mean of the held-out photographs, straight",
    "lines between validations. Seconds are those of training steps and of waiting for batches. `sqrt` scales rate and",
    "moving average by the samples of a step over those of the option file; `target16` always has the samples that it",
    "counts from, so that lr_scaling changes nothing there by design: it was run once. Median over seeds",
    "(lowest..highest).",
    "",
    "Two columns compare at the same second, when the fastest variant ends and when the slowest does; a run that ended",
    "before keeps its result. One that goes on has a high rate still: with a shorter schedule it would stand higher.",
)
UNSETTLED_STEPS = 25
"""A period of the quick start's controller: a plan that held for less had not settled."""

RATES = (("peak_share", "{:.0%}"), ("steps_per_s", "{:.1f}"), ("mpixels_per_s", "{:.2f}"))


def figures_of(steps: Sequence[Record], validations: Sequence[Record], config: Record) -> Record:
    """Return the figures of a run from its training_log.jsonl, validation.jsonl and config.json."""
    last, seconds = steps[-1], sum(step["data_s"] + step["step_s"] for step in steps)
    peaks = [step["peak"]["allocated"] / step["peak"]["limit"] for step in steps]
    curve = curve_of(steps, validations)
    return {
        "configured": {key: config["train"][key] for key in ("total_samples", "lr_scaling")},
        "trained_samples": sum(step["samples"] for step in steps),
        "seconds": round(seconds, 3),
        "steps": len(steps),
        "steps_per_s": len(steps) / seconds,
        "mpixels_per_s": sum(step.get("units", step.get("pixels")) for step in steps) / seconds / 1e6,
        "plan": plan_in_words(last["plan"]),
        "held_steps": next((n for n, step in enumerate(reversed(steps)) if step["plan"] != last["plan"]), len(steps)),
        "peak_share": max(peaks),
        "ooms": sum(step["ooms"] for step in steps),
        "validation_s": round(sum(validation["seconds"] for validation in validations), 1),
        "gain_db": curve[-1][2],
        "curve": curve,
    }


def curve_of(steps: Iterable[Record], validations: Iterable[Record]) -> list[list[float]]:
    """Return seconds, samples and gain at each validation; what validations take is on no axis."""
    seconds, samples = 0.0, 0
    after: dict[int, tuple[float, int]] = {}
    for step in steps:
        seconds, samples = seconds + step["data_s"] + step["step_s"], samples + step["samples"]
        after[step["step"]] = round(seconds, 3), samples
    return [
        [*after[validation["step"]], float(validation["metrics"][METRIC]) - float(validation["bicubic"][METRIC])]
        for validation in validations
    ]


def plan_in_words(plan: Record) -> str:
    """Return a plan as the console writes it: samples, pieces if there are several, crop."""
    pieces = f"/{plan['micro_batches']}" if plan["micro_batches"] > 1 else ""
    return f"{plan['batch_size']}{pieces}x{plan['lq_size']}"


def reached(curve: Curve, level_db: float) -> tuple[float, float]:
    """Return after how many seconds and samples a curve first comes to a level; infinities if it never does."""
    if curve and curve[0][2] >= level_db:
        return curve[0][0], curve[0][1]
    for (seconds, samples, gain), (seconds_2, samples_2, gain_2) in pairwise(curve):
        if gain < level_db <= gain_2:
            share = (level_db - gain) / (gain_2 - gain)
            return seconds + share * (seconds_2 - seconds), samples + share * (samples_2 - samples)
    return inf, inf


def gain_at(curve: Curve, seconds: float) -> float:
    """Return the gain after so many seconds; before the first and after the last validation it is theirs."""
    for (before, _, gain), (after, _, gain_2) in pairwise(curve):
        if before <= seconds <= after and after > before:
            return gain + (gain_2 - gain) * (seconds - before) / (after - before)
    return curve[0][2] if seconds < curve[0][0] else curve[-1][2]


def spread(values: Sequence[float], form: str = "{:.1f}") -> str:
    """Return the median with the lowest and the highest; an infinity is a run that never came there."""
    low, middle, high = ("never" if isinf(figure) else form.format(figure) for figure in _ends(values))
    return middle if low == high else f"{middle} ({low}..{high})"


def _ends(values: Sequence[float]) -> tuple[float, float, float]:
    # The upper one of two in the middle: a median between a figure and "never" would be neither.
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2] if isinf(ordered[-1]) else median(ordered)
    return ordered[0], middle, ordered[-1]


def typical(values: Sequence[float]) -> float:
    """Return what :func:`spread` writes first."""
    return _ends(values)[1]


def grouped(results: Sequence[Record]) -> dict[str, Group]:
    """Return the runs by the name of their variant, seeds in order; ``sqrt`` is part of the name."""
    groups: dict[str, Group] = {}
    for result in sorted(results, key=lambda result: int(result["seed"])):
        name = result["variant"] if result["scaling"] == "none" else f"{result['variant']}, {result['scaling']}"
        groups.setdefault(name, []).append(result)
    order = list(dict.fromkeys(result["variant"] for result in results))
    return dict(sorted(groups.items(), key=lambda item: (order.index(item[1][0]["variant"]), item[0])))


def moments(groups: dict[str, Group]) -> list[float]:
    """Return when the fastest variant ends and when the slowest does, in seconds of training."""
    ends = [typical([result["seconds"] for result in group]) for group in groups.values()]
    return sorted({min(ends), max(ends)})


def seconds_to(group: Group, level_db: float) -> list[float]:
    """Return the seconds of each run until a level."""
    return [reached(result["curve"], level_db)[0] for result in group]


def table(groups: dict[str, Group], levels_db: Sequence[float]) -> list[str]:
    """Return the one table of the page."""
    at = moments(groups)
    heads = ["runs", "plan", "peak use", "steps/s", "Mpixel/s", *(f"s to {level:+g} dB" for level in levels_db)]
    heads += [f"dB after {moment:.0f} s" for moment in at] + ["dB at its end", "after s"]
    rows = ["| variant | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
    for name, group in groups.items():
        cells = [str(len(group)), ", ".join(sorted({result["plan"] for result in group}))]
        cells += [spread([result[key] for result in group], form) for key, form in RATES]
        cells += [spread(seconds_to(group, level), "{:.0f}") for level in levels_db]
        cells += [spread([gain_at(result["curve"], moment) for result in group], "{:+.2f}") for moment in at]
        cells += [spread([result["gain_db"] for result in group], "{:+.2f}")]
        cells += [spread([result["seconds"] for result in group], "{:.0f}")]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return rows


def in_samples(groups: dict[str, Group], levels_db: Sequence[float]) -> list[str]:
    """Return the same levels in samples."""
    rows = ["| samples to | " + " | ".join(f"{level:+g} dB" for level in levels_db) + " | in all |"]
    rows.append("|---" + "|---:" * (len(levels_db) + 1) + "|")
    for name, group in groups.items():
        needed = [spread([reached(result["curve"], level)[1] for result in group], "{:.0f}") for level in levels_db]
        rows.append(
            f"| {name} | "
            + " | ".join([*needed, spread([result["trained_samples"] for result in group], "{:.0f}")])
            + " |"
        )
    return rows


def first_to(groups: dict[str, Group], levels_db: Sequence[float]) -> Iterator[str]:
    """Say of each level who came there first, by how much, and who never did."""
    for level in levels_db:
        times = {name: typical(seconds_to(group, level)) for name, group in groups.items()}
        came = sorted((name for name in times if not isinf(times[name])), key=times.__getitem__)
        if not came:
            yield f"{level:+g} dB: no variant came there."
            continue
        sentence = f"{level:+g} dB: first `{came[0]}`, after {times[came[0]]:.0f} s"
        if len(came) > 1:
            ahead = paired(groups[came[0]], groups[came[1]], level)
            sentence += f"; then `{came[1]}`, after {times[came[1]]:.0f} s ({ahead})"
        never = [f"`{name}`" for name in groups if name not in came]
        samples = min(groups, key=lambda name: typical([reached(result["curve"], level)[1] for result in groups[name]]))
        sentence += f". Fewest samples: `{samples}`."
        yield sentence + (f" Never, in the median: {', '.join(never)}." if never else "")


def paired(first: Group, second: Group, level_db: float) -> str:
    """Say in how many seeds the first group came to a level before the second."""
    theirs = {result["seed"]: reached(result["curve"], level_db)[0] for result in second}
    both = [result for result in first if result["seed"] in theirs]
    wins = sum(reached(result["curve"], level_db)[0] < theirs[result["seed"]] for result in both)
    return f"the first is ahead in {wins} of {len(both)} seeds"


def against_start(groups: dict[str, Group], levels_db: Sequence[float], variant: str) -> str:
    """Say whether a variant, at the better of its settings, trains better per second than the plan of the file."""
    mine = [group for group in groups.values() if group[0]["variant"] == variant]
    theirs = [group for group in groups.values() if group[0]["variant"].startswith(START)]
    first, second = 0, 0
    for level in levels_db:
        a, b = (min(typical(seconds_to(group, level)) for group in side) for side in (mine, theirs))
        first, second = first + (a < b), second + (b < a)
    gains = []
    for moment in moments(groups):
        a, b = (
            max(typical([gain_at(result["curve"], moment) for result in group]) for group in side)
            for side in (mine, theirs)
        )
        first, second = first + (a > b), second + (b > a)
        gains.append(f"after {moment:.0f} s it is at {a:+.2f} dB, `{START}` at {b:+.2f} dB")
    answer = "yes" if first and not second else "no" if second and not first else "no clear answer"
    sentence = f"Does `{variant}` train better per second than `{START}`? Here: {answer}. "
    return sentence + f"Of {first + second} comparisons it wins {first}; {'; '.join(gains)}."


def of_scaling(groups: dict[str, Group], levels_db: Sequence[float]) -> Iterator[str]:
    """Say of each variant that was run with and without scaling whether it helped."""
    for name, group in groups.items():
        scaled = groups.get(f"{name}, sqrt")
        if scaled is None:
            continue
        plain = {result["seed"]: result["gain_db"] for result in group}
        more = [result["gain_db"] - plain[result["seed"]] for result in scaled if result["seed"] in plain]
        if not more:
            continue
        wins = sum(gain > 0 for gain in more)
        answer = "helped" if wins == len(more) else "did not help" if not wins else "made no clear difference"
        answer = answer if len(more) > 1 else "was tried with one seed, which decides nothing,"
        sentence = f"`lr_scaling: sqrt` {answer} with `{name}`: {spread(more, '{:+.2f}')} dB at the end"
        sentence += f", higher in {wins} of {len(more)} seeds"
        for level in levels_db:
            without, with_it = typical(seconds_to(group, level)), typical(seconds_to(scaled, level))
            if not isinf(without) and not isinf(with_it):
                sentence += f"; {level:+g} dB after {with_it:.0f} s, without {without:.0f} s"
        yield sentence + "."


def unsettled(groups: dict[str, Group]) -> str:
    """Say whose last plan was too new to be called settled."""
    new = [
        f"`{name}` seed {result['seed']}"
        for name, group in groups.items()
        for result in group
        if result["held_steps"] < min(UNSETTLED_STEPS, result["steps"])
    ]
    return f"- The last plan had held for less than {UNSETTLED_STEPS} steps: {', '.join(new)}." if new else ""


def page(results: Sequence[Record], levels_db: Sequence[float], facts: Record) -> str:
    """Return the page in Markdown; every sentence that judges follows from the figures."""
    groups = grouped(results)
    steered = [name for name in dict.fromkeys(result["variant"] for result in results) if not name.startswith(START)]
    has_start = any(name.startswith(START) for name in groups)
    beside = [
        f"`{name}` {typical([result['wall_s'] - result['seconds'] - result['validation_s'] for result in group]):.0f} s"
        for name, group in groups.items()
    ]
    loads = [result["load"] for result in results]
    parts = [
        "# Time to quality: does a fuller memory train better per second?",
        "",
        f"`{facts['command']}`,",
        f"{facts['date']}: {facts['machine']}, Python {facts['python']}, torch {facts['torch']}, one thread.",
        *([facts["note"]] if facts["note"] else []),
        "Nothing here was measured on a GPU, and nothing of it says how a GPU would come out.",
        "",
        *(line.format(samples=facts["samples"]) for line in EXPLANATION),
        "",
        *table(groups, levels_db),
        "",
        *(f"- {against_start(groups, levels_db, name)}" for name in steered if has_start),
        *(f"- {sentence}" for sentence in first_to(groups, levels_db)),
        *(f"- {sentence}" for sentence in of_scaling(groups, levels_db)),
        *filter(None, [unsettled(groups)]),
        "",
        *in_samples(groups, levels_db),
        "",
        f"Out of memory: {sum(result['ooms'] for result in results)} times in {len(results)} runs. Load of the machine "
        "over",
        f"a minute when runs began: {spread(loads)}, the run before included. On no axis: validation, and what a",
        f"process does besides (imports, traces, checkpoints): {'; '.join(beside)}.",
        "",
    ]
    return "\n".join(parts)
