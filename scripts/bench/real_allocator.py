"""Predictions of a step's memory beside PyTorch's real CUDA allocator, on a simulated card: no figure is of a GPU.

    python scripts/simulated_card.py run --card "RTX 4090 24GB" -- python scripts/bench/real_allocator.py
    ... --networks compact GPT --formats bf16      a part; rows that are there are kept

Each row is a process: a network in a number format with one kind of segments. It traces a plan, steps under it three
times for real, and compares live bytes and what was reserved. Then the card is left with less, in steps around the
least that the prediction says such steps need: does it fit, does the allocator have to give its cache back, does memory
run out? Networks that the simulated card cannot run, whose shapes follow data above all, are listed and not counted.
"""

import argparse
import ctypes
import gc
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from networks import crop_of, facts_of
from peers_env import ROOT
from segment_kinds import SEGMENTS, with_segments
from trace_cases import GAN, GPT, MAX_NORM, Case, gan_stage_case, gpt_case, option_case, spaced

sys.path.insert(0, str(ROOT))

from tests.small_library_networks import SMALL_LIBRARY, scale_of
from trainauto.builders.language_networks import fake_language_model
from trainauto.builders.precision import choose_precision
from trainauto.core.files import write_text_atomically
from trainauto.core.plan import Plan
from trainauto.core.units import MIB
from trainauto.engine.traced_training import TracedModel
from trainauto.forecast.traced_run import fake_run
from trainauto.memory.cuda_allocator.allocator import CachingAllocator, SimulatedOutOfMemoryError, replay
from trainauto.memory.cuda_allocator.steps import repeated
from trainauto.memory.tracing.fake_tensors import warm_up
from trainauto.memory.tracing.trace import Trace, TraceError
from trainauto.options.load import LoadedOptions, load_options
from trainauto.tasks.sr.archs.registry import ARCHS, is_discriminator

RESULTS = ROOT / "docs/benchmarks/real_allocator.json"
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
STEPS = 3
SHARES = (0.94, 0.98, 1.0, 1.02, 1.06)
"""Of the least that is predicted to suffice, memory that the card is left with."""
FITS, FAILS = "predicted to fit, ran out of memory", "predicted to run out of memory, fitted"
HEAD = """# Predicted memory compared with PyTorch's real allocator

`python scripts/simulated_card.py run --card "RTX 4090 24GB" -- python scripts/bench/real_allocator.py`, torch {torch}:
without a GPU. PyTorch's own allocator and its operators' own allocations ran on a simulated GPU ([what that
proves](../simulated_card.md)); cuDNN's workspaces are 0 on both sides.

Each row is a network under one plan (batch x crop; the GPT: rows x 16 tokens; models of transformers: tokens of a
batch). The peaks of its third step are compared with an earlier trace. "Small" networks have arguments as small as in
tests, others are as published. "Checkpointed" ones compute activations again in the backward pass. Another call
measures what is missing and keeps the rows that are here, so some may be older than the code.

The simulated GPU's kernels compute nothing. Vision-language models are therefore left out, because kernels compute the
lengths of their rows, and so is a row whose norms read as NaN from old bytes. T5 runs without fused attention, because
its mask depends on data.

With checkpointing, autocast's cache alone holds the copies of weights. PyTorch frees them in the order of a hash table
of addresses. Traces do not know that order, and blocks of the smaller pool may then lie elsewhere.
"""
TABLE = (
    "| network | plan | reserved, the most of the four | fp32, native: live / reserved | fp32, expandable | bf16, "
    "native | bf16, expandable |\n|---|---|---:|---:|---:|---:|---:|"
)
OWN_SMALL = {
    "compact": {"num_feat": 16, "num_conv": 2},
    "rrdbnet": {"num_feat": 16, "num_block": 2, "num_grow_ch": 8},
    "span": {"feature_channels": 12},
    "swinir": {"embed_dim": 12, "depths": [2], "num_heads": [2], "window_size": 4, "img_size": 8},
}

CHECKPOINTED = {"memory": {"gradient_checkpointing": True}}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
}
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "GPT-2": {"model": {"kind": "causal", "config": {"model_type": "gpt2"}}},
    "Llama, small": {"model": {"kind": "causal", "config": LLAMA}},
    "Llama, small, LoRA": {"model": {"kind": "causal", "config": LLAMA, "lora": {"r": 8}}},
    "Llama, small, checkpointed": {"model": {"kind": "causal", "config": LLAMA}, **CHECKPOINTED},
    "T5 small": {"model": {"kind": "encoder_decoder", "config": {"model_type": "t5"}, "attention": "eager"}},
}


