"""Which images of its folders a set reads, and how."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainauto.data.sample_files import Kept


@dataclass(frozen=True)
class Reading:
    """Which images of its folders a set reads, and how.

    Attributes:
        cache_dir: folder for decoded pixels; ``None`` decodes on every read.
        decode_all: have ``scan`` decode every image, and refuse damaged ones.
        meta_info: a text file that names the high-quality images to read, see
            :func:`~trainauto.tasks.sr.data.image_dataset.listed_in`; ``None`` reads all.
        root_weights: how often each root of ``dataroot_gt`` is drawn from, in proportion; ``None`` draws every image as
            often as any other.
        bits: of the pixels, 8 or 16.
        is_luma: whether sets of one channel hold BT.601's Y, see :class:`~.pixel_format.PixelFormat`.
        kept: files that an earlier start of the run had; ``None`` takes those that are there.
    """

    cache_dir: str | None = None
    decode_all: bool = False
    meta_info: str | None = None
    root_weights: Sequence[float] | None = None
    bits: int = 8
    is_luma: bool = False
    kept: Kept | None = None
