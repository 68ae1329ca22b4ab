"""What each network takes to train at one recipe, and how far two common cards go with it, as ``plan`` predicts it.

    python scripts/bench/networks.py [--only [NAME ...]]

Every registered network that enlarges is traced (nothing is trained), which takes a few seconds to a minute each. The
figures go to docs/benchmarks/networks.json, the page made of them is docs/networks.md; with ``--only`` the others keep
their figures. spandrel has to be installed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402

from trainauto.archs import ARCHS, is_discriminator  # noqa: E402
from trainauto.commands.missing_list import NOTHING  # noqa: E402
from trainauto.commands.network_facts import NetworkFacts, facts_of  # noqa: E402
from trainauto.core.plan import BatchShape  # noqa: E402
from trainauto.core.units import GIB, size_text  # noqa: E402
from trainauto.forecast.card_answer import CONTEXT_BYTES, CardPlan, CardPlans  # noqa: E402
from trainauto.forecast.card_plan import chosen_cards  # noqa: E402
from trainauto.forecast.option_plans import plan_super_resolution  # noqa: E402
from trainauto.forecast.task import CardsRequest  # noqa: E402
from trainauto.memory.cost.cost_model import UPPER, CostModel  # noqa: E402
from trainauto.options.load import load_options  # noqa: E402
from trainauto.options.schema import Options  # noqa: E402
from trainauto.storage.run_metadata import as_yaml  # noqa: E402
from trainauto.tasks.sr.archs.foreign_networks import OF_VIDEO, missing_networks  # noqa: E402
from trainauto.tasks.sr.spandrel_archs.library import INSTALL  # noqa: E402

CARDS = ("RTX 3060 12GB", "RTX 4090 24GB")
BATCH, OUTPUT_PX, MOST = 8, 256, 256
"""Samples of a step, side of a crop of the high-quality image, largest batch looked for."""
FIGURES, PAGE = ROOT / "docs" / "benchmarks" / "networks.json", ROOT / "docs" / "networks.md"
WIDTH = 120
PUBLISHED = {"ESRGAN": 368, "Compact": 85, "SPAN": 34, "DAT": 34, "SwinIR": 22, "RealPLKSR": 21, "OmniSR": 20}
"""Published models by architecture, of 671; of the others none has as many."""


def options_of(facts: NetworkFacts) -> dict[str, Any]:
    """Return the option file of the recipe for a network."""
    scale, crop = facts.default_scale, crop_of(facts)
    bounds = {"min_batch_size": 1, "max_batch_size": MOST, "min_lq_size": crop, "max_lq_size": crop}
    train = {"type": "PairedImageDataset", "dataroot_gt": "none", "dataroot_lq": "none either"}
    return {
        "name": facts.name,
        "scale": scale,
        "use_amp": True,
        "datasets": {"train": {**train, "lq_size": crop, "batch_size_per_gpu": BATCH}},
        "network_g": {"type": facts.name},
        "training_automations": {"DynamicBatchSizeOptimizer": bounds},
        "train": {
            "total_iter": 1000,
            "losses": [{"type": "l1loss", "loss_weight": 1.0}],
            "optim_g": {"type": "AdamW", "lr": 1e-4},
        },
    }


def crop_of(facts: NetworkFacts) -> int:
    """Return the side of a crop of the input that the recipe has: whole multiples of what the network wants."""
    side = OUTPUT_PX // facts.default_scale
    return max(facts.minimum, -(-side // facts.multiple) * facts.multiple)


def figures_of(facts: NetworkFacts) -> dict[str, Any]:
    """Trace a network and return its figures, bytes throughout."""
    start, crop = time.perf_counter(), crop_of(facts)
    answer = plan_of(facts)
    cost, shape = CostModel(*answer.forecast.peaks_on("cuda")), BatchShape(BATCH, crop, images=BATCH)
    return {
        "name": facts.name,
        "scale": facts.default_scale,
        "batch": BATCH,
        "crop": crop,
        "expected_bytes": cost.predict(shape),
        "upper_bytes": cost.predict(shape, UPPER),
        "largest_batch": {card.preset.name: largest(card, crop) for card in answer.cards},
        "seconds": round(time.perf_counter() - start, 1),
    }


def plan_of(facts: NetworkFacts) -> CardPlans:
    """Return what ``plan`` answers for the recipe."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.yml"
        file.write_text(as_yaml(options_of(facts)), encoding="utf-8")
        return plan_super_resolution(load_options(file).of(Options), CardsRequest(chosen_cards(CARDS, ())))


def largest(card: CardPlan, crop: int) -> int:
    """Return the largest batch that is admitted at a crop; 0 where not even one sample is."""
    return max((plan.batch_size for plan in card.frontier if plan.size == crop), default=0)