def cases_of(folder: Path) -> Iterator[Case]:
    """Yield every network of ``list archs`` small and as published, a GAN, a GAN stage, a GPT, some of transformers.

    Three of them have gradient checkpointing, too.
    """
    for name, arguments in {**OWN_SMALL, **SMALL_LIBRARY}.items():
        options = {"scale": 4 if name in OWN_SMALL else scale_of(name), "network_g": {"type": name, **arguments}}
        yield on_plan(option_case(f"{name}, small", folder, options, (), device="cuda"), 4, 32)
    for name in ARCHS:
        if not is_discriminator(ARCHS.get(name)):
            facts = facts_of(name)
            options = {"scale": facts.default_scale, "network_g": {"type": name}}
            yield on_plan(option_case(name, folder, options, (), device="cuda"), 2, crop_of(facts))
    checkpointed = {"network_g": {"type": "swinir_light"}, **CHECKPOINTED}
    yield on_plan(option_case("swinir_light, checkpointed", folder, checkpointed, (), device="cuda"), 2, 64)
    for name, options in {"GAN": GAN, "GAN, checkpointed": {**GAN, **CHECKPOINTED}}.items():
        yield on_plan(option_case(name, folder, options, (), device="cuda"), 4, 48)
    yield on_plan(gan_stage_case(folder, "cuda"), 4, 64)
    yield on_plan(gpt_case((), (), GPT, "cuda"), 32, 16)
    for name, given in LANGUAGE_MODELS.items():
        texts = {"train": {"path": "nothing_is_read.txt", "max_length": 128}}
        options = {"task": "text", **given, "tokenizer": {"train": {"vocab_size": 32000}}, "datasets": texts}
        train = {"total_iter": 10, "optim": {"type": "AdamW", "lr": 1e-4}, "grad_clip": MAX_NORM}
        yield language_case(name, folder, {**options, "train": {**train, "tokens_per_batch": 4096}}, 4096)


def language_case(name: str, folder: Path, options: Mapping[str, Any], tokens: int) -> Case:
    """Return a case that an option file of texts describes; weights are random, and no text is read."""

    def loaded(dtype: torch.dtype) -> LoadedOptions[Any]:
        amp = {"use_amp": dtype != torch.float32, "amp_bf16": dtype == torch.bfloat16}
        file = folder / f"{name}.yml"
        file.write_text(yaml.safe_dump({"name": "traced", **options, "device": "cuda", **amp}, sort_keys=False))
        return load_options(file)

    def real(dtype: torch.dtype) -> TracedModel:
        read = loaded(dtype)
        build, batch_of = fake_language_model(read, choose_precision(read), {})  # on real tensors here
        return TracedModel(build(None), batch_of, MAX_NORM)

    return Case(name, (), (), lambda dtype: fake_run(loaded(dtype)), real, on_cards=[Plan.of(tokens=tokens)])


def on_plan(case: Case, batch: int, side: int) -> Case:
    """Return the case with one plan."""
    return replace(case, on_cards=spaced((batch, side)))


# --- in a process of its own


def row_of(case: Case, dtype: torch.dtype, expandable: bool, kept: Path) -> dict[str, Any]:
    """Return what is predicted and what the allocator does, without a limit and under some.

    The trace is that of ``kept``, or is kept there: kinds of segments do not change it.
    """
    plan = case.on_cards[0]
    if not kept.exists():
        warm_up()
        case.fake(dtype).trace(plan).write(kept)
    trace = Trace.read(kept)
    free = ctypes.CDLL(None)
    row: dict[str, Any] = {
        "plan": plan.to_dict(),
        "predicted_live": trace.peak_bytes,
        "predicted_reserved": trace.reserved_bytes(expandable=expandable),
        **stepped(case, dtype, plan),
        "limits": [],
    }
    least = trace.needed_bytes(expandable=expandable).least_bytes
    for share in SHARES:
        limit = int(share * least) // (2 * MIB) * 2 * MIB
        with only(limit, free):
            real = stepped(case, dtype, plan)
        row["limits"].append({"bytes": limit, **under(trace, expandable, limit), "real": real})
    return row


