"""Tiles where the system refuses memory, in a process whose limit is its own."""

import sys
from pathlib import Path

import pytest

from tests.integration.commands import script

REAL = """
import resource, torch
from torch import nn
from trainauto.tasks.sr.models.tiles import TiledEnlarger
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 12, 3, padding=1), nn.PixelShuffle(2))
net = net.eval().requires_grad_(False)
image = torch.rand(1, 3, 512, 512)
want = net(image)
net(image[..., :64, :64])
used = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmData")) * 1024
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (used + 60 * 2**20, hard))
enlarger = TiledEnlarger(2, overlap_px=4)
got = enlarger(net, image)
resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # comparing takes memory, too
print(enlarger.tile_px, float((got - want).abs().max()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the data segment can be limited on Linux only")
def test_real_lack_of_memory_shrinks_the_tile(tmp_path: Path) -> None:
    """The kernel refuses the memory, torch's allocator raises, the tile shrinks, the result is whole."""
    (tmp_path / "real.py").write_text(REAL)
    done = script("real.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    tile_px, difference = done.stdout.split()
    assert 0 < int(tile_px) < 512
    assert float(difference) < 1e-5
