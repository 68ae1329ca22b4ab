"""What sets of images have in common: their files, what a look at them finds, crops as samples."""

import hashlib
import logging
import os
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from torch import Tensor

from trainauto.core.errors import InputError, Problem, nearest
from trainauto.core.hashing import splitmix64
from trainauto.core.plan import Plan
from trainauto.core.units import size_text
from trainauto.core.words import counted
from trainauto.data.dynamic_dataset import DatasetScan, DynamicDataset, SampleKey, SmallRun
from trainauto.data.sample_files import Kept, SampleFiles
from trainauto.tasks.sr.data.augmentations import Augmentations, Crops
from trainauto.tasks.sr.data.geometry import flipped, to_tensor
from trainauto.tasks.sr.data.image_crops import ImageCrops
from trainauto.tasks.sr.data.image_files import ImageFile, distinct_names, find_images
from trainauto.tasks.sr.data.image_io import Pixels, decoded, read_header, read_pixels
from trainauto.tasks.sr.data.image_source import name_in
from trainauto.tasks.sr.data.kept_images import Files, files_taken, sample_files_of
from trainauto.tasks.sr.data.pair_sizes import WrongPair, problems_of, say_cropped
from trainauto.tasks.sr.data.pixel_cache import PixelCache
from trainauto.tasks.sr.data.pixel_format import DEEPEST_BITS, PixelFormat
from trainauto.tasks.sr.data.reading import Reading
from trainauto.tasks.sr.data.shared_pixels import SharedPixels, bytes_of, room_bytes
from trainauto.tasks.sr.degradations import Drawn

SHOWN_PROBLEMS = 10
IF_DECODING = (
    "every crop decodes its whole file. `cache_dir: FOLDER` in datasets.train keeps decoded pixels on disk, and "
    "`python -m trainauto prepare` cuts images into tiles; more workers (num_worker_per_gpu) decode at once"
)
_PARTNER = 0x7061_7274
"""Keeps the draw of a partner apart from others of the same seed."""

logger = logging.getLogger(__name__)


