"""Sets of samples, costs and bounds that packing is tested with."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from trainauto.data.packing import IntArray, PaddedCost, SampleSizes, TokenCost


@dataclass(frozen=True)
class PricedImages:
    """Tokens, quadratic attention, and a price for each image."""

    per_image: int = 7
    unit: str = "bytes"

    def cost(self, samples: IntArray, longest: IntArray, images: IntArray) -> IntArray:
        return samples * (longest + longest * longest // 8) + images * self.per_image


COSTS = (TokenCost(), PaddedCost(TokenCost(), 8), PricedImages())


@st.composite
def sample_sizes(draw: st.DrawFn, least: int = 0, most: int = 60, longest: int = 40) -> SampleSizes:
    tokens = draw(st.lists(st.integers(0, longest), min_size=least, max_size=most))
    images = st.lists(st.integers(0, 3), min_size=len(tokens), max_size=len(tokens))
    return SampleSizes(np.array(tokens, np.int64), np.array(draw(images), np.int64) if draw(st.booleans()) else None)


@st.composite
def packing_inputs(
    draw: st.DrawFn, least: int = 0, most: int = 60
) -> tuple[SampleSizes, TokenCost | PricedImages, int]:
    """Return sizes, a cost, and a bound that the largest sample keeps to."""
    sizes, cost = draw(sample_sizes(least, most)), draw(st.sampled_from(COSTS))
    images = np.zeros_like(sizes.tokens) if sizes.images is None else sizes.images
    alone = cost.cost(np.ones_like(images), sizes.tokens, images)
    return sizes, cost, max(alone.tolist(), default=0) + draw(st.integers(0, 500))


def lognormal(samples: int, seed: int = 0) -> SampleSizes:
    """Lengths as texts have them, of 1 to 512 tokens."""
    values = np.random.default_rng(seed).lognormal(3.5, 0.8, samples)
    return SampleSizes(values.astype(np.int64).clip(1, 512))
