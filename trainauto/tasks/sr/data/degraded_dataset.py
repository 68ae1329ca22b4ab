"""Sets whose low-quality images are made at random while a run trains."""

from collections.abc import Sequence

from torch import Tensor

from trainauto.core.hashing import splitmix64
from trainauto.data.dynamic_dataset import SampleKey
from trainauto.data.registry import DATASETS
from trainauto.tasks.sr.data.augmentations import Crops
from trainauto.tasks.sr.data.file_datasets import GTImageDataset, PairedImageDataset
from trainauto.tasks.sr.data.geometry import crop_corner_px, flipped, padded_to
from trainauto.tasks.sr.data.image_crops import ImageCrops
from trainauto.tasks.sr.data.image_dataset import as_tensors
from trainauto.tasks.sr.data.image_io import Pixels
from trainauto.tasks.sr.data.pairing import AS_NAMED
from trainauto.tasks.sr.data.pixel_format import PixelFormat
from trainauto.tasks.sr.data.reading import Reading
from trainauto.tasks.sr.degradations import DegradationSettings, Drawn, degrade, generator_of
from trainauto.tasks.sr.degradations.image import to_image, to_pixels
from trainauto.tasks.sr.degradations.presets import settings_of
from trainauto.tasks.sr.degradations.sharpening import Sharpening, sharpened

GT, SHARP = "gt", "gt_usm"
MARGIN_PX = 32
"""By how much more of an image is degraded than is trained on, as in traiNNer-redux: edges of blurs are cut off."""
_INNER, _PAIR = 0x696E_6E65, 0x7061_6972
"""Keep draws about one sample apart."""


