"""The page of text_batching.py: its tables, and what of the goals does not hold."""

import platform
from pathlib import Path
from typing import Any

LEAST_TO_SHUFFLED, LEAST_TO_MAX_TOKENS = 2.0, 0.97
MOST_SECONDS = {"20000": 0.005, "1000000": 0.4}
MOST_CLASSIFIED_SECONDS = 0.15

COMMAND = "python scripts/bench/text_batching.py"


def cpu_name() -> str:
    """Return what Linux calls the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def missed(results: dict[str, Any]) -> list[str]:
    """Return what does not hold of the goals, a line each."""
    lines = []
    rows = results.get("packing", [])
    for ours in (row for row in rows if row["method"] == "ours"):
        for row in rows:
            if row["cap"] != ours["cap"] or row["method"].startswith("ours"):
                continue
            if (row["batches"], row["padded_tokens"]) < (ours["batches"], ours["padded_tokens"]):
                lines.append(f"{row['method']} has fewer batches, or as few with less padding, than ours")
    for texts, seconds in results.get("many_s", {}).items():
        if seconds > MOST_SECONDS[texts]:
            lines.append(f"{texts} texts are planned in {1000 * seconds:.1f} ms")
    lines += [
        f"{row['lengths']}, {row['base']} texts first: planned in {row['seconds']:.2f} s"
        for row in results.get("classifier", {}).get("rows", [])
        if row["seconds"] > MOST_CLASSIFIED_SECONDS
    ]
    for row in results.get("throughput", []):
        if row["method"] == "ours":
            if row["to_shuffled"] < LEAST_TO_SHUFFLED:
                lines.append(f"{row['task']}: {row['to_shuffled']:.2f} times fixed and shuffled")
            if row["to_max_tokens"] < LEAST_TO_MAX_TOKENS:
                lines.append(f"{row['task']}: {row['to_max_tokens']:.2f} of max tokens")
    return lines


def page(results: dict[str, Any]) -> str:
    """Return the whole page."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("numpy", "torch", "transformers", "dynabatch"))
    parts = [
        "# Batches of texts of different lengths\n\n"
        f"`{COMMAND}`, {machine['date']}, {machine['cpu']}, {machine['cpus']} cores, Python {machine['python']}, "
        f"{versions}. No GPU.\n",
        *_packing(results),
        *_throughput(results),
        *_classified(results),
        "## Missed goals\n\n" + ("\n".join(f"- {line}." for line in missed(results)) or "None.") + "\n",
    ]
    return "\n".join(parts)


def _packing(results: dict[str, Any]) -> list[str]:
    if "packing" not in results:
        return []
    lines = [
        "## Packing\n\n"
        "The data are 20,000 lognormal lengths (median 40 tokens, at most 512), on one thread, without tokenizing. A\n"
        "batch may hold 64 x 512 padded tokens, and at most `cap` texts. Ours is the packing layer with the cost\n"
        "`tokens`. The row of 50 candidates is the rule of `build_dynamic_batch_dataloader` with the same cost. Max\n"
        "tokens is fairseq's rule. dynabatch uses its regressor of memory with its own threshold, which is another\n"
        "bound.\n",
        "| method | cap | batches | padded tokens | padding | largest batch, tokens | time |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["packing"]:
        name = f"**{row['method']}**" if row["method"].startswith("ours") else row["method"]
        lines.append(
            f"| {name} | {row['cap'] or 'none'} | {row['batches']} | {row['padded_tokens']:,} | {row['waste']:.1%} "
            f"| {row['largest']:,} | {1000 * row['seconds']:.1f} ms |"
        )
    times = " and ".join(f"{int(n):,} texts in {1000 * s:.1f} ms" for n, s in results["many_s"].items())
    return ["\n".join(lines), f"\nThe packing layer plans {times} (median of five, no cap).\n"]


def _throughput(results: dict[str, Any]) -> list[str]:
    if "throughput" not in results:
        return []
    lines = [
        "## Tokens a second under one memory budget\n\n"
        "Small networks run on this CPU, and methods take turns in the same processes. The tasks are mean vectors of\n"
        "an encoder (`embed`), 16 more tokens of an encoder with a decoder (`generate`), and an epoch of a language\n"
        "model (`train`). The enforced budget is the memory of the batch of the longest texts, and 15 % more. A batch\n"
        "that runs out of memory is counted and retried in halves. Tokens exclude padding. Seconds are CPU time of\n"
        "one thread, which other work on the machine changes little. Ratios are medians over turns.\n",
        "| task | method | batches | out of memory | peak of budget, MiB | tokens/s | to shuffled | to max tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results["throughput"]:
        name = f"**{row['method']}**" if row["method"] == "ours" else row["method"]
        lines.append(
            f"| {row['task']} | {name} | {row['batches']} | {row['failures']} | {row['peak_mib']:.0f} of "
            f"{row['budget_mib']:.0f} | {row['tokens_per_s']:,.0f} | {row['to_shuffled']:.2f} "
            f"| {row['to_max_tokens']:.2f} |"
        )
    if results.get("training_order") == "random":
        lines.append("\nIn training, the batches of all methods come in random order, as fairseq and ours return them.")
    faster = [
        f"{row['task']} ({row['to_max_tokens']:.2f} of max tokens)"
        for row in results["throughput"]
        if row["method"] == "fixed, sorted" and row["to_max_tokens"] > max(1.0, _ours(results, row["task"]))
    ]
    if faster:
        lines.append(
            f"\nSmall sorted batches of a fixed count are the fastest here in: {', '.join(faster)}. A CPU gains\n"
            "nothing from larger batches, whose tensors exceed its caches. This has not been measured on a GPU."
        )
    return ["\n".join(lines) + "\n"]


def _ours(results: dict[str, Any], task: str) -> float:
    rows = (r for r in results["throughput"] if r["task"] == task and r["method"] == "ours")
    return next(float(row["to_max_tokens"]) for row in rows)


def _classified(results: dict[str, Any]) -> list[str]:
    if "classifier" not in results:
        return []
    part = results["classifier"]
    machine, rows = part["machine"], part["rows"]
    batches = sum(row["batches"] for row in rows)
    lines = [
        "## Batches that the classifier admits\n\n"
        f"`{COMMAND} --part classifier`, {machine['date']}, {machine['cpu']}, {machine['cpus']} cores, Python "
        f"{machine['python']}, numpy {part['numpy']}.\n\n"
        'The table shows what `build_dynamic_batch_dataloader(..., classifier="shipped")` plans for\n'
        f"{part['texts']:,} texts, cut to 512 tokens, by the texts of the first batch and the threshold\n"
        "([../classifier.md](../classifier.md)).\n\n"
        f"Each of these {batches:,} batches was checked against the rule, without the search that made them. The\n"
        "first batch holds exactly the base. Every other one holds the largest admitted number of 50 candidates (or\n"
        "the rest), and the base if none is admitted. Admitted candidates are always a prefix of the list. Those at\n"
        "0.1 were compared with the batches of the loader itself. Times are of one thread, without tokenizing,\n"
        "medians. The last column is the loader's default, the relative cost, at the same threshold.\n",
        "| lengths | base | threshold | batches | larger than base | largest, texts | padded tokens | padding | time "
        "| batches by relative cost |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['lengths']} | {row['base']} | {row['threshold']} | {row['batches']:,} | {row['larger']:,} "
        f"| {row['most_texts']} | {row['padded_tokens']:,} | {row['waste']:.1%} | {1000 * row['seconds']:.0f} ms "
        f"| {row['relative_batches']:,} |"
        for row in rows
    ]
    return ["\n".join(lines) + "\n"]
