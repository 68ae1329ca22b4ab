"""What makes conversations inputs of a model: its own processor, for pictures and words."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainauto.core.errors import InputError, Problem
from trainauto.core.files import read_text
from trainauto.core.json_text import from_json
from trainauto.tasks.text.training.hub import as_written_for_hub, hub_errors, is_local, require_transformers

WITHOUT_VIDEOS = {
    "qwen2_vl": "Qwen2VLProcessor",
    "qwen2_5_vl": "Qwen2_5_VLProcessor",
    "qwen3_vl": "Qwen3VLProcessor",
}
"""Families whose processors also take videos, which need torchvision: they are put together without that part."""

MOST_TRIED = 1_500_000
"""Pixels up to which it is tried whether ``max_pixels`` is heeded: larger pictures take long."""

ANY_PIXELS = 2**62
"""Most pixels of a picture where nothing bounds them."""

PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
"""Where a saved processor says what it does to pictures."""

OTHER_PARTS = ("video_preprocessor_config.json",)
"""Files of the parts that are left out."""

PARTS = ["image_processor", "tokenizer"]


def load_processor(
    source: str | Path,
    *,
    max_pixels: int | None = None,
    chat_template: Path | None = None,
    argument: str = "name",
) -> Any:
    """Return the processor of a model.

    ``AutoProcessor`` returns a tokenizer where it cannot build a processor, and says nothing: what comes is looked at.

    Args:
        source: folder, or name on the hub.
        max_pixels: most pixels that a picture is reduced to, of families whose pictures keep their shape.
        chat_template: file of a template in place of the processor's own.
        argument: what errors blame.

    Raises:
        InputError: there is none for pictures, it takes no ``max_pixels``, or the template cannot be read.
    """
    require_transformers()
    processor = _loaded(source, argument)
    if max_pixels is not None:
        limit_pixels(processor, max_pixels)
    if chat_template is not None:
        processor.chat_template = read_template(chat_template)
    return processor


def picture_processor(family: str, pictures: Any, tokenizer: Any, chat_template: str | None = None) -> Any:
    """Return a processor of a family that also takes videos, without that part.

    Args:
        family: in :data:`WITHOUT_VIDEOS`.
        pictures: processor of images.
        tokenizer: of words.
        chat_template: of conversations.
    """
    import transformers

    whole = getattr(transformers, WITHOUT_VIDEOS[family])
    # Under its own name, so that what is saved names the class that others load it by.
    kind = type(whole.__name__, (whole,), {"get_attributes": classmethod(lambda _cls: list(PARTS))})
    return kind(pictures, tokenizer, chat_template=chat_template)


def _loaded(source: str | Path, argument: str) -> Any:
    from transformers import AutoConfig, AutoImageProcessor, AutoProcessor, AutoTokenizer

    name, only_here = as_written_for_hub(source), is_local(source)
    with hub_errors(source, "processor", argument):
        family = AutoConfig.from_pretrained(name, local_files_only=only_here).model_type
        if family in WITHOUT_VIDEOS:
            pictures = AutoImageProcessor.from_pretrained(name, local_files_only=only_here, backend="pil")
            tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=only_here)
            return picture_processor(family, pictures, tokenizer, tokenizer.chat_template)
        processor = AutoProcessor.from_pretrained(name, local_files_only=only_here)
    if getattr(processor, "image_processor", None) is None:
        advice = "Name a vision-language model, whose folder has a processor for images (processor_config.json)."
        message = f"{source} ({family}) has no processor for pictures, only a {type(processor).__name__}"
        raise InputError(Problem(message, advice=advice, argument=argument))
    return processor


def keep_other_parts(source: str | Path, folder: Path) -> None:
    """Put beside a processor that was saved what its model's folder has for videos: others load it whole.

    Args:
        source: folder, or name on the hub, of the model.
        folder: of the processor.
    """
    from transformers.utils import cached_file

    for name in OTHER_PARTS:
        found = cached_file(
            as_written_for_hub(source),
            name,
            local_files_only=is_local(source),
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
        if found is not None and not (folder / name).exists():
            shutil.copyfile(found, folder / name)


def pixel_bounds(processor: Any) -> tuple[int, int]:
    """Return least and most pixels of a picture as models get it; 0 and as many as one may have where neither is."""
    return _bounds_in(getattr(getattr(processor, "image_processor", None), "size", None))


def saved_pixels(folder: Path) -> int:
    """Return most pixels of a picture of a processor that was saved, beside adapters as well: they have no model."""
    for name in PROCESSOR_FILES:
        with suppress(OSError, ValueError):
            saved = from_json(read_text(folder / name))
            return _bounds_in(saved.get("image_processor", saved).get("size"))[1]
    return ANY_PIXELS


def _bounds_in(size: Any) -> tuple[int, int]:
    """Return the bounds of pixels that a processor's ``size`` holds; one edge alone is no number of pixels."""
    least, most = (size.get("shortest_edge"), size.get("longest_edge")) if size else (None, None)
    return (0, ANY_PIXELS) if least is None or most is None else (int(least), int(most))


def limit_pixels(processor: Any, max_pixels: int, *, argument: str = "max_pixels") -> None:
    """Set what a picture is reduced to; ``size`` says it in pixels, whatever its keys are called.

    Args:
        processor: of the model.
        max_pixels: most pixels that a picture keeps.
        argument: what errors blame.

    Raises:
        InputError: pictures of this processor are not bounded by pixels, or none is so small.
    """
    size = getattr(processor.image_processor, "size", None)
    if size is None or size.get("longest_edge") is None or size.get("shortest_edge") is None:
        advice = f"Its pictures have the size {dict(size or {})}: leave {argument} out."
        message = f"{argument} is nothing to a {type(processor.image_processor).__name__}"
        raise InputError(Problem(message, advice=advice, argument=argument))
    least = min(int(size["shortest_edge"]), max_pixels)
    processor.image_processor.size = type(size)(shortest_edge=least, longest_edge=max_pixels)
    if max_pixels <= MOST_TRIED and pixels_after(processor.image_processor, 4 * max_pixels) > 3 * max_pixels:
        least_pixels = pixels_after(processor.image_processor, 1)
        processor.image_processor.size = size
        if least_pixels > 3 * max_pixels:
            message = f"{argument} is {max_pixels}, less than the smallest picture that the processor makes"
            advice = "Write 65536 (256x256) or more."
            raise InputError(Problem(message, advice=advice, argument=argument))
        advice = f"Its size counts something else, {dict(size)}: leave {argument} out."
        message = f"{argument} does not bound pictures of a {type(processor.image_processor).__name__}"
        raise InputError(Problem(message, advice=advice, argument=argument))


def pixels_after(image_processor: Any, pixels: int) -> int:
    """Return how many pixels a processor leaves of a square picture of so many."""
    import numpy as np
    from PIL import Image

    side = max(1, int(pixels**0.5))
    made = image_processor(images=[Image.new("RGB", (side, side))], return_tensors="np")["pixel_values"]
    return int(np.asarray(made).size // 3)


def read_template(file: Path) -> str:
    """Return a chat template.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return file.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the chat template {file} cannot be read: {error}"
        raise InputError(Problem(message, argument="chat_template")) from error