class ImageDataset(DynamicDataset):
    """Square crops of images, flipped and turned at random.

    An image smaller than the crop is mirrored at its lower and right edge until the crop fits.

    Attributes:
        keeps_decoded: whether :meth:`scan` makes room for the decoded pixels of all images, where there is no
            ``cache_dir`` and they fit a share of the free memory.
        augmentations: what is mixed into samples; ``None`` where nothing is.

    Args:
        dataroot_gt: folders or files of high-quality images, see :func:`~.image_files.list_images`.
        scale: enlargement factor.
        channels: 3 for RGB, 1 for grey; images of the other kind are converted.
        name: name of the set in messages.
        use_hflip: allow left-right flips.
        use_rot: allow up-down flips and quarter turns.
        reading: which images of the folders are read, and how.
    """

    if_waiting = "more workers (num_worker_per_gpu) make more samples at once, where cores are free"
    small_run = SmallRun("compact", Plan.of(lq_size=32, batch_size=4))
    keeps_decoded = False
    augmentations: Augmentations | None = None

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
    ) -> None:
        self.name = name
        self.scale = scale
        self._reading = reading
        self.form = PixelFormat(channels, reading.bits, is_luma=reading.is_luma)
        self.workload = ImageCrops(channels, scale, bits=reading.bits)
        self._use_hflip = use_hflip
        self._use_rot = use_rot
        samples = self._taken(self._listed_sides(dataroot_gt), reading.kept)
        self._gt = [files[0] for files in samples]
        self._names = distinct_names(self._gt)
        self._sample_files = sample_files_of(samples)
        self._repeated = self._repeats(dataroot_gt, reading.root_weights)
        self._deep: list[tuple[str, int]] = []
        self._cropped: list[WrongPair] = []
        self._cache: PixelCache | SharedPixels | None = (
            PixelCache(reading.cache_dir, self.form) if reading.cache_dir else None
        )
        self._sizes_px: dict[str, tuple[int, int]] = {}

    def _listed_sides(self, dataroot_gt: str | Sequence[str]) -> list[list[ImageFile]]:
        """Return the high-quality images; and the low-quality ones, where the set has such files."""
        files = self._found(dataroot_gt, "dataroot_gt")
        return [listed_in(self._reading.meta_info, files, self.name) if self._reading.meta_info else files]

    def _found(self, roots: str | Sequence[str], argument: str) -> list[ImageFile]:
        found = find_images(roots, set_name=self.name, argument=argument)
        self.not_read = Counter(self.not_read) + found.not_read
        return found.files

    def _matched(self, sides: Sequence[Sequence[ImageFile]]) -> list[Files]:
        """Return the files of each sample."""
        return [(file,) for file in sides[0]]

    def _taken(self, sides: Sequence[Sequence[ImageFile]], kept: Kept | None) -> list[Files]:
        """Return the files of each sample, and note how they differ from those that a resumed run began with."""
        samples, self.changes = files_taken(sides, kept, self._matched)
        return samples

    def sample_files(self) -> SampleFiles:
        """Return the files of all samples, by name and size."""
        return self._sample_files

    def identity(self) -> str:
        """Return what tells these samples, in their order, from others: files, and which of them are repeated."""
        files = super().identity()
        return hashlib.sha256(f"{files}{self._repeated}".encode()).hexdigest()[:16] if self._repeated else files

    def __len__(self) -> int:
        return len(self._gt) + len(self._repeated)

    @property
    def images(self) -> int:
        """How many images there are; samples may be more."""
        return len(self._gt)

    def place_of(self, sample: int) -> int:
        """Return which of the images a sample is: all of them in their order, then those that are repeated."""
        return sample if sample < len(self._gt) else self._repeated[sample - len(self._gt)]

    def _repeats(self, roots: str | Sequence[str], weights: Sequence[float] | None) -> list[int]:
        """Return which images come again in an epoch, so that roots are drawn from by their weights.

        Every image comes at least once: those of the root that has most for its weight, once exactly.

        Raises:
            InputError: there is not one weight for each root.
        """
        if weights is None:
            return []
        count = 1 if isinstance(roots, str) else len(roots)
        if len(weights) != count:
            message = f"dataset '{self.name}': {counted(count, 'root')} and {counted(len(weights), 'weight')}"
            raise InputError(Problem(message, advice="Write one for each root.", argument="root_weights"))
        of_root: dict[int, list[int]] = {}
        for place, file in enumerate(self._gt):
            of_root.setdefault(file.root, []).append(place)
        rounds = max(len(places) / weights[root] for root, places in of_root.items())
        return [
            places[number % len(places)]
            for root, places in of_root.items()
            for number in range(len(places), round(rounds * weights[root]))
        ]

    def sample_name(self, index: int) -> str:
        """Return the path of the high-quality image."""
        return self._gt[self.place_of(index)].path

    def sample_key(self, index: int) -> str:
        """Return the name a picture of this sample is saved under; no other image has it."""
        return self._names[self.place_of(index)]

    def scan(self) -> DatasetScan:
        """Read the size of every file; see the base class."""
        with ThreadPoolExecutor(8) as threads:
            sizes_or_problems = list(threads.map(self._look_at, range(len(self._gt))))
        wrong = [item for item in sizes_or_problems if isinstance(item, WrongPair)]
        problems = [item for item in sizes_or_problems if isinstance(item, Problem)]
        say_cropped(self._cropped, self.scale, len(self._gt), self.name)
        _refuse([*problems_of(wrong, self.scale, len(self._gt), self.name), *problems])
        if self._reading.decode_all:
            _refuse(list(damaged_among([file.path for file in self._files()], self.form, self.name)))
        self._say_deep()
        sizes = [size for size in sizes_or_problems if isinstance(size, tuple)]
        sides = [min(height, width) for height, width in sizes]
        smallest = min(range(len(sides)), key=sides.__getitem__)
        self.largest_sample = max(range(len(sizes)), key=lambda index: sizes[index][0] * sizes[index][1])
        self.digest = hashlib.sha256(repr(list(zip(self._names, sizes, strict=True))).encode()).hexdigest()
        whole_bytes = sum(height * width for height, width in sizes) * self.scale**2 * self.form.pixel_bytes
        if isinstance(self._cache, PixelCache):
            self._cache.check_room(self._decoded_files(sizes), set_name=self.name)
        elif self.keeps_decoded and self._cache is None:
            self._keep_decoded()
        return DatasetScan(len(self), sides[smallest], self.sample_name(smallest), whole_bytes, max(sides))

    def __getitem__(self, key: SampleKey) -> dict[str, Tensor]:
        """Make one training sample; see the base class."""
        return as_tensors(self.drawn(key)[0])

    def drawn(self, key: SampleKey) -> tuple[Crops, list[Drawn]]:
        """Return the pixels of a training sample by name, and what was drawn for it."""
        crops, drawn = self._crops(key)
        if self.augmentations is None:
            return crops, drawn
        made, mixed = self.augmentations.applied(crops, key.seed, lambda: self._crops(self._partner_of(key))[0])
        return made, [*drawn, *mixed]

    def _partner_of(self, key: SampleKey) -> SampleKey:
        """Return the sample that another is mixed with: of another image, where the set has one."""
        seed = splitmix64(key.seed ^ _PARTNER)
        others = max(1, self.images - 1)
        partner = (self.place_of(key.sample) + 1 + seed % others) % self.images
        return SampleKey(partner, key.size, splitmix64(seed))

    @abstractmethod
    def _crops(self, key: SampleKey) -> tuple[Crops, list[Drawn]]:
        """Return the crops of a training sample, and what was drawn for them."""

    @abstractmethod
    def _look_at(self, index: int) -> tuple[int, int] | Problem | WrongPair:
        """Return (height, width) of the low-quality image, or what is wrong with the sample."""

    def _files(self) -> list[ImageFile]:
        return self._gt

    def _size_px(self, file: ImageFile) -> tuple[int, int]:
        """Return (height, width) of an image, and note it if it has more bits than are trained.

        Raises:
            InputError: it cannot be read, or has more bits than can be decoded.
        """
        header = read_header(file.path)
        if header.bits > DEEPEST_BITS:
            what = f"{file.path} has {header.bits} bits a sample, which cannot be decoded"
            raise InputError(Problem(what, advice="Save it with 8 or 16 bits."))
        if header.bits > self.form.bits:
            self._deep.append((file.path, header.bits))
        self._sizes_px[file.path] = header.height_px, header.width_px
        return header.height_px, header.width_px

    def _keep_decoded(self) -> None:
        needed, room = bytes_of(self._sizes_px, self.form), room_bytes()
        if needed <= room:
            self._cache = SharedPixels(self._sizes_px, self.form)
        else:
            self.if_waiting = IF_DECODING
            logger.info(
                "dataset '%s': decoded pixels take %s, more than %s (a quarter of the free memory): every crop decodes "
                "its file. `cache_dir: FOLDER` in this set keeps decoded pixels on disk",
                self.name,
                size_text(needed),
                size_text(room),
            )

    def _say_deep(self) -> None:
        folders: dict[str, list[str]] = {}
        for path, _ in sorted(self._deep):
            folders.setdefault(str(Path(path).parent), []).append(Path(path).name)
        self._deep.clear()
        for folder, names in folders.items():
            logger.warning(
                "dataset '%s': 16 bits are reduced to 8: %d of the images in %s (%s%s). `bit_depth: 16` keeps them",
                self.name,
                len(names),
                folder,
                names[0],
                ", ..." if len(names) > 1 else "",
            )

    def _decoded_files(self, lq_sizes: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
        return [
            (file.path, height * self.scale, width * self.scale)
            for file, (height, width) in zip(self._gt, lq_sizes, strict=True)
        ]

    def _read(self, file: ImageFile) -> Pixels:
        return self._cache.read(file.path) if self._cache is not None else read_pixels(file.path, self.form)

    def _turned(self, lq: Pixels, gt: Pixels, seed: int) -> tuple[Crops, list[Drawn]]:
        turned = [flipped(pixels, seed, use_hflip=self._use_hflip, use_rot=self._use_rot) for pixels in (lq, gt)]
        return {"lq": turned[0], "gt": turned[1]}, []


def as_tensors(crops: Crops) -> dict[str, Tensor]:
    """Return the pixels of a sample as (C, H, W) tensors by name."""
    return {name: to_tensor(pixels) for name, pixels in crops.items()}


def _refuse(problems: list[Problem]) -> None:
    if problems:
        left_out = len(problems) - SHOWN_PROBLEMS
        more = [Problem(f"... and {counted(left_out, 'more problem')}")] if left_out > 0 else []
        raise InputError(problems[:SHOWN_PROBLEMS] + more)


FEW = 64
"""So many images are decoded before further processes would have started."""


def damaged_among(paths: Sequence[str], form: PixelFormat, set_name: str) -> Iterator[Problem]:
    """Yield what is wrong with each image that cannot be decoded, or that the decoder says is damaged.

    On all cores where there are many: each process hears what its own decoder says.

    Raises:
        InputError: one of these processes was killed.
    """
    look = partial(_damage, form=form)
    if len(paths) <= FEW or (os.cpu_count() or 1) == 1:
        damages = map(look, paths)
        yield from (_problem(*result, set_name) for result in zip(paths, damages, strict=True) if result[1])
        return
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as processes:
        answers = processes.map(look, paths, chunksize=16)
        try:
            yield from (_problem(*result, set_name) for result in zip(paths, answers, strict=True) if result[1])
        except BrokenProcessPool as error:
            advice = "Memory may have run out. Free some, or leave decode_all out."
            raise InputError(
                Problem(f"dataset '{set_name}': a process that decodes images was killed", advice=advice)
            ) from error


def _damage(path: str, form: PixelFormat) -> str:
    try:
        return decoded(path, form)[1]
    except InputError as error:
        return error.problems[0].message


def _problem(path: str, damage: str, set_name: str) -> Problem:
    what = damage if path in damage else f"{path} is damaged: {damage}"
    return Problem(f"dataset '{set_name}': {what}", advice="Copy or download it again, or leave it out.")


SHOWN_NAMES = 5


def names_in(meta_info: str) -> list[str]:
    """Return the names in a list, in its order: ``0001_s001.png (480,480,3)`` names ``0001_s001.png``.

    Raises:
        InputError: the file cannot be read, or names nothing.
    """
    try:
        lines = Path(meta_info).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot read {meta_info}: {error}", argument="meta_info")) from error
    names = [_as_compared(name_in(line)) for line in lines if line.strip()]
    if not names:
        raise InputError(Problem(f"{meta_info} names no images", argument="meta_info"))
    return names


def listed_in(meta_info: str, files: Sequence[ImageFile], set_name: str) -> list[ImageFile]:
    """Return the files that a list names by their paths below their roots, in the order of ``files``.

    Raises:
        InputError: the list cannot be read, or names files that no root has.
    """
    wanted = dict.fromkeys(names_in(meta_info))
    there = {_as_compared(file.path_below_root) for file in files}
    if missing := [name for name in wanted if name not in there]:
        message = f"dataset '{set_name}': {meta_info} names {len(missing)} of {len(wanted)} images that are not there: "
        message += ", ".join(missing[:SHOWN_NAMES]) + (", ..." if len(missing) > SHOWN_NAMES else "")
        advice = nearest(missing[0], there)
        if ", " in missing[0]:
            advice = "Name one file on each line: the high-quality image."
        raise InputError(Problem(message, advice=advice, argument="meta_info"))
    return [file for file in files if _as_compared(file.path_below_root) in wanted]


def _as_compared(name: str) -> str:
    """Return a name as Linux writes it: Windows has other slashes, and macOS other accents."""
    return unicodedata.normalize("NFC", name.replace("\\", "/"))