class DegradedCrops:
    """Makes low-quality crops of high-quality images; a sample's seed decides everything about it.

    Args:
        scale: enlargement factor.
        settings: what is drawn.
        sharpening: what is sharpened before.
        references: names of the targets that samples hold.
        use_hflip: allow left-right flips.
        use_rot: allow up-down flips and quarter turns.
        form: of the pixels; low-quality ones are rounded to 8 bits in any.
    """

    def __init__(
        self,
        scale: int,
        settings: DegradationSettings | None,
        sharpening: Sharpening,
        references: Sequence[str],
        *,
        form: PixelFormat,
        use_hflip: bool,
        use_rot: bool,
    ) -> None:
        self._scale, self._settings, self._sharpening = scale, settings or settings_of(), sharpening
        self._references, self._form = references, form
        self._flips = {"use_hflip": use_hflip, "use_rot": use_rot}

    def crop(self, pixels: Pixels, side: int, seed: int) -> tuple[Crops, list[Drawn]]:
        """Return a crop of an image, ``side`` px of the low-quality image wide, with what was drawn for it."""
        scale = self._scale
        pixels = padded_to(_cut(pixels, scale), side * scale, side * scale)
        window = side + -(-MARGIN_PX // scale)  # or all of a smaller image
        top, left = crop_corner_px(seed, pixels.shape[0] // scale, pixels.shape[1] // scale, window)
        pixels = pixels[top * scale : (top + window) * scale, left * scale : (left + window) * scale]
        images, drawn = self.whole(flipped(pixels, seed, **self._flips), seed)
        rows, columns = images["lq"].shape[:2]
        top, left = crop_corner_px(seed ^ _INNER, rows, columns, side)
        return {
            name: image[top * by : (top + side) * by, left * by : (left + side) * by]
            for name, image in images.items()
            for by in (1 if name == "lq" else scale,)
        }, drawn

    def whole(self, pixels: Pixels, seed: int) -> tuple[Crops, list[Drawn]]:
        """Return an image whose sides are multiples of the scale, a low-quality one, and what was drawn for it."""
        rng, sharpening = generator_of(seed), self._sharpening
        image = to_image(pixels)
        needs_sharp = sharpening.degraded or sharpening.target or SHARP in self._references
        sharp = sharpened(image) if needs_sharp else image
        source = sharp if sharpening.degraded else image
        drawn: list[Drawn] = []
        if sharpening.radii_px is not None:
            radius = int(rng.integers(sharpening.radii_px[0], sharpening.radii_px[1] + 1))
            source = sharpened(image, radius)
            drawn.append(Drawn("sharpening", {"radius": radius}))
        height, width = (length // self._scale for length in pixels.shape[:2])
        low, steps = degrade(source, self._settings, rng, height, width)
        targets = {GT: to_pixels(sharp, pixels.dtype) if sharpening.target else pixels}
        if SHARP in self._references:
            targets[SHARP] = to_pixels(sharp, pixels.dtype)
        return {"lq": self._form.deepened(to_pixels(low)), **targets}, [*drawn, *steps]


@DATASETS.register("RealESRGANDataset")
class RealESRGANDataset(GTImageDataset):
    """High-quality images; low-quality crops are made of them by blur, resizing, noise and compression, twice over.

    A sample's seed decides what is drawn, so that a resumed or repeated run makes the same crops in any number of
    workers. Whole images, as validation asks for them, are degraded by the number of the image.

    Args:
        dataroot_gt: as for :class:`~trainauto.tasks.sr.data.image_dataset.ImageDataset`, like the arguments below.
        degradations: what is drawn; ``None`` for BasicSR's ranges.
        sharpening: what is sharpened before.
        references: targets that samples hold: ``gt``, and ``gt_usm`` for the sharpened image.
    """

    def __init__(
        self,
        dataroot_gt: str | Sequence[str],
        *,
        scale: int,
        degradations: DegradationSettings | None = None,
        sharpening: Sharpening = Sharpening(),  # noqa: B008  it is frozen
        references: Sequence[str] = (GT,),
        channels: int = 3,
        name: str = "train",
        use_hflip: bool = True,
        use_rot: bool = True,
        reading: Reading = Reading(),  # noqa: B008  it is frozen
    ) -> None:
        super().__init__(dataroot_gt, scale=scale, channels=channels, name=name, reading=reading)
        self.workload = ImageCrops(channels, scale, references, bits=reading.bits)
        self._degraded = DegradedCrops(
            scale, degradations, sharpening, references, form=self.form, use_hflip=use_hflip, use_rot=use_rot
        )

    def _crops(self, key: SampleKey) -> tuple[Crops, list[Drawn]]:
        return self._degraded.crop(self._read(self._gt[self.place_of(key.sample)]), key.size, key.seed)

    def full_sample(self, index: int) -> dict[str, Tensor]:
        """Return the whole image and a degraded copy, the same each time."""
        return as_tensors(self._degraded.whole(_cut(self._read(self._gt[self.place_of(index)]), self.scale), index)[0])


@DATASETS.register("RealESRGANPairedDataset")
class RealESRGANPairedDataset(PairedImageDataset):
    """Pairs of images, and at random low-quality crops that are made of the high-quality one.

    Args:
        dataroot_gt: as for :class:`PairedImageDataset`, like the arguments below.
        dataroot_lq: likewise.
        dataroot_lq_prob: how often a sample is a pair of files; traiNNer-redux draws this for a whole batch.
        degradations: what is drawn for the others; ``None`` for BasicSR's ranges.
        sharpening: what is sharpened before.
        references: targets that samples hold.
    """

    def __init__(
        self,
        dataroot_gt: str | Sequence[str],
        dataroot_lq: str | Sequence[str],
        *,
        scale: int,
        degradations: DegradationSettings | None = None,
        sharpening: Sharpening = Sharpening(),  # noqa: B008  it is frozen
        references: Sequence[str] = (GT,),
        dataroot_lq_prob: float = 1.0,
        channels: int = 3,
        name: str = "train",
        use_hflip: bool = True,
        use_rot: bool = True,
        reading: Reading = Reading(),  # noqa: B008  it is frozen
        filename_tmpl: str = AS_NAMED,
        crops_larger: bool = False,
    ) -> None:
        super().__init__(
            dataroot_gt,
            dataroot_lq,
            scale=scale,
            channels=channels,
            name=name,
            use_hflip=use_hflip,
            use_rot=use_rot,
            reading=reading,
            filename_tmpl=filename_tmpl,
            crops_larger=crops_larger,
        )
        self.workload = ImageCrops(channels, scale, references, bits=reading.bits)
        self._pair_prob, self._sharpens, self._sharpens_target = (
            dataroot_lq_prob,
            SHARP in references,
            sharpening.target,
        )
        self._degraded = DegradedCrops(
            scale, degradations, sharpening, references, form=self.form, use_hflip=use_hflip, use_rot=use_rot
        )

    def _crops(self, key: SampleKey) -> tuple[Crops, list[Drawn]]:
        if splitmix64(key.seed ^ _PAIR) >= self._pair_prob * 2**64:
            return self._degraded.crop(self._read(self._gt[self.place_of(key.sample)]), key.size, key.seed)
        sample, _ = super()._crops(key)
        if self._sharpens or self._sharpens_target:
            sharp = to_pixels(sharpened(to_image(sample[GT])), sample[GT].dtype)
            sample |= {SHARP: sharp} if self._sharpens else {}
            sample |= {GT: sharp} if self._sharpens_target else {}
        return sample, [Drawn("pair of files", {})]


def _cut(pixels: Pixels, scale: int) -> Pixels:
    """Leave out rows and columns beyond a multiple of the scale."""
    return pixels[: pixels.shape[0] // scale * scale, : pixels.shape[1] // scale * scale]