def stepped(case: Case, dtype: torch.dtype, plan: Plan) -> dict[str, Any]:
    """Build the model on the card, step, and give everything back; return peaks of the last step."""
    torch.manual_seed(1)
    start = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    found: dict[str, Any] = {}
    try:
        model = case.real(dtype)
        for number in range(STEPS):
            if number == STEPS - 1:
                before = torch.cuda.memory_stats()["num_alloc_retries"]
            model.step(plan)
        statistics_ = torch.cuda.memory_stats()
        found |= {"live": statistics_["requested_bytes.all.peak"], "reserved": statistics_["reserved_bytes.all.peak"]}
        found["retries_at_last"] = statistics_["num_alloc_retries"] - before
    except (torch.OutOfMemoryError, TraceError):  # the latter where smaller pieces did not fit either
        pass
    end = torch.cuda.memory_stats()
    found["retries"] = end["num_alloc_retries"] - start.get("num_alloc_retries", 0)
    # Those too that the model answered by itself, for one by taking one weight after another in its optimizer.
    found["out_of_memory"] = end["num_ooms"] > start.get("num_ooms", 0)
    model = None
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # the next one takes them in its first step, as a process does
    torch.cuda.empty_cache()
    return found


@contextmanager
def only(limit: int, runtime: ctypes.CDLL) -> Iterator[None]:
    """Leave the allocator so many bytes of the card; the rest is taken past it."""
    free, _ = torch.cuda.mem_get_info()
    taken = ctypes.c_void_p()
    size = free + torch.cuda.memory_reserved() - limit
    if runtime.cudaMalloc(ctypes.byref(taken), ctypes.c_size_t(size)):
        raise RuntimeError(f"{size} bytes could not be taken")
    try:
        yield
    finally:
        runtime.cudaFree(taken)


def under(trace: Trace, expandable: bool, limit: int) -> dict[str, Any]:
    """Return what is predicted of such steps under a limit."""
    allocator = CachingAllocator(expandable, limit)
    every = list(repeated(trace.events, STEPS, trace.before, trace.late))
    last = sum(1 for _ in repeated(trace.events, STEPS - 1, trace.before, trace.late))
    try:
        replay(every[:last], allocator)
        before = allocator.alloc_retries
        replay(every[last:], allocator)
    except SimulatedOutOfMemoryError:
        return {"fits": False, "quiet": False}
    return {"fits": True, "quiet": allocator.alloc_retries == before}


