"""The process that traces: requests come as JSON lines on stdin, answers go as JSON lines to stdout.

    python -m trainauto.assembly.trace_server [--like-cuda]

    {"id": 1, "options": "x4.yml", "overrides": ["use_amp=true"], "plan": {"batch_size": 8, "lq_size": 64}}
    {"id": 1, "peak_bytes": 10737418240, "persistent_bytes": ..., "phase_peaks_bytes": {...}, "reserved_bytes": {...}}
    {"id": 2, "cannot": "aten.nonzero.default gives ..."}

The first line it writes says that it is ready. It ends with its stdin. ``TraceProcess`` of
:mod:`trainauto.assembly.trace_process` is the other side.
"""

import argparse
import gc
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

GRACE_S = 2.0
"""How long a trace that is under way may go on after the parent is gone."""

# Nothing here may import torch at the top: the memory limit that a child inherits must be off by then.


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like-cuda", action="store_true", help="without a GPU, let the CPU do as CUDA does")
    parsed = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    # What plugins and libraries print must not come between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()

    from trainauto.core.process import limit_private_memory

    limit_private_memory(None)
    answer = _tracer(like_cuda=parsed.like_cuda)
    _say(answers, {"ready": True})
    while (line := requests.get()) is not None:
        _say(answers, answer(json.loads(line)))
    return 0


def _listen(requests: "queue.SimpleQueue[str | None]") -> None:
    for line in sys.stdin:
        requests.put(line)
    requests.put(None)
    time.sleep(GRACE_S)
    os._exit(1)


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _tracer(*, like_cuda: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what answers a request; the run it built last is kept for the next plan.

    What is loaded and built lives as long as the process: it is kept from the garbage collector, which would look at
    all of it in every other trace, and take a third of the time of one.
    """
    gc.disable()
    import torch

    from trainauto.assembly.plugins import load_plugins
    from trainauto.assembly.tracing import FakeRun
    from trainauto.core.errors import TrainautoError
    from trainauto.core.plan import Plan
    from trainauto.memory.cuda_autocast import cast_as_cuda
    from trainauto.memory.fake import group_as_cuda, warm_up
    from trainauto.options.load import load_options

    torch.set_num_threads(1)
    if like_cuda and not torch.cuda.is_available():
        cast_as_cuda()
        group_as_cuda()
    warm_up()
    gc.freeze()
    gc.enable()
    runs: dict[str, FakeRun] = {}

    def run_of(path: str, overrides: Sequence[str]) -> FakeRun:
        key = json.dumps([path, *overrides])
        if key not in runs:
            gc.unfreeze()
            runs.clear()
            loaded = load_options(Path(path), overrides)
            load_plugins(loaded)
            runs[key] = FakeRun.of(loaded)
            gc.freeze()
        return runs[key]

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            run = run_of(request["options"], request["overrides"])
            found = run.trace(Plan.from_dict(request["plan"]))
        except TrainautoError as error:
            return {"id": request["id"], "cannot": str(error)}
        return {
            "id": request["id"],
            "persistent_bytes": found.persistent_bytes,
            "peak_bytes": found.peak_bytes,
            "phase_peaks_bytes": dict(found.phase_peaks_bytes),
            "reserved_bytes": {
                mode: found.reserved_bytes(expandable=mode == "expandable") for mode in ("native", "expandable")
            },
            "seconds": time.perf_counter() - start,
        }

    return answer


if __name__ == "__main__":
    sys.exit(main())
