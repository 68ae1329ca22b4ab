"""What fine-tuning Qwen3-VL-2B in 4 bits should take by batch, beside the table that its source published.

    python scripts/bench/finetune_plans.py [--page docs/benchmarks/finetune_plans.md]

Only the model's configuration is written here, as its hub has it; there are no weights, no card, and nothing is
downloaded. Predicted is the step of options/finetune/fast_dev.yml (LoRA r=8 on q and v, weights beside the 4 bits in
bfloat16), with gradient checkpointing and without, traced on tensors without data. The last section asks the command
itself for three cards, and measures its time and memory.

Exit code 1 if that takes more than 60 s or 2 GB: of an idle machine with two cores that is promised.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from trainauto.builders.finetune_networks import SAMPLE
from trainauto.core.files import write_text_atomically
from trainauto.core.plan import Plan
from trainauto.core.units import GIB, MIB
from trainauto.core.worker_process import start_tracing
from trainauto.forecast.card_answer import CONTEXT_BYTES
from trainauto.forecast.finetune_plans import TRACE_TIMEOUT_S, largest_conversation
from trainauto.forecast.trace_process import TraceProcess
from trainauto.memory.cost.memory_forecast import PlanBytes
from trainauto.options.finetune_options import FinetuneOptions
from trainauto.options.load import load_options

ROOT = Path(__file__).parents[2]
FILE = ROOT / "options" / "finetune" / "fast_dev.yml"

SOURCE_GB = {1: 6, 2: 8, 4: 12, 8: 20}
"""By batch: OpenAdaptAI/openadapt-ml v0.1.0, docs/batching_and_schedulers.md, "Qwen3-VL-2B with 4-bit quantization"."""

LENGTHS = (386, 514, 1026)
"""Tokens of a conversation with one picture of 512 x 512, which takes 258: few words, some, and many."""

USUAL = 514
CARDS = ("RTX 3060 12GB", "RTX 4090 24GB", "A100 80GB")
MOST_SECONDS, MOST_BYTES = 60.0, 2 * 10**9
LOOK_EVERY_S = 0.1

QWEN3_VL_2B: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_vl_text",
        "dtype": "bfloat16",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rms_norm_eps": 1e-06,
        "max_position_embeddings": 262144,
        "rope_theta": 5000000,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "tie_word_embeddings": True,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 24,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_heads": 16,
        "hidden_act": "gelu_pytorch_tanh",
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 2048,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [5, 11, 17],
    },
}
"""Configuration of Qwen/Qwen3-VL-2B-Instruct, as far as sizes follow it."""


class Case(NamedTuple):
    """A pass of the file.

    Attributes:
        tokens: of each conversation.
        checkpoints: blocks run again in the backward pass.
        batch: conversations.
    """

    tokens: int
    checkpoints: bool
    batch: int


def write_configuration(folder: Path) -> Path:
    """Write a folder that holds the model's configuration and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(QWEN3_VL_2B, indent=1), encoding="utf-8")
    return folder


def followed(model: Path) -> Iterator[tuple[Case, PlanBytes]]:
    """Trace every case on a folder with a configuration."""
    with start_tracing(like_cuda=True) as worker:
        for tokens, checkpoints in product(LENGTHS, (False, True)):
            overrides = [
                f"model:name={model}",
                f"dataset:max_length={tokens}",
                f"memory:gradient_checkpointing={str(checkpoints).lower()}",
            ]
            loaded = load_options(FILE, overrides).of(FinetuneOptions)
            known = {SAMPLE: largest_conversation(loaded).as_known()}
            tracer = TraceProcess(
                FILE, overrides, segments="expandable", worker=worker, timeout_s=TRACE_TIMEOUT_S, known=known
            )
            for batch in SOURCE_GB:
                yield Case(tokens, checkpoints, batch), tracer.trace(Plan.of(batch_size=batch))


def on_a_card(of: PlanBytes) -> int:
    """Return what a card should have: what the allocator needs at least, and CUDA's own."""
    return max(of.peak_bytes, of.reserved_bytes or 0) + CONTEXT_BYTES


class Asked(NamedTuple):
    """A command that was run.

    Attributes:
        said: what it printed.
        seconds: until it ended.
        bytes: most that its processes held at one time, together; pages that they share count for each.
    """

    said: str
    seconds: float
    bytes: int


def asked_for_cards(model: Path, *arguments: str) -> Asked:
    """Run ``plan`` for three cards, as people do, and look at its processes all along.

    Raises:
        RuntimeError: it failed; the message has what it wrote.
    """
    cards = [word for card in CARDS for word in ("--card", card)]
    words = ["plan", "-opt", str(FILE), *cards, *arguments, "--force_yml", f"model:name={model}"]
    start, most = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-m", "trainauto", *words], stdout=said, stderr=errors, cwd=ROOT)
        while process.poll() is None:
            most = max(most, sum(map(_resident_bytes, _family(process.pid))))
            time.sleep(LOOK_EVERY_S)
        seconds = time.perf_counter() - start
        said.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(errors.read())
        return Asked(said.read(), seconds, most)


