"""The process that traces code named on a command line: it is imported here, so that nothing has to be sent.

    python -m trainauto.forecast.code_worker

    {"python": "my_training:plan_request", "folder": "..."}
    {"network": "Transformer", "axes": [{"name": "tokens", ...}, ...], "target_vram_usage": null}
    {"plan": {"batch_size": 8, "tokens": 512}, "card": [9, 0, 132]}
    {"peak_bytes": 10737418240, "persistent_bytes": ..., "phase_peaks_bytes": {...}, ...}
    {"plan": {"batch_size": 8, "tokens": 512}, "card": [9, 0, 132], "whole": true}
    {"events": [[8, 4096], ...], ...}

Every further plan is of the same code. ``CodeProcess`` of :mod:`trainauto.forecast.code_process` is the other side.
"""

import gc
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainauto.core.worker_process import Handler, Request, serve

# Nothing here may import torch at the top: the memory limit that a child inherits must be off by then.


def main() -> int:
    """Answer until stdin ends."""
    return serve(_code_handler)


def _code_handler() -> Handler:
    import torch

    from trainauto.core.plan import Plan
    from trainauto.forecast.request_by_name import load_request
    from trainauto.forecast.traced_code import CodeTracer
    from trainauto.memory.tracing.cuda_devices import cpu_for_cuda
    from trainauto.memory.tracing.fake_tensors import warm_up
    from trainauto.memory.tracing.libraries import hardware_from

    torch.set_num_threads(1)
    warm_up()
    tracers: list[CodeTracer] = []

    def handle(message: Request) -> dict[str, Any]:
        if (hardware := hardware_from(message.get("card"))) is not None:
            tracers[-1].aim(hardware)
        if message.get("whole"):
            return tracers[-1].step_trace(Plan.from_dict(message["plan"])).to_dict()
        if "plan" in message:
            return asdict(tracers[-1].trace(Plan.from_dict(message["plan"])))
        with cpu_for_cuda():  # written for a card, it may decorate functions with autocast or move what it makes
            request = load_request(message["python"], Path(message["folder"]))
        tracer = CodeTracer(request)
        tracers.append(tracer)
        gc.freeze()  # it lives as long as the process: looking at it would take a third of the time of a trace
        return {
            "network": tracer.network,
            "axes": [asdict(axis) for axis in request.axes()],
            "target_vram_usage": request.target_vram_usage,
        }

    return handle


if __name__ == "__main__":
    # Whoever asked waits for the end; Python would spend a quarter of a second on taking torch down.
    os._exit(main())
