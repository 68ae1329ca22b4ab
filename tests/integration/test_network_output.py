"""What a network of one's own must return is said before there is a run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.commands import tiny_options, train, write_options

NETWORKS = """
import torch
from torch import nn
from trainauto.tasks.sr.archs import ARCHS


class Base(nn.Module):
    def __init__(self, scale=2):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))


@ARCHS.register("a_pair")
class Pair(Base):
    def forward(self, image):
        return self.body(image), image


@ARCHS.register("too_small")
class Small(Base):
    def forward(self, image):
        return self.body(image)[..., 1:]


@ARCHS.register("grey")
class Grey(Base):
    def forward(self, image):
        return self.body(image)[:, :1]


@ARCHS.register("fails")
class Fails(Base):
    def forward(self, image):
        return self.body(image[:, :2])
"""
MUST = "Its forward must return one tensor of 1x3x16x16 for an image of 1x3x8x8."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a_pair", "network 'a_pair' returns a tuple of 2, no image"),
        ("too_small", "network 'too_small' makes 1x3x16x15 of 1x3x8x8, which is not `scale: 2`"),
        ("grey", "network 'grey' makes 1x1x16x16 of 1x3x8x8"),
        ("fails", "network 'fails' fails: RuntimeError: Given groups=1"),
    ],
)
def test_another_output_is_refused(name: str, words: str, tmp_path: Path, write_images: Callable[..., Path]) -> None:
    (tmp_path / "own_networks.py").write_text(NETWORKS)
    gt = write_images("gt", 2)
    options = tiny_options(gt, plugins=["own_networks"], network_g={"type": name})
    file = write_options(tmp_path / "run.yml", options)
    done = train(file)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert words in done.stderr
    assert MUST in done.stderr
    assert "run.yml:" in done.stderr
    assert not (tmp_path / "experiments").exists()
