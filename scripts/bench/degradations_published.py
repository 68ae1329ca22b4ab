"""The degradations that BasicSR publishes, called as it calls them: its data set, then `RealESRGANModel.feed_data`.

They are unpacked beside this repository's environment, which lends them torch, numpy and OpenCV.
"""

import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from trainauto.tasks.sr.degradations.presets import REAL_ESRGAN

RELEASE = "1.4.2"
GRAY = (0.2989, 0.587, 0.114)


def unpacked(folder: Path) -> Path | None:
    """Return the folder that holds the package, after a download if it is not there; ``None`` where pip has none."""
    source = folder / f"basicsr-{RELEASE}"
    if source.exists():
        return source
    folder.mkdir(parents=True, exist_ok=True)
    # Its setup script asks for another torch where pip builds in isolation; nothing of it is built or installed.
    words = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, f"basicsr=={RELEASE}"], capture_output=True, check=False
    )
    if done.returncode:
        return None
    with tarfile.open(folder / f"basicsr-{RELEASE}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return source


def _gray(image: Tensor, num_output_channels: int = 1) -> Tensor:
    """Do what torchvision's function of that name does, the only one that is called here."""
    gray = sum(weight * plane for weight, plane in zip(GRAY, image.unbind(-3), strict=True))
    return gray.unsqueeze(-3).expand(*image.shape[:-3], num_output_channels, *image.shape[-2:])  # type: ignore[union-attr]


def _stand_in_for_torchvision() -> None:
    """Let the package be imported: no torchvision of today has all the names that it imports."""
    called = {"transforms.functional_tensor": {"rgb_to_grayscale": _gray}}
    imported = {"transforms.functional": {"normalize": None}, "utils": {"make_grid": None}}
    for name in ("", "models", "models.vgg", "transforms", *called, *imported):
        path = f"torchvision.{name}".removesuffix(".")
        module = sys.modules[path] = ModuleType(path)
        vars(module).update(called.get(name, {}) | imported.get(name, {}))
        parent, _, last = path.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


class Published:
    """BasicSR's data set of a folder and its model's `feed_data`, with the ranges of its own files.

    Args:
        source: folder of the package.
        images: folder of PNG files.
        decoded: their pixels by name, (H, W, 3) in OpenCV's order.
        scale: enlargement factor.
        lq_size: side of a low-quality crop, in pixels.
    """

    def __init__(self, source: Path, images: Path, decoded: Mapping[str, np.ndarray], scale: int, lq_size: int) -> None:
        _stand_in_for_torchvision()
        sys.path.insert(0, str(source))
        from basicsr.data import realesrgan_dataset
        from basicsr.models.realesrgan_model import RealESRGANModel
        from basicsr.utils import DiffJPEG, USMSharp

        listed = images / "meta_info.txt"
        listed.write_text("\n".join(decoded), encoding="utf-8")
        self._options: dict[str, Any] = {
            **REAL_ESRGAN,
            "second_blur_prob": REAL_ESRGAN["blur_prob2"],
            "blur_kernel_size": 21,
            "blur_kernel_size2": 21,
            "scale": scale,
            "gt_size": lq_size * scale,
            "use_hflip": True,
            "use_rot": True,
            "dataroot_gt": str(images),
            "meta_info": str(listed),
        }
        self._module, self._from_bytes = realesrgan_dataset, realesrgan_dataset.imfrombytes
        self._decoded = {str(images / name): pixels for name, pixels in decoded.items()}
        self._feed, self._sharpener = RealESRGANModel.feed_data, USMSharp()
        jpeger = DiffJPEG(differentiable=False)
        # torch of today keeps the order of its channels, and the filter that follows fails at a view.
        self._jpeger = lambda image, quality: jpeger(image, quality=quality).contiguous()

    def maker(self, batch: int, *, from_files: bool, sharpens: bool) -> Callable[[int], object]:
        """Return what makes a batch of crops; its queue, which mixes batches, is left out."""
        files = self._module.RealESRGANDataset({**self._options, "io_backend": {"type": "disk"}})
        if not from_files:
            files.file_client = SimpleNamespace(get=lambda path, _client: self._decoded[path])
        model = SimpleNamespace(
            is_train=True,
            opt=self._options,
            device=torch.device("cpu"),
            jpeger=self._jpeger,
            usm_sharpener=self._sharpener if sharpens else lambda image: image,
            _dequeue_and_enqueue=lambda: None,
        )
        return partial(self._made, files, model, batch, self._from_bytes if from_files else _as_floats)

    def _made(self, files: Any, model: Any, batch: int, pixels_of: Callable[..., Any], number: int) -> Tensor:
        self._module.imfrombytes = pixels_of
        samples = [files[(number * batch + i) % len(files)] for i in range(batch)]
        self._feed(model, default_collate(samples))
        made: Tensor = model.lq
        return made


def _as_floats(pixels: np.ndarray, *, float32: bool) -> np.ndarray:
    return pixels.astype(np.float32) / 255 if float32 else pixels
