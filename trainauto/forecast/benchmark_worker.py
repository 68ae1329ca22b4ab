"""The process that benchmarks plans: real steps on the device at hand.

    python -m trainauto.forecast.benchmark_worker

    {"options": "x4.yml", "overrides": [], "smallest": {"batch_size": 1, "lq_size": 32}}
    {"device": "CPU (2 cores, 2 threads)", "kind": "cpu", "limit_bytes": 8589934592}
    {"plan": {"batch_size": 4, "lq_size": 64}}
    {"measured_bytes": 734003200, "seconds": 1.92}
    {"plan": {"batch_size": 64, "lq_size": 256}}
    {"failed": "out of memory: ..."}

It is a process of its own because a plan that does not fit may end it;
:mod:`trainauto.forecast.benchmark_plans` asks it.
"""

import sys
from pathlib import Path
from typing import Any

from trainauto.core.worker_process import Handler, Request, serve

# Nothing here may import torch at the top: the memory limit that a child inherits must be off by then.


def _benchmark_handler() -> Handler:
    """Return the handler: the first request builds the run, the others are plans."""
    from trainauto.core.plan import Plan
    from trainauto.forecast.benchmark_steps import BenchmarkSteps

    built: list[BenchmarkSteps] = []

    def handle(request: Request) -> dict[str, Any]:
        if "plan" in request:
            return dict(built[0].measure(Plan.from_dict(request["plan"])))
        smallest = Plan.from_dict(request["smallest"])
        built[:] = [BenchmarkSteps(Path(request["options"]), request["overrides"], smallest)]
        return {"device": built[0].device_name, "kind": built[0].device.type, "limit_bytes": built[0].limit_bytes}

    return handle


if __name__ == "__main__":
    sys.exit(serve(_benchmark_handler))
