"""The process that traces: requests come as JSON lines on stdin, answers go as JSON lines to stdout.

    python -m trainauto.forecast.trace_worker [--like-cuda]

    {"id": 1, "options": "x4.yml", "overrides": [], "ranks": 1, "segments": "native", "cudnn_benchmark": false,
     "plan": {"batch_size": 8, "lq_size": 64}, "known": {}, "card": [9, 0, 132]}
    {"id": 1, "peak_bytes": 10737418240, "persistent_bytes": ..., "phase_peaks_bytes": {...}, "reserved_bytes": ...}
    {"id": 2, ..., "what": "trace"}
    {"id": 2, "events": [[8, 4096], ...], ...}
    {"id": 3, "cannot": "aten.nonzero.default gives ..."}

The first line it writes says that it is ready. It ends with its stdin. ``TraceProcess`` of
:mod:`trainauto.forecast.trace_process` is the other side.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainauto.core.worker_process import Handler, Request, serve

if TYPE_CHECKING:
    from trainauto.engine.traced_training import FakeTraining

# Nothing here may import torch at the top: the memory limit that a child inherits must be off by then.


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like-cuda", action="store_true", help="without a GPU, let the CPU do as CUDA does")
    parsed = parser.parse_args(arguments)
    return serve(lambda: _trace_handler(like_cuda=parsed.like_cuda))


def _trace_handler(*, like_cuda: bool) -> Handler:
    """Return the handler of requests.

    What is loaded and built lives as long as the process: it is kept from the garbage collector, which would look at
    all of it in every other trace, and take a third of the time of one.
    """
    gc.disable()
    runs = _Runs(like_cuda=like_cuda)
    gc.freeze()
    gc.enable()
    from trainauto.core.plan import Plan
    from trainauto.forecast.trace_process import KEPT, PARTS, WHOLE
    from trainauto.forecast.traced_run import FakeRun
    from trainauto.memory.cost.memory_forecast import PlanBytes
    from trainauto.memory.tracing.libraries import hardware_from, planned_for

    def handle(request: Request) -> dict[str, Any]:
        start, segments = time.perf_counter(), request["segments"]
        given = {"known": {}, "card": None, "what": "", **request}
        with planned_for(hardware_from(given["card"])):
            names = ("options", "overrides", "ranks", "cudnn_benchmark", "known")
            run = runs.run_of(*(given[name] for name in names))
            plan = Plan.from_dict(request["plan"])
            if given["what"] == PARTS:
                parts, multiplications = run.work_of_parts(plan)
                return {"parts": parts, "multiplications": multiplications}
            if given["what"] == KEPT and isinstance(run, FakeRun):
                return asdict(run.kept(plan))
            trace = run.trace(plan, by_module=given["what"] == WHOLE)
        if given["what"] == WHOLE:
            return trace.to_dict()
        return asdict(PlanBytes.of(trace, time.perf_counter() - start, run.kernels(trace), segments=segments))

    return handle


class _Runs:
    """Builds runs on fake tensors; the last one is kept for the next plan.

    Args:
        like_cuda: without a GPU, let the CPU do as CUDA does.
    """

    def __init__(self, *, like_cuda: bool) -> None:
        import torch

        from trainauto.forecast import traced_run  # noqa: F401 - loaded here, beside the caller
        from trainauto.memory.tracing.cuda_autocast import cast_as_cuda
        from trainauto.memory.tracing.cuda_operators import compute_as_cuda
        from trainauto.memory.tracing.fake_tensors import group_as_cuda, warm_up

        torch.set_num_threads(1)
        if like_cuda and not torch.cuda.is_available():
            cast_as_cuda()
            compute_as_cuda()
            group_as_cuda()
        warm_up()
        self._like_cuda = like_cuda
        self._runs: dict[str, FakeTraining] = {}

    def run_of(
        self, path: str, overrides: Sequence[str], world_size: int, benchmark: bool, known: Mapping[str, Any]
    ) -> "FakeTraining":
        """Return the run of an option file, built where it is not the last one."""
        import torch

        from trainauto.builders.load_plugins import load_plugins
        from trainauto.forecast.trace_process import ONE_BY_ONE
        from trainauto.forecast.traced_run import fake_run
        from trainauto.memory.tracing.libraries import card_hardware
        from trainauto.options.load import load_options

        key = json.dumps([path, *overrides, world_size, benchmark, known, card_hardware().as_words()])
        if key not in self._runs:
            gc.unfreeze()
            self._runs.clear()
            torch.backends.cudnn.benchmark = benchmark
            loaded = load_options(Path(path), overrides)
            load_plugins(loaded)
            run = fake_run(loaded, like_cuda=self._like_cuda, world_size=world_size, known=known)
            if known.get(ONE_BY_ONE):
                run.take_loop_form()
            self._runs[key] = run
            gc.freeze()
        return self._runs[key]


if __name__ == "__main__":
    # Whoever asked waits for the end; Python would spend a quarter of a second on taking torch down.
    os._exit(main())
