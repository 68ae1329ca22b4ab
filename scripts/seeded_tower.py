"""Writes a tower (VGG or AlexNet) whose weights come from a formula, for trying and testing losses without a download.

    python scripts/seeded_tower.py vgg19 FILE

Such a tower has learned nothing: a loss that uses it leads to no better images.
"""

import argparse
from pathlib import Path

import torch

from trainauto.tasks.sr.towers.tower import DESIGNS, Design


def write_seeded_tower(design: Design, file: Path, divisor: int = 1) -> None:
    """Write weights under torchvision's names.

    Weight k of convolution l is ``sqrt(24 / fan_in)`` times the fraction of ``43758.5453 sin(12.9898 k + 78.233 l)``
    minus one half, in float64; biases are 0.

    Args:
        design: which tower.
        file: where to write it; its folder is made.
        divisor: how many times fewer channels it has than the published tower.
    """
    state: dict[str, torch.Tensor] = {}
    channels_in = 3
    for number, layer in enumerate(design.convolutions()):
        channels = layer.channels // divisor
        fan_in = channels_in * layer.kernel**2
        k = torch.arange(channels * fan_in, dtype=torch.float64)
        wave = 43758.5453 * torch.sin(12.9898 * k + 78.233 * number)
        weight = (24 / fan_in) ** 0.5 * (wave - wave.floor() - 0.5)
        shape = (channels, channels_in, layer.kernel, layer.kernel)
        state[f"features.{layer.index}.weight"] = weight.view(shape).float()
        state[f"features.{layer.index}.bias"] = torch.zeros(channels)
        channels_in = channels
    file.parent.mkdir(parents=True, exist_ok=True)
    # As torchvision's files are, which are older than the format of today.
    torch.save(state, file, _use_new_zipfile_serialization=False)


def main() -> None:
    """Write the tower that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tower", choices=DESIGNS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--divisor", type=int, default=8, help="how many times fewer channels than published")
    given = parser.parse_args()
    write_seeded_tower(DESIGNS[given.tower], given.file, given.divisor)
    print(f"{given.file}: {given.tower}, {given.divisor} times fewer channels, untrained")


if __name__ == "__main__":
    main()
