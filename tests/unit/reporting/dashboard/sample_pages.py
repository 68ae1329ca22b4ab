"""Pages with made-up figures for the browser: everything at once, hostile texts, no steps, many charts, three runs.

python -m tests.unit.reporting.dashboard.sample_pages FOLDER writes them as files to look at.
"""

import base64
import io
import math
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainauto.core.words import visible
from trainauto.reporting.dashboard.page_file import page_text

GIB = 2**30

HOSTILE = (
    "<script>alert(1)</script>",
    "]]></script><!-- <img src=x onerror=alert(1)>",
    "../../etc/passwd?a=b#c%2e",
    "👩‍🔬 emoji 🚀 and العربية עברית",
    visible("\u202egnp.exe \x1b[31mred\x1b[0m \x00 \u2066end"),
    "n" * 300,
    "word " * 60,
    "{{data}} {{csp}} &lt;b&gt; \"quoted\" 'too' `code` \\u003c",
)

Page = dict[str, Any]
Block = dict[str, Any]


def everything() -> Page:
    """A run of super-resolution as its page shows it, with what went wrong and was survived."""
    grid = list(range(50, 100_001, 50))
    page = empty()
    page |= {
        "title": "quickstart_x4",
        "subtitle": "Super-resolution ×4, EDSR, 1 × RTX 4090 · experiments/quickstart_x4/20260309_140500",
        "status": {"word": "completed", "tone": "good", "text": "All 100,000 steps are done."},
        "tiles": [
            tile("PSNR (Y)", "31.42 dB", "+2.91 over bicubic, step 95,000", "good"),
            tile("Loss", "0.0182", "0.0411 at step 1,000"),
            tile("Steps", "100,000", "of 100,000, in 4 h 12 min"),
            tile("Batch", "8 → 46", "at 12 changes of plan"),
            tile("Memory in use", "91 %", "21.9 of 24 GiB", "good"),
            tile("Out of memory", "1", "survived, at step 41,300", "warn"),
            tile("Samples", "812 /s", "2.1 times those of batch 8"),
            tile("Data wait", "0.8 %", "of a step's time"),
        ],
        "grid": grid,
    }
    marks = sample_marks()
    page["sections"] = [
        section(
            "Is it going well?", "Loss falls; PSNR is 2.91 dB above bicubic.", [*learning(grid, marks), pictures()]
        ),
        section("Is the machine used?", "91 % of the card's memory is in use.", machine(grid, marks)),
        section("What did it do, and why?", "", [plan_chart(grid, marks), events(marks)]),
        section("With what?", "", [options(), environment()]),
    ]
    return page


