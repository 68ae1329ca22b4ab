"""Images that Pillow takes for bombs."""

import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.integration.commands import script


def test_an_image_of_90_megapixels_is_read_without_a_word(tmp_path: Path) -> None:
    """Pillow's own warning of a decompression bomb names no file, and the image is no bomb."""
    pixels = np.zeros((9000, 10_000), np.uint8)
    pixels[-1, -1] = 255
    for name in ("a.png", "b.png", "a.jpg", "b.jpg"):
        assert cv2.imwrite(str(tmp_path / name), pixels)
    # A process of its own, with warnings as they are: pytest makes errors of all.
    read = """
from trainauto.data import GTImageDataset
from trainauto.tasks.sr.data.image_io import read_header, read_image
from trainauto.tasks.sr.data.large_images import read_picture
assert GTImageDataset(".", scale=2).scan().samples == 4
for suffix in (".png", ".jpg"):
    header = read_header(f"a{suffix}")
    assert (header.height_px, header.width_px) == (9000, 10000)
    assert read_image(f"a{suffix}", 1)[-1, -1, 0] > 200
    assert read_picture(f"b{suffix}", 1).pixels.shape == (9000, 10000, 1)
"""
    command = [sys.executable, "-c", read]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space as Linux does")
@pytest.mark.parametrize("suffix", [".png", ".gif"])
def test_an_image_without_memory_for_it_is_not_called_damaged(tmp_path: Path, suffix: str) -> None:
    """One of 57 MiB decoded by OpenCV, and by Pillow, where 32 MiB more are allowed."""
    Image.new("RGB", (5000, 4000)).save(tmp_path / f"a{suffix}")
    (tmp_path / "read.py").write_text(f"""
import resource
from pathlib import Path
from trainauto.core.errors import InputError
from trainauto.tasks.sr.data.image_io import read_image
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**25, used + 2**25))
try:
    read_image("a{suffix}", 3)
except InputError as error:
    print(error)
""")
    done = script("read.py", cwd=tmp_path)
    assert done.stdout.startswith(f"no memory is left to decode image a{suffix}"), done.stderr