def page(facts: Mapping[str, NetworkFacts], figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of docs/networks.md."""
    counts = ", ".join(f"{title} {count}" for title, count in PUBLISHED.items())
    words = {"batch": BATCH, "output": OUTPUT_PX, "most": MOST, "counts": counts, "install": INSTALL}
    for paragraph in HEAD.format(context=size_text(CONTEXT_BYTES), **words).split("\n\n"):
        indent = "  " if paragraph.startswith("- ") else ""
        yield from [*wrap(paragraph, WIDTH, subsequent_indent=indent, break_on_hyphens=False), ""]
    yield from TABLE.splitlines()
    titles = sorted(
        {fact.title for fact in facts.values()}, key=lambda title: (-PUBLISHED.get(title, 0), title.lower())
    )
    for title in titles:
        for name, fact in facts.items():
            if fact.title == title and name in figures:
                yield row(fact, figures[name])
    yield from FOOT.splitlines()
    yield from missing()


def missing() -> Iterator[str]:
    """Yield the section of networks that other projects have."""
    yield from MISSING.splitlines()
    for name, (projects, near) in missing_networks().items():
        yield f"| `{name}` | {', '.join(projects)} | {f'`{near}`' if near else NOTHING} |"
    yield ""
    videos = ", ".join(f"`{name}`" for name in sorted(OF_VIDEO))
    yield from wrap(f"Networks that take several frames are not here either: {videos}.", WIDTH, break_on_hyphens=False)


HEAD = """\
# Networks, and what they take to train

This page lists the memory that each network needs for one training recipe. **The figures are predictions**: nothing was
trained, and no GPU was used. `python scripts/bench/networks.py` writes the page. It traces each network as `python -m
trainauto plan` does. For your own recipe and GPU see [What fits](plan.md). `python -m trainauto list archs NAME` and
[options.md](options.md) list the arguments of a network.

The recipe has batch {batch} and crops of {output} x {output} px of the high-quality image, which are 64 x 64 px of the
input at scale 4. It uses bfloat16 autocast, an L1 loss, AdamW and averaged weights.

- *Peak* is the expected peak of allocated memory of a step.

- A network *fits* a card if its peak stays within the target with 99 % probability. The target is 85 % of the
12 GiB of an RTX 3060 and 90 % of the 24 GiB of an RTX 4090, with {context} left for CUDA itself.

- The number is the largest batch that fits at that crop; {most}+ is the largest that was tried. If it is smaller than
{batch}, the recipe needs micro-batches, smaller crops, or `memory: {{gradient_checkpointing: true}}`. DAT, DCTLSA,
EIMN, ELAN, EMT and Sebica cannot use micro-batches, since they have BatchNorm.

- *spandrel* marks networks from the package spandrel (`{install}`); the others are trainauto's own.

- *Crop* is that of the input. If a network's windows do not divide 64, it is the next larger size that they do.

Rows are ordered by the number of published models (of 671: {counts}), then by name."""

TABLE = """\
| network | from | weights | scale | crop | peak | 12 GB | 24 GB |
|---|---|---:|---:|---:|---:|---:|---:|"""

FOOT = """
Memory depends on the network, the crop and the batch. The number of weights says little: most of the memory holds the
activations that the backward pass needs."""

MISSING = """
## Networks of other projects that are not here

`python -m trainauto list archs --missing` prints this table, and `convert` names the nearest network in its report.

| network | of | nearest here |
|---|---|---|"""


def row(facts: NetworkFacts, figures: Mapping[str, Any]) -> str:
    """Return the line of a network."""
    fits = []
    for card in CARDS:
        most = figures["largest_batch"][card]
        number = f"{most}+" if most >= MOST else str(most)
        fits.append(f"fits, {number}" if most >= BATCH else f"no, {number}" if most else "no")
    source = "spandrel" if facts.needs_spandrel else ""
    peak = f"{figures['expected_bytes'] / GIB:.2f} GiB"
    weights = f"{(facts.parameters or 0) / 1e6:.2f} M"
    cells = (f"`{facts.name}`", source, weights, figures["scale"], figures["crop"], peak, *fits)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Trace, and write figures and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        nargs="*",
        default=None,
        metavar="NAME",
        help="trace these, keep the others' figures; none: the page alone",
    )
    parsed = parser.parse_args()
    facts = {name: facts_of(name) for name in ARCHS if not is_discriminator(ARCHS.get(name))}
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() and parsed.only is not None else []
    figures = {entry["name"]: entry for entry in kept}
    console = Console(highlight=False)
    for name in parsed.only if parsed.only is not None else facts:
        figures[name] = figures_of(facts[name])
        console.print(json.dumps(figures[name]), soft_wrap=True)
        FIGURES.write_text(json.dumps([figures[name] for name in facts if name in figures], indent=1) + "\n")
    PAGE.write_text("\n".join(page(facts, figures)) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
