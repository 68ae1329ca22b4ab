"""What is tried for real, in a process of its own: each may end or hang it. Facts go back as plain values."""

import socket
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from trainauto.core.units import MIB

TRIED_BUDGET_BYTES = 64 * MIB


def import_package(module: str) -> dict[str, Any]:
    """Import a module; return the ``error`` where there was one."""
    try:
        import_module(module)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def option_problems(path: str, *overrides: str) -> dict[str, Any]:
    """Return all ``problems`` of an option file that is refused, as text."""
    from trainauto.commands.whole_options import load_whole
    from trainauto.core.errors import InputError

    try:
        load_whole(Path(path), overrides, data=True, weights=True)
    except InputError as error:
        return {"problems": str(error)}
    return {}


def torch_facts() -> dict[str, Any]:
    """Return how torch was built, and how many devices it finds."""
    import torch

    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "threads": torch.get_num_threads(),
        "devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
    }


def nvml_facts() -> dict[str, Any]:
    """Return what NVML knows of driver and cards."""
    from trainauto.memory.monitor.driver_facts import nvml_facts

    return nvml_facts()


def card_facts() -> dict[str, Any]:
    """Return facts of the cards that torch finds, and whether the allocator's segments grow."""
    import os

    import torch

    from trainauto.memory.cuda_allocator.segments import uses_expandable_segments
    from trainauto.memory.monitor.card_facts import cards

    expandable = None
    if torch.cuda.is_available():  # pragma: no cuda
        expandable = uses_expandable_segments(torch.device("cuda", torch.cuda.current_device()))
    return {"cards": cards(), "expandable": expandable, "pid": os.getpid()}


def budget_on_cpu() -> dict[str, Any]:
    """Set a small budget and ask for four times as much; return whether torch's allocator refused."""
    import torch

    from trainauto.core.process import limit_private_memory
    from trainauto.memory.monitor import budget
    from trainauto.memory.monitor.oom import is_out_of_memory

    is_set = budget.enforce(TRIED_BUDGET_BYTES, torch.device("cpu"))
    try:
        torch.empty(4 * TRIED_BUDGET_BYTES, dtype=torch.uint8).fill_(1)
    except RuntimeError as error:
        return {"is_set": is_set, "refused": is_out_of_memory(error), "error": str(error)}
    finally:
        limit_private_memory(None)
    return {"is_set": is_set, "refused": False, "error": ""}


def traced_steps() -> dict[str, Any]:
    """Trace a few small steps and run them; return which of them ``differ``, of how many, under which torch."""
    import torch

    from trainauto.memory.tracing.trace_check import STEPS, differing_steps

    return {"differ": differing_steps(), "steps": len(STEPS), "version": torch.__version__}


def host_name() -> dict[str, Any]:
    """Look up this machine's own name, as processes that meet for a run do."""
    host, start = socket.gethostname(), time.perf_counter()
    try:
        answers = socket.getaddrinfo(host, None)
    except OSError as error:
        return {"host": host, "error": str(error), "seconds": time.perf_counter() - start}
    addresses = sorted({str(answer[4][0]) for answer in answers})
    return {"host": host, "addresses": addresses, "seconds": time.perf_counter() - start}


def process_groups() -> dict[str, Any]:
    """Return which backends of ``torch.distributed`` there are, and what a gloo group of one process says."""
    import torch
    from torch import distributed

    if not distributed.is_available():
        return {"available": False}
    facts = {"available": True, "gloo": distributed.is_gloo_available(), "nccl": distributed.is_nccl_available()}
    if facts["gloo"]:
        with tempfile.TemporaryDirectory() as folder:
            meeting = (Path(folder) / "meeting").as_uri()
            try:
                distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
                distributed.all_reduce(torch.ones(1))
                distributed.destroy_process_group()
            except RuntimeError as error:
                return {**facts, "error": str(error).splitlines()[0]}
    return facts


PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    probe.__name__: probe
    for probe in (
        import_package,
        option_problems,
        torch_facts,
        nvml_facts,
        card_facts,
        budget_on_cpu,
        traced_steps,
        host_name,
        process_groups,
    )
}