def _family(pid: int) -> list[int]:
    """Return a process and those that it has started, as far as they are there."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(descendant for child in children for descendant in _family(int(child)))]


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def page(found: dict[Case, PlanBytes], asked: Asked, versions: dict[str, str]) -> str:
    """Return the page."""
    lines = [TITLE.format(**versions), *HEAD]
    for batch, source in SOURCE_GB.items():
        cells = []
        for checkpoints in (False, True):
            of = found[Case(USUAL, checkpoints, batch)]
            cells += [f"{of.peak_bytes / GIB:.2f}", f"{on_a_card(of) / GIB:.2f}"]
        lines.append(f"| {batch} | {' | '.join(cells)} | {source} |")
    lines.append(_slopes(found))
    lines += [BY_LENGTH, "| tokens | checkpoints | 1 | 2 | 4 | 8 |", "|---:|---|---:|---:|---:|---:|"]
    for tokens, checkpoints in product(LENGTHS, (False, True)):
        cells = [f"{on_a_card(found[Case(tokens, checkpoints, batch)]) / GIB:.2f}" for batch in SOURCE_GB]
        lines.append(f"| {tokens} | {'yes' if checkpoints else 'no'} | {' | '.join(cells)} |")
    cost = COST.format(cores=os.cpu_count(), seconds=asked.seconds, mib=asked.bytes / MIB, load=os.getloadavg()[0])
    return "\n".join([*lines, cost, "```text", asked.said.strip(), "```"])


def _slopes(found: dict[Case, PlanBytes]) -> str:
    """Say what one conversation more costs, here and there."""
    few, many = min(SOURCE_GB), max(SOURCE_GB)

    def slope(checkpoints: bool) -> float:
        ends = (on_a_card(found[Case(USUAL, checkpoints, batch)]) for batch in (many, few))
        return (next(ends) - next(ends)) / (many - few) / GIB

    theirs = (SOURCE_GB[many] - SOURCE_GB[few]) / (many - few)
    return (
        f"\nEach further conversation costs {slope(False):.2f} GiB here, with checkpoints {slope(True):.2f} GiB, and "
        f"{theirs:.2f} GB in the source's table."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--page", type=Path, help="where the figures are written, as Markdown")
    given = parser.parse_args(arguments)
    import torch
    import transformers

    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "machine": platform.machine()}
    with tempfile.TemporaryDirectory() as folder:
        model = write_configuration(Path(folder) / "Qwen3-VL-2B")
        asked = asked_for_cards(model)
        text = page(dict(followed(model)), asked, versions)
    print(text)
    if given.page:
        write_text_atomically(given.page, text + "\n")
    return int(asked.seconds > MOST_SECONDS or asked.bytes > MOST_BYTES)


HEAD = (
    "| batch | plain: live | plain: on a card | checkpoints: live | checkpoints: on a card | the source says, GB |",
    "|---:|---:|---:|---:|---:|---:|",
)

TITLE = """# Predicted memory for fine-tuning Qwen3-VL-2B in 4 bits

`python scripts/bench/finetune_plans.py --page docs/benchmarks/finetune_plans.md`, torch {torch}, transformers
{transformers}, {machine}. **A trace predicts all our figures; none was measured on a GPU.**

The model is the configuration of Qwen/Qwen3-VL-2B-Instruct, without weights. The step is that of
options/finetune/fast_dev.yml: linear layers in 4 bits (stand-ins of the same bytes), everything else in bfloat16,
LoRA of rank 8 on q and v, AdamW, clipped gradients. Each conversation has an image of 512 x 512 px (258 tokens) and
256 tokens of words. The source is OpenAdaptAI/openadapt-ml v0.1.0, docs/batching_and_schedulers.md: the same model in
4 bits. Its table gives only batch and GB, neither the length of conversations nor whether gradient checkpointing is
on.

Figures are in GiB. "Live": most bytes that tensors hold at one time. "On a card": the least that torch's allocator
has to reserve for that (expandable segments, simulated), and 0.7 GiB for CUDA itself, as others report. The source's
table does not say whether its GB are 10^9 or 2^30 bytes: 1 GiB is 1.07 GB.
"""

BY_LENGTH = """
Memory on a GPU in GiB, by length of conversations, for a batch of 1, 2, 4 and 8; one image each, the rest words:
"""

COST = """
## Time and memory of the prediction

`plan -opt options/finetune/fast_dev.yml --card ... --force_yml model:name=FOLDER` for three cards, with a folder that
holds only config.json: {seconds:.0f} s, and {mib:.0f} MiB in all of its processes, on {cores} cores at a load of
{load:.1f}.
"""

if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    sys.exit(main())