def child(name: str, number_format: str, segments: str, kept: str) -> None:
    """Print the row as the last line, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        case = next(case for case in cases_of(Path(folder)) if case.name == name)
        try:
            row = row_of(case, FORMATS[number_format], segments == "expandable", Path(kept))
        except Exception as error:
            row = {"left_out": str(error).replace(f"{folder}/", "").splitlines()[0][:160]}
    print(json.dumps(row))


# --- together


def main() -> int:
    """Measure what is missing, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return 0
    if not os.environ.get("SIMULATED_CARD_NAME"):
        parser.error("this is for a simulated card: python scripts/simulated_card.py run -- python ...")
    rows: list[dict[str, Any]] = json.loads(arguments.results.read_text())["rows"] if arguments.results.exists() else []
    known = {(row["network"], row["format"], row["segments"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        names = [case.name for case in cases_of(Path(folder))]
    chosen = [name for name in names if not arguments.networks or name in arguments.networks]
    for name, number_format in itertools.product(chosen, arguments.formats):
        with tempfile.TemporaryDirectory() as folder:
            for segments in SEGMENTS:
                if (name, number_format, segments) in known:
                    continue
                done = subprocess.run(
                    [sys.executable, __file__, "--child", name, number_format, segments, f"{folder}/trace.json"],
                    env=with_segments(segments), capture_output=True, text=True, check=False,
                )  # fmt: skip
                last = done.stdout.splitlines()[-1:] if not done.returncode else []
                found = json.loads(last[0]) if last else {"left_out": f"ended with exit code {done.returncode}"}
                rows.append({"network": name, "format": number_format, "segments": segments, **found})
                print(line_of(rows[-1]), flush=True)
                write_text_atomically(arguments.results, text_of(rows, torch.__version__))
    write_text_atomically(arguments.results.with_suffix(".md"), page_of(rows, torch.__version__, names))
    return 0


def text_of(rows: Sequence[Mapping[str, Any]], torch_version: str) -> str:
    """Return the results as JSON, a line a row."""
    lines = ",\n".join(map(json.dumps, rows))
    return f'{{"torch": {json.dumps(torch_version)}, "rows": [\n{lines}\n]}}\n'


def line_of(row: Mapping[str, Any]) -> str:
    """Return a row as a line."""
    head = f"{row['network']:28} {row['format']} {row['segments']:10}"
    if "left_out" in row:
        return f"{head} {row['left_out']}"
    live, reserved = row["predicted_live"] / row["live"], row["predicted_reserved"] / row["reserved"]
    wrong = [f"{limit['bytes'] / MIB:.0f} MiB: {verdict(limit)}" for limit in row["limits"] if verdict(limit)]
    return f"{head} live {live:.5f} reserved {reserved:.4f} of {row['reserved'] / MIB:.0f} MiB {'; '.join(wrong)}"


def verdict(limit: Mapping[str, Any]) -> str:
    """Say where a prediction under a limit was wrong; empty where it was right."""
    fits = not limit["real"]["out_of_memory"]
    if limit["fits"] != fits:
        return FITS if limit["fits"] else FAILS
    return ""


def page_of(rows: Sequence[Mapping[str, Any]], torch_version: str, names: Sequence[str]) -> str:
    """Return the page in Markdown; of ``names``, networks without rows are listed."""
    whole = [row for row in rows if "left_out" not in row]
    live = [abs(row["predicted_live"] / row["live"] - 1) for row in whole]
    reserved = sorted(abs(row["predicted_reserved"] / row["reserved"] - 1) for row in whole)
    limits = [(row, limit) for row in whole for limit in row["limits"]]
    verdicts = [verdict(limit) for _, limit in limits]
    near = reserved[math.ceil(0.9 * len(reserved)) - 1]
    networks = {row["network"]: [each for each in whole if each["network"] == row["network"]] for row in whole}
    wrong = [
        f"- {row['network']}, {row['format']}, {row['segments']}: {limit['bytes'] / MIB:.0f} MiB, {verdict(limit)}"
        for row, limit in limits
        if verdict(limit)
    ]
    left_out = [
        f"- {row['network']}, {row['format']}, {row['segments']}: {row['left_out']}"
        for row in rows
        if "left_out" in row
    ]
    seen = {row["network"] for row in rows}
    missing = "; ".join(name for name in names if name not in seen)
    summary = [
        f"- {len(whole)} rows of {len(networks)} networks. Live bytes: median error {statistics.median(live):.4%}, "
        f"worst {max(live):.3%}. Reserved bytes: nine of ten within {near:.2%}, worst {reserved[-1]:.2%}.",
        f"- {len(limits)} limits, from {SHARES[0]:.0%} to {SHARES[-1]:.0%} of the least that is predicted to suffice. "
        f"{verdicts.count(FITS)} were predicted to fit and did not; {verdicts.count(FAILS)} were predicted not to fit "
        "and did.",
    ]
    return "\n".join(
        [
            HEAD.format(torch=torch_version),
            *summary,
            "",
            TABLE,
            *(_network_row(name, found) for name, found in networks.items()),
            *(["", "Wrong predictions of limits:", "", *wrong] if wrong else []),
            *(["", "Left out:", "", *left_out] if left_out else []),
            *(["", f"Not measured yet: {missing}."] if missing else []),
            "",
        ]
    )


def _network_row(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a network's row: predicted over real, of each format and kind of segments."""
    found = {(row["format"], row["segments"]): row for row in rows}
    cells = [
        f"{row['predicted_live'] / row['live']:.5f} / {row['predicted_reserved'] / row['reserved']:.4f}" if row else "-"
        for row in (found.get(key) for key in itertools.product(FORMATS, SEGMENTS))
    ]
    plan, largest = rows[0]["plan"], max(row["reserved"] for row in rows) / MIB
    return f"| {name} | {plan_text(plan)} | {largest:.0f} MiB | {' | '.join(cells)} |"


def plan_text(plan: Mapping[str, int]) -> str:
    """Return a plan as the table has it."""
    if "lq_size" in plan:
        return f"{plan['batch_size']}x{plan['lq_size']}"
    return f"{plan['tokens']} tokens"


if __name__ == "__main__":
    sys.exit(main())
