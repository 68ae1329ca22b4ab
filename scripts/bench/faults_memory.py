"""Out of memory: at every kind of operator of every kind of run, in samplers and workers, in the words of back ends."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from faults_injection import AtOperator
from faults_tasks import TASKS, trained
from faults_verdicts import BLOCK, MET, TRACEBACK, WRONG, Bench, Fault, Verdict, judged_training

TOLD = r"(?i)out of memory|memory ran out|memory was refused|MiB more were refused|does not fit|do not fit"
CENSUS = "operators.json"
SHARES = {
    "sr": 44,
    "gan": 36,
    "steered": 20,
    "text": 28,
    "multitask": 24,
    "finetune": 28,
    "AdaptiveLoop": 24,
    "MemoryAwareTrainer": 26,
}
"""Faults of each kind of run."""

WAYS = ("once", "once", "once", "twice", "for good")
"""How often memory runs out; by turns."""

MOST_APART = 12
"""Operators between two failures, at most."""


def out_of_memory() -> None:
    """Fail as torch's allocator of CUDA does."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB")


def refused_by_allocator() -> None:
    """Ask torch's allocator of the CPU for what it has not."""
    torch.empty(2**60, dtype=torch.uint8)


ERRORS: Mapping[str, Callable[[], None]] = {"CUDA": out_of_memory, "CPU": refused_by_allocator}


def noting(happens: Callable[[], object]) -> Callable[[], None]:
    """Return what leaves :data:`MET` in the folder of the run, and then happens."""
    file = Path(MET).absolute()

    def noted() -> None:
        file.touch()
        happens()

    return noted


def failing(task: str, happens: Callable[[], object], places: Sequence[int], stays: bool, *words: str) -> int:
    """Train a task, in which something happens at some operators."""
    mode = AtOperator(noting(happens), places, stays=stays)
    return trained(task, *words, injected=lambda: mode)


def chosen(phases: Sequence[str], count: int, numbers: random.Random) -> list[tuple[str, int]]:
    """Choose operators, as many of each part of a run; where it has fewer, the others get more of them."""
    places: dict[str, list[int]] = {}
    for number, phase in enumerate(phases, start=1):
        places.setdefault(phase, []).append(number)
    for of_phase in places.values():
        numbers.shuffle(of_phase)
    picked: list[tuple[str, int]] = []
    while len(picked) < count and any(places.values()):
        for phase, left in places.items():
            if left and len(picked) < count:
                picked.append((phase, left.pop()))
    return picked


def at_operators(base: Path, seed: int) -> Iterator[Fault]:
    """Yield faults at operators of all tasks."""
    for task in (task for task in TASKS if (base / f"{task}.trained").exists()):
        numbers = random.Random(f"{seed} {task}")
        phases = json.loads((base / f"{task}.trained" / CENSUS).read_text())
        for number, (phase, place) in enumerate(chosen(phases, SHARES[task], numbers)):
            way, error = WAYS[number % len(WAYS)], tuple(ERRORS)[number % 2]
            places = (place, place + numbers.randint(1, MOST_APART)) if way == "twice" else (place,)
            meet = partial(_meet, task=task, error=error, places=places, stays=way == "for good")
            yield Fault(f"out of memory: {phase}", f"{task}, operator {place} {way}, {error}", meet)


def _meet(bench: Bench, *, task: str, error: str, places: Sequence[int], stays: bool) -> Verdict:
    bench.begin(task)
    return judged_training(bench, task, partial(failing, task, ERRORS[error], places, stays), TOLD)


