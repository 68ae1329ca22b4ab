"""What option files of `task: multitask` name: sets of samples, and models."""

from collections.abc import Callable
from typing import Any

from torch import nn

from trainauto.core.registry import Registry

SAMPLE_SETS: Registry[Callable[..., Any]] = Registry("sample-set")
"""Datasets of samples of several tasks, with ``get_sample_metadata``."""

MULTITASK_MODELS: Registry[Callable[..., nn.Module]] = Registry("multitask-model")
"""Models that learn them: constructors that take ``vocabulary_size`` and ``tasks``, where they want them."""
