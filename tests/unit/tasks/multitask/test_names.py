"""Names of the source, where its users import from (A03 to A08)."""

import pytest

import trainauto.multitask
from trainauto.core.errors import InputError

OF_THE_SOURCE = (
    "MemoryPredictor",
    "estimate_training_memory",
    "MemoryAwareBatchSampler",
    "HeterogeneousCollator",
    "OOMGuardian",
    "GradientCheckpointManager",
    "DynamicBatchingTrainer",
    "EffectiveBatchSizeNormalizer",
    "GradNormBalancer",
    "DynamicBatchingMonitor",
    "BatchMetrics",
    "EpochMetrics",
    "HeterogeneousTrainingConfig",
    "DynamicBatchingTrainingPipeline",
)


def test_every_name_is_there() -> None:
    assert set(OF_THE_SOURCE) <= set(trainauto.multitask.__all__)
    for name in trainauto.multitask.__all__:
        assert getattr(trainauto.multitask, name).__name__ == name
        assert name in dir(trainauto.multitask)


def test_what_is_lacking_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainauto.multitask.find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"DynamicBatchingTrainingPipeline needs .*trainauto\[multitask\]"):
        trainauto.multitask.__getattr__("DynamicBatchingTrainingPipeline")
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        trainauto.multitask.__getattr__("Nothing")
