"""Which way figures of an evaluation are better: transformers leaves to each what it means."""

import logging
from typing import Any

from trainauto.core.words import visible
from trainauto.integrations.huggingface.arguments import own_argument

LOWER = frozenset(("loss", "wer", "cer", "ter", "mer", "perplexity", "ppl", "error", "mse", "rmse", "mae"))
"""Words in the names of figures of which less is better."""

HIGHER = frozenset(
    (
        *("accuracy", "acc", "f1", "precision", "recall", "auc", "auroc", "map", "iou", "miou", "dice", "psnr", "ssim"),
        *("bleu", "sacrebleu", "chrf", "meteor", "rouge1", "rouge2", "rougel", "rougelsum", "em", "exact", "reward"),
        *("matthews", "mcc", "pearson", "pearsonr", "spearman", "spearmanr", "r2"),
    )
)
"""And of which more is."""

logger = logging.getLogger(__name__)


class Directions:
    """What the arguments of a Trainer say of its best figure, and what words in names say of all others.

    Args:
        args: of the Trainer. ``greater_is_better`` counts for ``metric_for_best_model`` where somebody has given it;
            where transformers has filled it in, words that are known come first.
    """

    def __init__(self, args: Any) -> None:
        best = args.metric_for_best_model
        self._best = _bare(str(best)) if best else ""
        self._higher = args.greater_is_better
        self._is_given = bool(own_argument(args, "gives_direction"))

    def of(self, name: str) -> bool | None:
        """Return whether a higher figure of this name is better; ``None`` if unknown."""
        by_words = _by_words(name)
        if self._best and _bare(name) == self._best and self._higher is not None:
            return bool(self._higher) if self._is_given or by_words is None else by_words
        return by_words

    def say_where_they_differ(self) -> None:
        """Say where the arguments say another direction than the words in a name do: one of them is a mistake."""
        by_words = _by_words(self._best) if self._best else None
        if self._is_given and None not in (by_words, self._higher) and by_words != self._higher:
            words = "greater_is_better=%s is taken for %s, whose name says that %s is better"
            logger.warning(words, self._higher, visible(self._best), "higher" if by_words else "lower")


def _bare(name: str) -> str:
    """Return a name without its set: ``eval_wer`` and ``eval/wer`` are ``wer``."""
    return name.removeprefix("eval_").removeprefix("eval/")


def _by_words(name: str) -> bool | None:
    words = set(name.lower().replace("/", "_").replace("-", "_").split("_"))
    if LOWER & words:
        return False
    return True if HIGHER & words else None
