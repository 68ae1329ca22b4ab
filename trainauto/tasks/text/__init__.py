"""Texts of any length: tokenized once, batched by what a batch costs.

Names are loaded when they are first used: some need transformers.
"""

from typing import TYPE_CHECKING

from trainauto.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from trainauto.data.packing import Bucketed, TokenCost
    from trainauto.memory.tracing.live_module import LiveModuleTracer
    from trainauto.tasks.text.costs import LawCost, RelativeCost, TransformerSizes
    from trainauto.tasks.text.dynamic_dataloader import build_dynamic_batch_dataloader
    from trainauto.tasks.text.generation_trace import Generation
    from trainauto.tasks.text.map_report import TextDoesNotFitError
    from trainauto.tasks.text.measured_cost import MeasuredCost
    from trainauto.tasks.text.spike_classifier import SpikeClassifier
    from trainauto.tasks.text.text_dataloader import TextDataLoader
    from trainauto.tasks.text.traced_cost import TracedCost

__all__ = [
    "Bucketed",
    "Generation",
    "LawCost",
    "LiveModuleTracer",
    "MeasuredCost",
    "RelativeCost",
    "SpikeClassifier",
    "TextDataLoader",
    "TextDoesNotFitError",
    "TokenCost",
    "TracedCost",
    "TransformerSizes",
    "build_dynamic_batch_dataloader",
]

_WHERE = {
    "Bucketed": "trainauto.data.packing",
    "Generation": "trainauto.tasks.text.generation_trace",
    "LawCost": "trainauto.tasks.text.costs",
    "LiveModuleTracer": "trainauto.memory.tracing.live_module",
    "MeasuredCost": "trainauto.tasks.text.measured_cost",
    "RelativeCost": "trainauto.tasks.text.costs",
    "SpikeClassifier": "trainauto.tasks.text.spike_classifier",
    "TextDataLoader": "trainauto.tasks.text.text_dataloader",
    "TextDoesNotFitError": "trainauto.tasks.text.map_report",
    "TokenCost": "trainauto.data.packing",
    "TracedCost": "trainauto.tasks.text.traced_cost",
    "TransformerSizes": "trainauto.tasks.text.costs",
    "build_dynamic_batch_dataloader": "trainauto.tasks.text.dynamic_dataloader",
}


__getattr__ = lazy_names(globals(), _WHERE)
