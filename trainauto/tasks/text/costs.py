"""What a batch of texts takes, by closed forms: in bytes where a model's sizes are known, else relative to others.

These are the costs to begin with where nothing is traced. Bytes follow the sizes of tensors that any transformer has:

- of a generation, the keys and values of all layers, what one layer works on while the prompt is run, and the scores of
  the next token (:func:`generation_law`);
- of a training step, what every layer keeps for the backward pass, the logits with their gradients, and the weights'
  gradients with what the optimizer works on (:func:`training_law`), after Korthikanti et al., "Reducing Activation
  Recomputation in Large Transformer Models" (2022), section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainauto.data.packing import IntArray
from trainauto.memory.cost.moments import Moments
from trainauto.memory.cost.ratio_prior import student4
from trainauto.tasks.text.generation_trace import Generation

GENERATION_SCALE, TRAINING_SCALE = 0.2, 0.31
"""Scales of the logarithm by which traced bytes of two batches relate otherwise than by a law.

Of four small configurations, every pair of batches of 1 to 64 texts of 8 to 512 tokens: the 90, 97.5 and 99 % quantiles
are 1.36, 1.62 and 1.73 in generation, 1.71, 2.24 and 3.29 in training.
"""


class RelativeForm(NamedTuple):
    """A text of L tokens costs (``tokens`` + L) ** ``power``, under a margin."""

    tokens: int
    power: float
    margin: float


FORMS: Mapping[float, RelativeForm] = {
    0.01: RelativeForm(256, 0.7, 1.0),
    0.025: RelativeForm(128, 0.7, 1.04),
    0.1: RelativeForm(16, 1.0, 1.149),
}
"""By probability: what ``scripts/bench/fit_text_margins.py`` finds (docs/benchmarks/text_margins.md)."""


@dataclass(frozen=True)
class TransformerSizes:
    """Sizes of a transformer that its memory follows.

    Attributes:
        hidden: width of a token between layers.
        layers: layers of the decoder, or of the only stack.
        vocabulary: scores of a token; 0 for a model without any.
        intermediate: width within the feed-forward part.
        heads: heads of attention.
        key_width: numbers of a token's keys in one layer, and of its values: heads of keys times their width.
        parameters: numbers that the model holds.
        encoder_layers: layers of a separate encoder; 0 without one.
        number_bytes: of a weight and of an activation.
        writes_attention: attention writes out its matrix: no kernel is fused, or pairs of tokens have a bias.
    """

    hidden: int
    layers: int
    vocabulary: int
    intermediate: int
    heads: int
    key_width: int
    parameters: int
    encoder_layers: int = 0
    number_bytes: int = 4
    writes_attention: bool = False

    @classmethod
    def of(cls, model: Any) -> "TransformerSizes":
        """Read the sizes out of a model of Transformers and its configuration.

        Raises:
            ValueError: the model has no configuration, or that does not say one of them; the message names it.
        """
        config = getattr(model, "config", None)
        if config is None:
            raise ValueError(f"{type(model).__name__} has no `config` that its sizes could be read from")
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        hidden, heads = _read(config, "hidden_size", "d_model"), _read(config, "num_attention_heads", "num_heads")
        width = getattr(config, "head_dim", None) or getattr(config, "d_kv", None) or hidden // heads
        has_encoder = bool(getattr(config, "is_encoder_decoder", False))
        encoder_layers = _read(config, "encoder_layers", "num_layers", "num_hidden_layers") if has_encoder else 0
        names = ("decoder_layers", "num_decoder_layers") if has_encoder else ("num_hidden_layers", "n_layer")
        wide = ("intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "ffn_dim")
        weights, attention = list(model.parameters()), getattr(config, "_attn_implementation", None)
        return cls(
            hidden=hidden,
            layers=_read(config, *names),
            vocabulary=_read(config, "vocab_size"),
            intermediate=next((getattr(config, name) for name in wide if getattr(config, name, None)), 4 * hidden),
            heads=heads,
            key_width=(getattr(config, "num_key_value_heads", None) or heads) * width,
            parameters=sum(weight.numel() for weight in weights),
            encoder_layers=encoder_layers,
            number_bytes=weights[0].element_size(),
            writes_attention=attention == "eager" or hasattr(config, "relative_attention_num_buckets"),
        )


def _read(config: Any, *names: str) -> int:
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return int(value)
    raise ValueError(f"the configuration {type(config).__name__} has none of {', '.join(names)}")


def generation_law(sizes: TransformerSizes, generation: Generation) -> Moments:
    """Return the bytes of ``generate`` beside the model's: of the prompt's step, and of the last one.

    Raises:
        ValueError: beams are to be sampled or penalised, which is not known.
    """
    generation.check()
    number, new = sizes.number_bytes, generation.max_new_tokens
    rows = generation.beams
    cached = 2 * sizes.layers * sizes.key_width * number
    # One layer's keys or values, of which there are two while a token is added; with beams, all in another order.
    joined = sizes.key_width * number
    scores = sizes.vocabulary * generation.score_bytes(number)
    matrix = 2 * sizes.heads * number if sizes.writes_attention else 1
    if sizes.encoder_layers:
        worked = (2 * sizes.hidden + 2 * sizes.intermediate) * number
        first = (0, rows * scores, 0, worked + rows * cached, 0, matrix)
        each = rows * (cached + joined) + rows * sizes.hidden * number
        last = (0, rows * (new * (cached + joined) + scores), 0, each, 0, 0)
    else:
        worked = (2 * sizes.hidden + 4 * sizes.intermediate) * number
        first = (0, rows * scores, 0, rows * (worked + cached), 0, rows * matrix)
        last = (0, rows * (new * (cached + joined) + scores), 0, rows * (cached + joined), 0, 0)
    return Moments(np.array([first, last], np.float64))


def training_law(sizes: TransformerSizes) -> Moments:
    """Return the bytes of a training step beside weights and optimizer state: of its backward pass, and of its end."""
    number, layers = sizes.number_bytes, sizes.layers + sizes.encoder_layers
    kept = layers * (8 * sizes.hidden + 3 * sizes.intermediate) * number
    logits = sizes.vocabulary * (number + 8)
    matrix = layers * 2 * sizes.heads * number if sizes.writes_attention else 1
    gradients = sizes.parameters * number
    return Moments(np.array([(0, 0, 0, kept + logits, 0, matrix), (2 * gradients, 0, 0, 0, 0, 0)], np.float64))


class LawCost:
    """Bytes of a batch by a closed form: right to a factor, and about right in how batches compare.

    Args:
        sizes: of the model.
        generation: how texts are generated; ``None``: a training step.
    """

    unit = "bytes"

    def __init__(self, sizes: TransformerSizes, generation: Generation | None) -> None:
        self._moments = training_law(sizes) if generation is None else generation_law(sizes, generation)
        self._scale = TRAINING_SCALE if generation is None else GENERATION_SCALE

    @classmethod
    def of(cls, model: Any, generation: Generation | None) -> "LawCost":
        """Return the cost of a model of Transformers; see :meth:`TransformerSizes.of`.

        Raises:
            ValueError: the model has no configuration, or that does not say a size that is needed.
        """
        return cls(TransformerSizes.of(model), generation)

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the bytes of padded batches; images are ignored."""
        del images
        whole: IntArray = np.ceil(self._moments.bytes(samples, np.asarray(longest))).astype(np.int64)
        return whole

    def margin(self, probability: float) -> float:
        """Return how far a batch's bytes, relative to another's, may lie above the relation by this law."""
        if not 0 < probability < 1:
            raise ValueError(f"a probability lies between 0 and 1, got {probability}")
        return float(max(1.0, np.exp(student4(1 - probability) * self._scale)))


