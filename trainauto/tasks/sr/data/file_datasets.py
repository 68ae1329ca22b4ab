"""The two sets that read files alone: pairs of folders, and high-quality images that are shrunk."""

from collections.abc import Sequence

from torch import Tensor

from trainauto.core.errors import InputError, Problem
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.registry import DATASETS
from trainauto.data.sample_files import Kept
from trainauto.tasks.sr.data.augmentations import Crops
from trainauto.tasks.sr.data.geometry import crop_corner_px, padded_to, shrunk, shrunk_crop
from trainauto.tasks.sr.data.image_dataset import ImageDataset, as_tensors
from trainauto.tasks.sr.data.image_files import ImageFile
from trainauto.tasks.sr.data.kept_images import Files
from trainauto.tasks.sr.data.pair_sizes import WrongPair
from trainauto.tasks.sr.data.pairing import AS_NAMED, pair_images
from trainauto.tasks.sr.data.reading import Reading
from trainauto.tasks.sr.degradations import Drawn


@DATASETS.register("GTImageDataset", "SingleGtDataset")
class GTImageDataset(ImageDataset):
    """High-quality images alone; the low-quality crop is made by shrinking them, antialiased bicubic by default.

    A crop equals, to the bit, the same crop of the whole image shrunk. Rows and columns beyond a multiple of the scale
    are left out.

    Args:
        dataroot_gt: as for :class:`ImageDataset`, like the arguments below.
        lq_resize_mode: how images are shrunk, see :func:`~trainauto.tasks.sr.degradations.resizing.resized`.
    """

    def __init__(
        self,
        dataroot_gt: str | Sequence[str],
        *,
        scale: int,
        channels: int = 3,
        name: str = "train",
        use_hflip: bool = True,
        use_rot: bool = True,
        reading: Reading = Reading(),  # noqa: B008  it is frozen
        lq_resize_mode: str = "bicubic",
    ) -> None:
        super().__init__(
            dataroot_gt,
            scale=scale,
            channels=channels,
            name=name,
            use_hflip=use_hflip,
            use_rot=use_rot,
            reading=reading,
        )
        self._resize_mode = lq_resize_mode

    def _crops(self, key: SampleKey) -> tuple[Crops, list[Drawn]]:
        scale, side = self.scale, key.size
        pixels = self._read(self._gt[self.place_of(key.sample)])
        pixels = pixels[: pixels.shape[0] // scale * scale, : pixels.shape[1] // scale * scale]
        pixels = padded_to(pixels, side * scale, side * scale)
        top, left = crop_corner_px(key.seed, pixels.shape[0] // scale, pixels.shape[1] // scale, side)
        gt = pixels[top * scale : (top + side) * scale, left * scale : (left + side) * scale]
        return self._turned(shrunk_crop(pixels, top, left, side, scale, self._resize_mode), gt, key.seed)

    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return the whole image and its shrunk copy."""
        scale = self.scale
        pixels = self._read(self._gt[self.place_of(index)])
        gt = pixels[: pixels.shape[0] // scale * scale, : pixels.shape[1] // scale * scale]
        return as_tensors({"lq": shrunk(gt, scale, self._resize_mode), "gt": gt})

    def _look_at(self, index: int) -> tuple[int, int] | Problem:
        file = self._gt[index]
        try:
            height, width = self._size_px(file)
        except InputError as error:
            return Problem(f"dataset '{self.name}': {error.problems[0].message}", advice=error.problems[0].advice)
        if min(height, width) < self.scale:
            return Problem(
                f"dataset '{self.name}': {file.path} is {width}x{height}, less than one pixel at scale {self.scale}",
                advice="Remove it.",
            )
        return height // self.scale, width // self.scale


@DATASETS.register("PairedImageDataset")
class PairedImageDataset(ImageDataset):
    """High-quality images and their low-quality partners, paired by relative path without the extension.

    Args:
        dataroot_gt: as for :class:`ImageDataset`.
        dataroot_lq: the same for the low-quality images.
        filename_tmpl: name of a low-quality image made of that of its partner, see
            :func:`~trainauto.tasks.sr.data.pairing.pair_images`.
        crops_larger: leave out the right and lower edge of a high-quality image that is larger than ``scale`` times its
            partner, as BasicSR does outside of training; without it, :meth:`scan` refuses such a pair.
        arguments: as for :class:`ImageDataset`.
    """

    def __init__(
        self,
        dataroot_gt: str | Sequence[str],
        dataroot_lq: str | Sequence[str],
        *,
        scale: int,
        channels: int = 3,
        name: str = "train",
        use_hflip: bool = True,
        use_rot: bool = True,
        reading: Reading = Reading(),  # noqa: B008  it is frozen
        filename_tmpl: str = AS_NAMED,
        crops_larger: bool = False,
    ) -> None:
        self._lq_roots, self._template, self._crops_larger = dataroot_lq, filename_tmpl, crops_larger
        super().__init__(
            dataroot_gt,
            scale=scale,
            channels=channels,
            name=name,
            use_hflip=use_hflip,
            use_rot=use_rot,
            reading=reading,
        )

    def _listed_sides(self, dataroot_gt: str | Sequence[str]) -> list[list[ImageFile]]:
        return [*super()._listed_sides(dataroot_gt), self._found(self._lq_roots, "dataroot_lq")]

    def _matched(self, sides: Sequence[Sequence[ImageFile]]) -> list[Files]:
        # A list of images leaves out others, and so their partners.
        is_part = self._reading.meta_info is not None
        return list(pair_images(*sides, set_name=self.name, filename_tmpl=self._template, of_more=is_part))

    def _taken(self, sides: Sequence[Sequence[ImageFile]], kept: Kept | None) -> list[Files]:
        samples = super()._taken(sides, kept)
        self._lq = [files[1] for files in samples]
        return samples

    def _crops(self, key: SampleKey) -> tuple[Crops, list[Drawn]]:
        scale, side = self.scale, key.size
        lq = padded_to(self._read(self._lq[self.place_of(key.sample)]), side, side)
        gt = padded_to(self._read(self._gt[self.place_of(key.sample)]), side * scale, side * scale)
        top, left = crop_corner_px(key.seed, lq.shape[0], lq.shape[1], side)
        gt = gt[top * scale : (top + side) * scale, left * scale : (left + side) * scale]
        return self._turned(lq[top : top + side, left : left + side], gt, key.seed)

    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return both whole images; the high-quality one without an edge beyond its partner's."""
        lq, gt = self._read(self._lq[self.place_of(index)]), self._read(self._gt[self.place_of(index)])
        gt = gt[: lq.shape[0] * self.scale, : lq.shape[1] * self.scale]
        return as_tensors({"lq": lq, "gt": gt})

    def _look_at(self, index: int) -> tuple[int, int] | Problem | WrongPair:
        lq_file, gt_file = self._lq[index], self._gt[index]
        try:
            lq, gt = self._size_px(lq_file), self._size_px(gt_file)
        except InputError as error:
            return Problem(f"dataset '{self.name}': {error.problems[0].message}", advice=error.problems[0].advice)
        if gt != (lq[0] * self.scale, lq[1] * self.scale):
            wrong = WrongPair(gt_file.path, lq_file.path, gt, lq)
            if not (self._crops_larger and wrong.is_croppable(self.scale)):
                return wrong
            self._cropped.append(wrong)
        return lq

    def _files(self) -> list[ImageFile]:
        return [*self._gt, *self._lq]

    def _decoded_files(self, lq_sizes: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
        lq = [(file.path, height, width) for file, (height, width) in zip(self._lq, lq_sizes, strict=True)]
        return super()._decoded_files(lq_sizes) + lq
