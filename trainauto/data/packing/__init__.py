"""Samples of any length in batches: sizes in, batches out, under a cost in whole numbers and a bound.

Pure: numpy and nothing else, no torch, no files, no clock.
"""

from trainauto.data.packing.costs import (
    BatchCost,
    PaddedCost,
    RankCost,
    TokenCost,
    UncertainCost,
    check_monotone,
    padded_width,
)
from trainauto.data.packing.orders import BatchOrder, Bucketed, LongestFirst, ShuffledBatches
from trainauto.data.packing.pack import pack, pack_by, pack_candidates
from trainauto.data.packing.packing import Packing
from trainauto.data.packing.ranks import TooFewSamplesError
from trainauto.data.packing.rules import (
    CandidateCounts,
    FewestBatches,
    PackingRule,
    SampleTooLargeError,
    candidate_counts,
)
from trainauto.data.packing.sampler import PackedBatchSampler, PackingMismatchError
from trainauto.data.packing.sizes import IntArray, SampleSizes

__all__ = [
    "BatchCost",
    "BatchOrder",
    "Bucketed",
    "CandidateCounts",
    "FewestBatches",
    "IntArray",
    "LongestFirst",
    "PackedBatchSampler",
    "Packing",
    "PackingMismatchError",
    "PackingRule",
    "PaddedCost",
    "RankCost",
    "SampleSizes",
    "SampleTooLargeError",
    "ShuffledBatches",
    "TokenCost",
    "TooFewSamplesError",
    "UncertainCost",
    "candidate_counts",
    "check_monotone",
    "pack",
    "pack_by",
    "pack_candidates",
    "padded_width",
]