class RelativeCost:
    """What a batch to generate from takes relative to another, where nothing is known of the model.

    Fitted to what others measured on GPUs: what generates writes on for a while whatever it read, so that short texts
    cost more than their tokens. Only relations mean anything: bound it by the cost of a batch that is known to fit, of
    the longest texts of all.

    Args:
        probability: with which a batch of more samples may pass the peak of the first one; the form follows it.

    Raises:
        ValueError: the probability is below what the recordings can tell.
    """

    unit = "weighted tokens"

    STEPS = 1024
    """Parts that a text's cost is counted in, which keeps costs whole."""

    def __init__(self, probability: float = 0.025) -> None:
        known = [share for share in FORMS if share <= probability]
        if not known or probability >= 1:
            raise ValueError(f"a probability of at least {min(FORMS)} and below 1, got {probability}")
        self._probability = max(known)
        self.form = FORMS[self._probability]

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        """Return the relative cost of padded batches; images are ignored."""
        del images
        each = self.STEPS * (self.form.tokens + np.asarray(longest, np.float64)) ** self.form.power
        whole: IntArray = np.asarray(samples, np.int64) * np.rint(each).astype(np.int64)
        return whole

    def margin(self, probability: float) -> float:
        """Return the factor that keeps larger batches than the first from passing its peak with this probability.

        Raises:
            ValueError: it is smaller than the probability that the form was chosen for.
        """
        if not self._probability <= probability < 1:
            raise ValueError(f"this cost is made for a probability of {self._probability}, got {probability}")
        return self.form.margin
