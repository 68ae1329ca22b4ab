"""Images of samples, padded to the most of their batch."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from trainauto.core.errors import InputError
from trainauto.tasks.multitask.batches.samples import images_in

Shape = tuple[int, ...]


def padded_images(
    samples: Sequence[Mapping[str, Any]], dtype: torch.dtype | None = None, shape: Shape | None = None
) -> dict[str, Tensor]:
    """Return ``pixel_values`` (N, most images, C, H, W) and ``image_mask`` (N, most images), True where an image is.

    A batch without any image has one place of zeros, as far as the shape of images is known; else no ``pixel_values``.

    Args:
        samples: ``images`` of each are a list of tensors (C, H, W), one tensor (n, C, H, W), or missing.
        dtype: of the values; ``None`` for that of the images, the wider one where they differ.
        shape: of an image, for batches without any.

    Raises:
        InputError: something else than tensors or arrays, or images of different shapes.
    """
    images = [_images(sample, number) for number, sample in enumerate(samples)]
    some = [stacked for stacked in images if stacked is not None]
    shape = _common_shape(images, shape)
    if shape is None:
        return {"image_mask": torch.zeros(len(samples), 0, dtype=torch.bool)}
    most = max([1, *(len(stacked) for stacked in some)])
    kinds = [stacked.dtype for stacked in some] or [torch.float32]
    values = torch.zeros(len(samples), most, *shape, dtype=dtype or reduce(torch.promote_types, kinds))
    mask = torch.zeros(len(samples), most, dtype=torch.bool)
    for number, stacked in enumerate(images):
        if stacked is not None:
            values[number, : len(stacked)] = stacked.to(values.dtype)
            mask[number, : len(stacked)] = True
    return {"pixel_values": values, "image_mask": mask}


def first_image_shape(sample: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a sample's images, (C, H, W); ``None`` where it has none."""
    stacked = _images(sample, 0)
    return None if stacked is None else tuple(stacked.shape[1:])


def _images(sample: Mapping[str, Any], number: int) -> Tensor | None:
    """Return the images of a sample, (n, C, H, W); ``None`` where it has none."""
    images = sample.get("images")
    try:
        if not images_in(sample):
            return None
        if hasattr(images, "ndim"):
            stacked = _tensor(images)
            return stacked if stacked.ndim > 3 else stacked[None]
        tensors = [_tensor(image) for image in images or ()]
    except (TypeError, ValueError) as error:
        raise InputError(f"sample {number} of a batch: images must be tensors or arrays ({error})") from None
    if len({tensor.shape for tensor in tensors}) > 1:
        shapes = " and ".join(sorted({str(tuple(tensor.shape)) for tensor in tensors}))
        raise InputError(f"sample {number} of a batch has images of the shapes {shapes}: resize them to one")
    return torch.stack(tensors)


def _tensor(image: Any) -> Tensor:
    return image if isinstance(image, Tensor) else torch.tensor(image)


def _common_shape(images: Sequence[Tensor | None], shape: Shape | None) -> Shape | None:
    """Return the shape of all images.

    Raises:
        InputError: there are several; two samples are named.
    """
    first = -1
    for number, stacked in enumerate(images):
        if stacked is None:
            continue
        own = tuple(stacked.shape[1:])
        if shape is not None and own != shape:
            other = f"sample {first} has" if first >= 0 else "image_shape is"
            raise InputError(f"sample {number} of a batch has images of the shape {own}, {other} {shape}: resize them")
        shape, first = own, number
    return shape