def learning(grid: list[int], marks: list[Block]) -> list[Block]:
    """Loss with bands of its buckets, learning rate, and a metric beside its baseline."""
    noise = random.Random(1)
    level = [0.018 + 0.09 * math.exp(-step / 4000) + 0.02 * math.exp(-step / 60_000) for step in grid]
    loss = [value * noise.uniform(0.96, 1.04) for value in level]
    low = [value * noise.uniform(0.6, 0.85) for value in level]
    high = [value * noise.uniform(1.2, 1.6) for value in level]
    steps = list(range(5000, 100_001, 5000))
    psnr = [31.4 - 3.2 * math.exp(-step / 16_000) + noise.uniform(-0.05, 0.05) for step in steps]
    rate = [2e-4 * 0.5 ** (step // 25_000) for step in grid]
    smooth: Block = {"name": "mean of 1,000 steps", "style": "line", "x": "grid", "y": level}
    return [
        chart("Loss", "number", [series("l1", loss) | {"low": low, "high": high}, smooth], marks, axis="auto"),
        chart(
            "PSNR (Y) on validation",
            "number",
            [series("EDSR", psnr, steps), series("bicubic", [28.51, 28.51], [50, 100_000], "dash")],
            note="In dB, 4 pixels of border left out.",
        ),
        chart("Learning rate", "number", [series("generator", rate, style="steps")], axis="log"),
    ]


def machine(grid: list[int], marks: list[Block]) -> list[Block]:
    """Memory against its limits, time of a step, throughput."""
    noise = random.Random(2)
    predicted = [GIB * min(22.1, 6 + 1.6 * (step // 8000)) for step in grid]
    peak = [value * noise.uniform(0.94, 1.0) for value in predicted]
    reserved = [min(23.4 * GIB, value * 1.05) for value in predicted]
    ends = [grid[0], grid[-1]]
    wait = [noise.expovariate(1) * 0.8 if step > 400 else None for step in grid]
    return [
        chart(
            "Memory of the card",
            "bytes",
            [
                series("limit", [24 * GIB] * 2, ends, "dash"),
                series("target", [22.1 * GIB] * 2, ends, "dash"),
                series("predicted", predicted, style="steps"),
                series("peak", peak),
                series("reserved", reserved),
            ],
            marks,
            from_zero=True,
        ),
        chart(
            "Time of a step", "seconds", [series("step", [0.05 + value / GIB / 200 for value in peak])], from_zero=True
        ),
        chart("Waiting for data", "percent", [series("share of the step", wait)], from_zero=True),
        chart(
            "Throughput",
            "rate",
            [series("samples", [36 * value / GIB for value in peak]), series("steps", [12.0 for _ in grid])],
            axis="auto",
        ),
        chart(
            "Tokens",
            "count",
            [series("padding", [step * 17 for step in grid]), series("used", [step * 400 for step in grid])],
        ),
    ]


def plan_chart(grid: list[int], marks: list[Block]) -> Block:
    """Batch size as steps."""
    batch = [min(46, 8 + 4 * (step // 8000)) for step in grid]
    return chart("Plan: batch size", "count", [series("batch", batch, style="steps")], marks, from_zero=True)


def sample_marks() -> list[Block]:
    """What happened in the run, with reasons."""
    grown = [
        {
            "x": step,
            "kind": "plan",
            "text": f"Batch of {8 + step // 2000}: predicted {6 + step / 5000:.1f} GiB, below the target of 22.1 GiB.",
        }
        for step in range(8000, 88_001, 8000)
    ]
    return [
        *grown,
        {
            "x": 41_300,
            "kind": "oom",
            "text": "Out of memory at a batch of 30; split in two, the step was repeated, no sample lost.",
        },
        {"x": 52_000, "kind": "stop", "text": "Ctrl-C; state was written at step 52,000."},
        {"x": 52_000, "kind": "resume", "text": "Resumed from step 52,000 with 1 GPU."},
        {"x": 70_150, "kind": "fail", "text": "Picture 'DIV2K/0412.png' could not be read; another one was taken."},
        {"x": 100_000, "kind": "note", "text": "Done."},
    ]


def events(marks: list[Block]) -> Block:
    """List of what the marks tell."""
    start = 1_773_000_000
    items = [
        {
            "step": mark["x"],
            "time": start + mark["x"] * 0.15 if mark["kind"] != "note" else None,
            "kind": mark["kind"],
            "title": mark["text"].partition(";")[0].partition(":")[0],
            "text": mark["text"],
        }
        for mark in sorted(marks, key=lambda mark: mark["x"])
    ]
    return {"type": "events", "id": "events", "title": "Everything it did", "left_out": 12, "items": items}


def options() -> Block:
    """Options that differ from the defaults."""
    rows = [["train.total_iter", "100000", "300000"], ["datasets.train.batch_size", "auto", "16"]]
    return table("Options that differ from the defaults", ["Option", "Here", "Default"], rows)


def environment() -> Block:
    """What it ran on."""
    rows = [["Python", "3.11.7"], ["PyTorch", "2.11.0+cu128"], ["Card", "NVIDIA GeForce RTX 4090, 24 GiB"]]
    rows += [
        ["Commit", "6275a7e1c0ffee"],
        ["Command", "python train.py -opt options/train/quickstart.yml --auto_resume"],
    ]
    return {"type": "pairs", "id": "environment", "title": "Environment", "folded": False, "rows": rows}


def pictures(count: int = 8) -> Block:
    """Two sets of pictures that become clear, made of a photograph's worth of edges."""
    steps = [5000 * (number + 1) for number in range(count)]
    sets = []
    for name in ("butterfly", "bird"):
        clear = drawing(len(name))
        outputs = [blurred(clear, 1 + 5 / (number + 1)) for number in range(count)]
        sets.append(
            {
                "name": name,
                "steps": steps,
                "images": [webp(picture) for picture in outputs],
                "files": [f"validation/{name}/{name}_{step}.png" for step in steps],
                "scores": [f"PSNR {28 + number / 3:.2f} dB" for number in range(count)],
                "baseline": webp(blurred(clear, 5)),
                "baseline_name": "bicubic",
                "reference": webp(clear),
            }
        )
    return {"type": "pictures", "id": "pictures", "title": "Pictures over time", "sets": sets}


def drawing(seed: int) -> Image.Image:
    """A colourful picture with edges of (128, 128) pixels."""
    y, x = np.mgrid[0:128, 0:128] / 128.0
    waves = [np.sin((9 + seed + channel) * x * x + (14 - 3 * channel) * y + channel) for channel in range(3)]
    stripes = (np.sin(40 * (x + y * y * seed / 4)) > 0) * 0.4
    return Image.fromarray(
        np.uint8(255 * np.clip(np.stack([0.5 + 0.3 * wave + stripes - 0.2 for wave in waves], -1), 0, 1))
    )


def blurred(picture: Image.Image, factor: float) -> Image.Image:
    """The picture, as if enlarged by a factor."""
    small = picture.resize((int(128 / factor),) * 2, Image.Resampling.BOX)
    return small.resize((128, 128), Image.Resampling.BICUBIC)


def webp(picture: Image.Image) -> str:
    """A data URI of the picture."""
    stream = io.BytesIO()
    picture.save(stream, "WEBP", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode()}"


def hostile() -> Page:
    """Every text of the page is one that means harm, or is too long."""
    page = empty()
    bad = HOSTILE
    page |= {
        "title": bad[0] + bad[3],
        "subtitle": bad[5],
        "status": {"word": "failed", "tone": "bad", "text": " ".join(bad)},
        "tiles": [
            tile(text[:60], text[:60], text, tone)
            for text, tone in zip(bad, ["", "good", "warn", "bad"] * 2, strict=True)
        ],
        "grid": [1, 2, 3, 4],
    }
    marks = [
        {"x": 2, "kind": kind, "text": text}
        for kind, text in zip(
            ["plan", "oom", "resume", "stop", "rollback", "note", "<b>", "constructor"], bad, strict=True
        )
    ]
    items = [
        {"step": 2, "time": 0, "kind": mark["kind"], "title": mark["text"], "text": mark["text"]} for mark in marks
    ]
    sets = pictures(2)["sets"]
    for one, text in zip(sets, (bad[0], bad[5]), strict=True):
        one |= {
            "name": text,
            "files": ["../../secret.png", "validation/" + bad[1].replace("/", "") + "#?.png"],
            "scores": [bad[6], bad[5]],
            "baseline_name": bad[4],
        }
    blocks = [
        chart(
            bad[0],
            "number",
            [series(text, [1, 3, None, 2]) for text in bad],
            marks,
            note=bad[6],
            id="hostile-chart",
            axis="auto",
        ),
        {"type": "events", "id": "events", "title": bad[1], "left_out": 0, "items": items},
        {"type": "pictures", "id": "pictures", "title": bad[5], "sets": sets},
        compared(list(bad[:4])) | {"note": bad[6], "names": [bad[5], bad[1]]},
        {"type": "pairs", "id": "pairs", "title": bad[2], "folded": True, "rows": [[text, text] for text in bad]},
        table(bad[5], [bad[0], bad[5], "short"], [[text, text, "1"] for text in bad]),
        {"type": "a block of a later version", "id": "later"},
    ]
    page["sections"] = [section("What did it do, and why?", bad[6], blocks)]
    return page


def empty() -> Page:
    """A run that has just begun: no step yet."""
    blocks = [chart("Loss", "number", [series("loss", [])]), chart("Memory", "bytes", [])]
    nothing = {"type": "events", "id": "events", "title": "Everything it did", "left_out": 0, "items": []}
    return {
        "title": "just_begun",
        "subtitle": "experiments/just_begun",
        "status": {"word": "running", "tone": "neutral", "text": ""},
        "written": 1_773_064_800,
        "tiles": [tile("Steps", "0", "of 100,000")],
        "grid": [],
        "sections": [
            section("Is it going well?", "No step is done yet.", blocks),
            section(
                "What did it do, and why?",
                "",
                [nothing, {"type": "pictures", "id": "none", "title": "Pictures", "sets": []}],
            ),
            section("With what?", "", [table("Options that differ from the defaults", ["Option", "Here"], [])]),
        ],
    }


def many_charts(charts: int = 25, points: int = 2000) -> Page:
    """As many charts as a large run has, each as long as one may be, with bands."""
    noise = random.Random(3)
    grid = list(range(500, 500 * points + 1, 500))
    page = empty() | {"title": f"{charts} charts of {points} points", "grid": grid}
    blocks = []
    for number in range(charts):
        y = [math.exp(-index / 300) + noise.uniform(0, 0.1) for index in range(points)]
        band = {"low": [round(value * 0.8, 4) for value in y], "high": [round(value * 1.3, 4) for value in y]}
        loss = series("loss", [round(value, 4) for value in y])
        lines = [loss | band if number % 2 else loss, series("mean", [round(value + 0.05, 4) for value in y])]
        blocks.append(chart(f"Loss of task {number + 1}", "number", lines, sample_marks(), axis="auto"))
    page["sections"] = [section("Is it going well?", "", blocks)]
    return page


def comparison() -> Page:
    """Three runs over each other; the second is half as long, the third was measured at steps of its own."""
    names = ["fixed batch 16", "automatic", "automatic, fp8"]
    noise = random.Random(4)
    grid = list(range(10, 4001, 10))
    curves = []
    for run, stop in enumerate((4000, 2000, 4000)):
        steps = [step + run for step in grid if step <= stop]
        losses = [0.02 + 0.1 * math.exp(-step / (900 - 200 * run)) * noise.uniform(0.95, 1.05) for step in steps]
        curves.append(series(names[run], losses, steps) | {"run": run})
    page = empty() | {
        "title": "Three runs compared",
        "subtitle": " · ".join(names),
        "status": {"word": "3 runs", "tone": "neutral", "text": ""},
        "tiles": [tile("Best PSNR", "31.42 dB", "automatic", "good"), tile("Fastest", "1 h 52 min", "automatic, fp8")],
        "grid": grid,
    }
    figures = [["PSNR (Y)", "31.11 dB", "31.42 dB", "31.40 dB"], ["Time", "4 h 12 min", "2 h 03 min", "1 h 52 min"]]
    final = table("Final figures", ["", *names], figures) | {
        "marked": [[0, 2], [1, 3]],
        "numeric": [False, True, True, True],
    }
    differing = table(
        "Options that differ",
        ["Option", *names],
        [["batch_size", "16", "auto", "auto"], ["precision", "bf16", "bf16", "fp8"]],
    )
    blocks = [
        chart("Loss", "number", curves, axis="auto"),
        chart("Loss, once more", "number", curves[:2], id="again", axis="log"),
        compared([name for name in names if name != "automatic"]),
    ]
    page["sections"] = [section("Is it going well?", "", [*blocks, final]), section("With what?", "", [differing])]
    return page


def compared(runs: list[str]) -> Block:
    """Crops of runs side by side, of which the second is blurred less."""
    rows = []
    for seed in (5, 9):
        clear = drawing(seed)
        outputs = [[name, webp(blurred(clear, 4 / number)), "step 4000"] for number, name in enumerate(runs, 1)]
        rows.append([["bicubic", webp(blurred(clear, 5)), ""], *outputs, ["reference", webp(clear), ""]])
    head = {"type": "compared", "id": "compared", "title": "The same crops", "note": "Without automatic."}
    return head | {"names": [f"val: {number}" for number in range(2)], "rows": rows}


def section(title: str, lead: str, blocks: list[Block]) -> Block:
    """A section under an id made of its title."""
    return {"id": identifier(title), "title": title, "lead": lead, "blocks": blocks}


def chart(title: str, unit: str, lines: list[Block], marks: list[Block] | None = None, **more: Any) -> Block:
    """A chart on a linear scale unless told otherwise."""
    block = {
        "type": "chart",
        "id": identifier(title),
        "title": title,
        "note": "",
        "unit": unit,
        "axis": "linear",
        "from_zero": False,
    }
    return block | {"series": lines, "marks": marks or []} | more


def series(name: str, y: list[Any], x: list[int] | str = "grid", style: str = "line") -> Block:
    """A series on the grid unless it has steps of its own."""
    return {"name": name, "style": style, "x": x, "y": y}


def table(title: str, columns: list[str], rows: list[list[str]]) -> Block:
    """A table of texts."""
    block = {"type": "table", "id": identifier(title), "title": title, "columns": columns, "rows": rows}
    return block | {"numeric": [False] * len(columns), "marked": []}


def tile(label: str, value: str, note: str = "", tone: str = "") -> Block:
    """A headline figure."""
    return {"label": label, "value": value, "note": note, "tone": tone}


def identifier(title: str) -> str:
    """Letters of a title, joined."""
    return (
        "-".join("".join(letter if letter.isascii() and letter.isalnum() else " " for letter in title).lower().split())[
            :40
        ]
        or "block"
    )


SAMPLES = {
    "everything": everything,
    "hostile": hostile,
    "empty": empty,
    "many_charts": many_charts,
    "comparison": comparison,
}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for sample, make in SAMPLES.items():
        (folder / f"{sample}.html").write_text(page_text(make()), encoding="utf-8")