ALLOCATORS: Mapping[str, Callable[[], BaseException]] = {
    "CUDA, outside of torch's allocator": lambda: torch.AcceleratorError("CUDA error: out of memory\nSearch for `cuda"),
    "CUDA, older torch": lambda: RuntimeError("CUDA error: out of memory"),
    "CUDA's driver": lambda: RuntimeError("CUDA driver error: out of memory"),
    "cuBLAS": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuDNN 8": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cuDNN 9": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\nconv.cu"),
    "cuSOLVER": lambda: RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`"),
    "cuFFT": lambda: RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
    "HIP": lambda: torch.AcceleratorError("HIP error: out of memory\nHIP kernel errors might be reported later"),
    "hipBLAS": lambda: RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"),
    "MPS": lambda: RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB, max allowed: 9 GB)"),
    "XPU": lambda: RuntimeError("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    "XPU, host": lambda: RuntimeError("Native API failed. Native API returns: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)"),
    "Windows": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: not enough memory: you tried to allocate 9 B"
    ),
    "operator new": lambda: RuntimeError("std::bad_alloc"),
    "oneDNN": lambda: RuntimeError("could not create a primitive"),
    "Python": MemoryError,
}
"""What other allocators say; which check says it, trainauto/memory/monitor/oom.py tells."""

LOOK_ALIKES: Mapping[str, Callable[[], BaseException]] = {
    "illegal access": lambda: torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nSearch"),
    "illegal access, older torch": lambda: RuntimeError("CUDA error: an illegal memory access was encountered"),
    "device assert": lambda: torch.AcceleratorError("CUDA error: device-side assert triggered\nCUDA kernel errors"),
    "resources of a launch": lambda: torch.AcceleratorError("CUDA error: too many resources requested for launch"),
    "cuBLAS not initialized": lambda: RuntimeError(
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    ),
    "cuDNN, internal": lambda: RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    "cuSOLVER, internal": lambda: RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `x`"),
    "cuFFT, internal": lambda: RuntimeError("cuFFT error: CUFFT_INTERNAL_ERROR"),
    "device lost": lambda: RuntimeError("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
}
"""Errors of devices that only sound like it: nothing may be tried again, for the context is broken."""


def _raising(make: Callable[[], BaseException]) -> None:
    raise make()


def _meet_words(bench: Bench, *, words: str, place: int) -> Verdict:
    bench.begin("sr")
    happens = partial(_raising, ALLOCATORS[words])
    return judged_training(bench, "sr", partial(failing, "sr", happens, (place,), False), TOLD)


def _meet_look_alike(bench: Bench, *, words: str, place: int) -> Verdict:
    bench.begin("sr")
    happens = partial(_raising, LOOK_ALIKES[words])
    verdict = judged_training(bench, "sr", partial(failing, "sr", happens, (place,), False), "never told")
    if verdict.outcome == BLOCK or verdict.outcome == TRACEBACK:
        return verdict
    return Verdict(WRONG, verdict.message, verdict.why or "was taken for a lack of memory")


def in_words(base: Path, seed: int) -> Iterator[Fault]:
    """Yield what allocators of other back ends say, and what only sounds like it, within passes."""
    phases = json.loads((base / "sr.trained" / CENSUS).read_text())
    inside = [number for number, phase in enumerate(phases, start=1) if phase in {"forward", "backward"}]
    numbers = random.Random(f"{seed} words")
    for words in ALLOCATORS:
        meet = partial(_meet_words, words=words, place=numbers.choice(inside[20:]))
        yield Fault("words of other allocators", words, meet)
    for words in LOOK_ALIKES:
        meet = partial(_meet_look_alike, words=words, place=numbers.choice(inside[20:]))
        yield Fault("errors that sound like them", words, meet)


SAMPLE_ERRORS: Mapping[str, Callable[[], BaseException]] = {
    "MemoryError": MemoryError,
    "allocator": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory"
    ),
}
WORKERS = {
    "sr": "datasets:train:num_worker_per_gpu=1",
    "text": "datasets:train:num_worker_per_gpu=1",
    "finetune": "training:dataloader_num_workers=1",
}


def where_samples_are_made(task: str, where: str, error: str, call: int, times: int, *words: str) -> int:
    """Train a task whose sampler or dataset runs out of memory at a call."""
    from trainauto.data import dynamic_dataset, dynamic_loader

    seen = 0
    fails = noting(partial(_raising, SAMPLE_ERRORS[error]))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call_it(*given: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if call <= seen < call + times:
                fails()
            return function(*given, **named)

        return call_it

    if where == "collate":
        dynamic_loader._collate = counted(dynamic_loader._collate)
    elif where == "sampler":
        iterate = dynamic_loader.DynamicBatchSampler.__iter__
        make = counted(lambda keys: keys)
        dynamic_loader.DynamicBatchSampler.__iter__ = lambda self: map(make, iterate(self))
    else:
        for kind in kinds_below(dynamic_dataset.DynamicDataset):
            for name in ("__getitem__", "__getitems__"):
                if name in vars(kind):
                    setattr(kind, name, counted(vars(kind)[name]))
                    break
    return trained(task, *words, injected=nullcontext)


def kinds_below(kind: type) -> Iterator[type]:
    """Yield all classes that inherit from one."""
    for below in kind.__subclasses__():
        yield below
        yield from kinds_below(below)


def _meet_samples(bench: Bench, *, task: str, where: str, error: str, call: int, times: int, workers: bool) -> Verdict:
    bench.begin(task)
    words = ("--force_yml", WORKERS[task]) if workers else ()
    disturbed = partial(where_samples_are_made, task, where, error, call, times, *words)
    return judged_training(bench, task, disturbed, TOLD)


def among_samples(base: Path, seed: int) -> Iterator[Fault]:
    """Yield faults where samples are drawn, made and collated, in the process that trains and in workers."""
    del base
    numbers = random.Random(f"{seed} samples")
    for task in ("sr", "text", "multitask", "finetune"):
        for where in ("sampler", "dataset", "collate"):
            for workers in (False, True) if task in WORKERS else (False,):
                error, times = numbers.choice(tuple(SAMPLE_ERRORS)), numbers.choice((1, 1000))
                call = numbers.randint(2, 6)
                made = "in a worker" if workers else "in the process that trains"
                meet = partial(
                    _meet_samples, task=task, where=where, error=error, call=call, times=times, workers=workers
                )
                yield Fault("out of memory: samplers and workers", f"{task}, {where} {made}, call {call}", meet)


def faults(base: Path, seed: int) -> Iterator[Fault]:
    """Yield all of this subject."""
    yield from at_operators(base, seed)
    yield from in_words(base, seed)
    yield from among_samples(base, seed)
