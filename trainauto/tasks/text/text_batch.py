"""A batch of texts: the tensors a model is called with, and beside them the texts and their places."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import BatchEncoding

_BESIDE = ("texts", "indices")


class TextBatch(BatchEncoding):  # type: ignore[misc]  # mypy does not follow transformers
    """What ``model(**batch)`` and ``model.generate(**batch)`` take, with ``texts`` and ``indices`` beside it.

    Both are read as attributes or as items (``batch["texts"]``), and are no keys: the mapping holds what models know.
    They stay when the batch is pickled, pinned, copied or moved to a device.

    Args:
        data: tensors by name, each of shape (texts, width).
        texts: the texts, in the order of the rows.
        indices: place of each text among all texts.
    """

    texts: list[str]
    indices: list[int]

    def __init__(
        self, data: Mapping[str, Tensor] | None = None, texts: Sequence[str] = (), indices: Sequence[int] = ()
    ) -> None:
        super().__init__(dict(data or {}))
        self.texts = list(texts)
        self.indices = list(indices)

    def __getitem__(self, item: Any) -> Any:
        return getattr(self, item) if item in _BESIDE else super().__getitem__(item)

    # BatchEncoding's own pair carries its data alone.
    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "texts": self.texts,
            "indices": self.indices,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__["data"] = {}  # without it, BatchEncoding looks for `data` in `data`, and for ever
        super().__setstate__(state)
        self._n_sequences = None
        self.texts, self.indices = state["texts"], state["indices"]
