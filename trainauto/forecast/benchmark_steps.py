"""Real steps of an option file's run under any plan, on the device at hand, with noise for images."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainauto.builders.data import crops_of
from trainauto.builders.image_model import build_model, build_network, channels_of
from trainauto.builders.load_plugins import load_plugins
from trainauto.builders.precision import choose_precision
from trainauto.core.batch import Batch
from trainauto.core.errors import TrainautoError
from trainauto.core.free_memory import free_memory_bytes
from trainauto.core.plan import Plan
from trainauto.core.words import counted
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.engine.run_errors import OptimizerOutOfMemoryError
from trainauto.engine.snapshot import StepSnapshot
from trainauto.engine.step import StepSettings, optimize_parameters
from trainauto.engine.step_outcome import DoesNotFit
from trainauto.engine.traced_training import empty_batch
from trainauto.memory.monitor.budget import calm_allocator
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import allocator_message, is_out_of_memory
from trainauto.memory.monitor.release import release_memory
from trainauto.options.load import load_options, super_resolution_only

PLAN_ALONE = "Leave --measure out; validate trains a real step."
MEASURED_STEPS = 3
"""After one that chooses kernels; one where a step takes long."""
LONG_STEP_S = 5.0
SHARE_OF_FREE = 0.8
"""Of the memory that is free now: the rest is for other processes."""


class BenchmarkSteps:
    """The run of an option file, ready to step under any plan.

    Args:
        options: the option file.
        overrides: items of ``--force_yml``.
        smallest: stepped under once, so that kernels, threads and scratch space are there before anything is counted.

    Attributes:
        device: where it steps.
        limit_bytes: what it may use there; ``None`` if unknown.

    Raises:
        InputError: options, or what they name, cannot be used.
        TrainautoError: not even the smallest plan fits.
    """

    def __init__(self, options: Path, overrides: Sequence[str], smallest: Plan) -> None:
        loaded = super_resolution_only(load_options(options, overrides), "plan --measure", PLAN_ALONE)
        load_plugins(loaded)
        precision = choose_precision(loaded)
        self.device = precision.device
        if self.device.type == "cpu":
            calm_allocator()
        torch.manual_seed(loaded.options.manual_seed)
        network = build_network(loaded, pretrained=False)
        self._workload = crops_of(loaded.options, channels_of(network))
        self._model = build_model(loaded, network, precision, pretrained=False)
        self._settings = StepSettings(max_norm=loaded.options.settings.max_norm)
        make_optimizer_state(self._model.optimizers.values())
        self._snapshot = StepSnapshot.of(self._model)
        if failure := self._optimize(self._batch(smallest)):
            raise TrainautoError(failure)
        self._clean_up()
        self._meter = MemoryMeter(self.device)
        self.limit_bytes = self._bound(loaded.options.memory.budget_bytes(self.device.type))

    @property
    def device_name(self) -> str:
        """What the device is called."""
        if self.device.type == "cuda":  # pragma: no cuda
            return str(torch.cuda.get_device_properties(self.device).name)
        return f"CPU ({counted(os.cpu_count() or 1, 'core')}, {counted(torch.get_num_threads(), 'thread')})"

    def measure(self, plan: Plan) -> Mapping[str, Any]:
        """Step a few times under a plan.

        Returns:
            ``measured_bytes``, the largest peak as runs count it, and ``seconds``, the median of a step; or ``failed``.
        """
        self._clean_up()
        try:
            failure, peaks, seconds = self._steps(plan)
        except OptimizerOutOfMemoryError as error:
            failure = allocator_message(error)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failure = allocator_message(error)
        if failure:
            return {"failed": f"out of memory: {failure}"}
        return {"measured_bytes": max(peaks), "seconds": sorted(seconds)[len(seconds) // 2]}

    def _steps(self, plan: Plan) -> tuple[str, list[int], list[float]]:
        """Return what the allocator said if the plan did not fit as it was; peaks and seconds of its steps."""
        batch = self._batch(plan)
        peaks: list[int] = []
        seconds: list[float] = []
        start = time.perf_counter()
        failure = self._optimize(batch)
        wanted = MEASURED_STEPS if time.perf_counter() - start < LONG_STEP_S else 1
        while not failure and len(peaks) < wanted:
            with self._meter.window() as window:
                start = time.perf_counter()
                failure = self._optimize(batch)
                seconds.append(time.perf_counter() - start)
            peaks.append(window.reading.allocated if window.reading else 0)
        return failure, peaks, seconds

    def _optimize(self, batch: Batch) -> str:
        outcome = optimize_parameters(self._model, batch, self._settings, snapshot=self._snapshot)
        if self.device.type == "cuda":  # pragma: no cuda
            torch.cuda.synchronize(self.device)
        if isinstance(outcome, DoesNotFit):
            return str(outcome)
        return outcome.failures[0].message if outcome.failures else ""

    def _batch(self, plan: Plan) -> Batch:
        """Return noise, as a batch leaves the loader."""
        batch = empty_batch(plan, self._workload)
        for tensor in batch.tensors.values():
            tensor.random_(0, 256)
        return batch

    def _clean_up(self) -> None:
        """Give back what the plan before left."""
        for optimizer in self._model.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        release_memory(self.device)

    def _bound(self, budget_bytes: int | None) -> int | None:
        """Bound what it may use: by the run's budget; on a CPU without one, by most of what is free now."""
        if self.device.type == "cuda":  # pragma: no cuda
            if budget_bytes is not None:
                self._meter.set_budget(budget_bytes)
            free = torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device)
            return min(free, budget_bytes or free)
        free_bytes = free_memory_bytes()
        bound = budget_bytes or (int(SHARE_OF_FREE * free_bytes) if free_bytes is not None else None)
        if bound is None:
            self._meter.set_baseline()
        else:
            self._meter.set_budget(bound)
        return bound
