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
        "## What does not hold\n\n" + ("\n".join(f"- {line}." for line in missed(results)) or "Nothing.") + "\n",
    ]
    return "\n".join(parts)


def _packing(results: dict[str, Any]) -> list[str]:
    if "packing" not in results:
        return []
    lines = [
        "## Packing\n\n"
        "20,000 lognormal lengths (median 40 tokens, at most 512), one thread, without tokenizing. A batch may hold\n"
        "64 x 512 padded tokens, and at most `cap` texts. Ours is the packing layer under the cost `tokens`; that of\n"
        "50 candidates is the rule of `build_dynamic_batch_dataloader` under the same cost. Max tokens is fairseq's\n"
        "rule. dynabatch decides by its regressor of memory, at its own threshold: another bound.\n",
        "| method | cap | batches | padded tokens | padding | largest batch, tokens | time |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["packing"]:
        name = f"**{row['method']}**" if row["method"].startswith("ours") else row["method"]
        lines.append(
            f"| {name} | {row['cap'] or 'none'} | {row['batches']} | {row['padded_tokens']:,} | {row['waste']:.1%} "
            f"| {row['largest']:,} | {1000 * row['seconds']:.1f} ms |"
        )
    times = " and ".join(f"{1000 * s:.1f} ms for {int(n):,} texts" for n, s in results["many_s"].items())
    return ["\n".join(lines), f"\nA plan by the packing layer takes {times} (median of five, no cap).\n"]


def _throughput(results: dict[str, Any]) -> list[str]:
    if "throughput" not in results:
        return []
    lines = [
        "## Tokens a second under one memory budget\n\n"
        "Small networks on this CPU, methods by turns in the same processes: mean vectors of an encoder\n"
        "(`embed`), 16 more tokens of an encoder with a decoder (`generate`), an epoch of a language model (`train`).\n"
        "The budget is what the batch of the longest texts takes, and 15 % more, enforced; a batch that runs\n"
        "out of memory is counted and tried again in halves. Tokens are those of the texts, unpadded; seconds are CPU\n"
        "time of one thread, which others on the machine change little. Ratios are medians of those of a turn.\n",
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
        lines.append("\nIn training everybody's batches come in random order, as fairseq and ours give them.")
    faster = [
        f"{row['task']} ({row['to_max_tokens']:.2f} of max tokens)"
        for row in results["throughput"]
        if row["method"] == "fixed, sorted" and row["to_max_tokens"] > max(1.0, _ours(results, row["task"]))
    ]
    if faster:
        lines.append(
            f"\nSmall sorted batches of a fixed count are the fastest here in: {', '.join(faster)}. A CPU gains\n"
            "nothing from larger batches, whose tensors leave its caches. On a GPU nobody has measured this."
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
        f'What `build_dynamic_batch_dataloader(..., classifier="shipped")` plans of {part["texts"]:,} texts, cut to\n'
        "512 tokens, by the texts of the first batch and the threshold ([../classifier.md](../classifier.md)). Each\n"
        f"of these {batches:,} batches was held against the rule, without the search that made them: the first\n"
        "holds exactly the base, each other one the largest of 50 candidates (or what is left) that is admitted, and\n"
        "the base where none is; what is admitted is always a prefix of the candidates. Those at 0.1 were compared\n"
        "with what the loader itself gives for such texts. Times are of one thread, without tokenizing, medians. The\n"
        "last column is the loader's default, the relative cost, at the same threshold.\n",
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
