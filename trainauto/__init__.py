"""trainauto: training that fills the GPU by itself and survives running out of memory.

What people script with lies here; it is loaded when it is first used, so that importing the package takes no torch.
docs/python.md shows it at work.
"""

from trainauto.core.lazy_names import lazy_names

__version__ = "0.1.0"

_WHERE = {
    "load_options": "trainauto.scripting",
    "build_run": "trainauto.scripting",
    "train": "trainauto.engine.loop",
    "plan": "trainauto.scripting",
    "PlanRequest": "trainauto.forecast.plan_request",
    "read_records": "trainauto.storage.run_tables",
    "set_environment": "trainauto.core.process",
    "is_out_of_memory": "trainauto.memory.monitor.oom",
    "DynamicBatchSizeOptimizer": "trainauto.automations",
    "TrainingAutomations": "trainauto.automations",
    "DynamicDataLoader": "trainauto.data.dynamic_loader",
    "build_dynamic_batch_dataloader": "trainauto.tasks.text.dynamic_dataloader",
    "AdaptiveLoop": "trainauto.integrations.adaptive_loop",
    "LoopStep": "trainauto.integrations.loop_step",
    "ModelObjective": "trainauto.integrations.loop_model",
    "Range": "trainauto.integrations.loop_axes",
    "TrainautoError": "trainauto.core.errors",
    "InputError": "trainauto.core.errors",
}
"""The module of each public name; ``__init__.pyi`` tells type checkers the same."""

__all__ = ["__version__", *_WHERE]

__getattr__ = lazy_names(globals(), _WHERE)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
