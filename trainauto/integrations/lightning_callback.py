"""Lightning: batches that grow in mid-epoch within ``Trainer.fit``, without reloading the loader."""

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Never

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import default_collate

from trainauto.core.batch import Batch
from trainauto.core.decisions import PlanChange, RunFacts
from trainauto.core.errors import InputError, Problem
from trainauto.core.plan import Plan
from trainauto.core.process import limit_private_memory, without_memory_limit
from trainauto.core.records import OutOfMemory, PeakReading, StepRecord
from trainauto.data.dynamic_loader import DynamicDataLoader
from trainauto.engine.controls import Controls
from trainauto.engine.journal import DecisionJournal
from trainauto.engine.optimizer_state import make_optimizer_state
from trainauto.integrations.loop_axes import Values
from trainauto.integrations.loop_controller import LoopController
from trainauto.integrations.loop_model import refuse_samplers
from trainauto.integrations.loop_parts import LoopSamples, build_loader, parse_budget, warn_of_environment
from trainauto.integrations.map_samples import Collate, MapStyle, Resize
from trainauto.memory.monitor import budget
from trainauto.memory.monitor.meter import MemoryMeter
from trainauto.memory.monitor.oom import in_words, is_out_of_memory
from trainauto.memory.monitor.release import release_memory

logger = logging.getLogger(__name__)

WATCHED_BY = (
    "Its loop decides on losses, rates and clipping: take its own callbacks (EarlyStopping; gradient_clip_val), or "
    "AdaptiveLoop around a loop of your own, which has automations."
)


HALF_STEPPED = (
    "memory ran out while an optimizer stepped: some weights may have moved and others not. Go on from a checkpoint "
    "that was written before, and from none that this error has written. A smaller batch does not help: take "
    "foreach=False or fused=True, or an optimizer with less state."
)


class EpochLoader:
    """What ``Trainer.fit`` iterates over: an iteration is an epoch, and workers live through all of them.

    It has no length, because the number of batches in an epoch is unknown.

    Attributes:
        under_way: batches that were handed out and not trained yet, oldest first: Lightning fetches ahead.
    """

    def __init__(self, draws: DynamicDataLoader, rebuild: Any) -> None:
        self._draws, self._batches, self._rebuild = draws, iter(draws), rebuild
        self.under_way: deque[Batch] = deque()

    def __iter__(self) -> Iterator[Any]:
        left, self.under_way = self.under_way, deque()  # an epoch that was cut short had fetched them
        if left:
            self._draws.requeue(left.pop())  # comes under the plan of now, which may be smaller
        while True:
            with without_memory_limit():
                batch = left.popleft() if left else next(self._batches)
            self.under_way.append(batch)
            yield self._rebuild(batch.tensors)
            if (batch.first_sample + batch.step_samples) % self._draws.samples == 0:
                return


class GrowingBatches(Callback):
    """Lets the batch of ``Trainer.fit`` grow while it trains, by the peaks of its steps.

        growing = GrowingBatches(dataset, batch_size=Range(16, 1024))
        Trainer(callbacks=[growing], max_epochs=3).fit(module, growing.loader)

    The controller, the loader and their options are those of
    :class:`~trainauto.integrations.adaptive_loop.AdaptiveLoop`. What a step of Lightning takes is not known before it
    ran, so the first period is trained with the batches that ``batch_size`` starts with; batches then grow to what its
    peaks say. A larger plan takes effect a few batches later, a smaller one with the next batch that Lightning fetches;
    it fetches one ahead.

    Recovery is not promised: running out of memory in ``training_step`` or in the backward pass ends ``fit``, as in any
    other ``fit``, and the batch that failed is lost to that epoch. The plan has shrunk then, for a ``fit`` that is
    called anew: it begins with what Lightning had fetched ahead, cut to that plan. Loops of one's own
    recover (``AdaptiveLoop``).

    Attributes:
        loader: to be passed to ``fit``.
        plan: that is asked for now.

    Args:
        dataset: map-style.
        batch_size: samples of a batch; an int stays.
        size: size of a sample; needs ``resize``.
        resize: makes a sample of a size.
        tokens: padded tokens of a batch; needs ``lengths``.
        lengths: tokens of each sample.
        collate_fn: makes samples a batch; torch's default.
        memory_budget: ``"2GiB"``: on CUDA of the card, on a CPU what steps take beside what is held when training
            starts.
        settings: of the controller.
        automations: none: those that watch a run need losses, rates and clipping, which are Lightning's here. They are
            refused, with what to take.
        num_workers: processes that load samples.
        seed: of order and augmentation.
        others: none; samplers of a ``DataLoader`` are refused, with what to do instead.

    Raises:
        InputError: something given cannot be used.
    """

    def __init__(
        self,
        dataset: MapStyle,
        *,
        batch_size: Values | None = None,
        size: Values | None = None,
        resize: Resize | None = None,
        tokens: Values | None = None,
        lengths: Sequence[int] | None = None,
        collate_fn: Collate = default_collate,
        memory_budget: str | None = None,
        settings: Mapping[str, Any] | None = None,
        automations: Mapping[str, Any] | None = None,
        num_workers: int = 0,
        seed: int = 0,
        **others: Never,
    ) -> None:
        refuse_samplers(others, "GrowingBatches")
        if automations:
            raise InputError(Problem(f"{', '.join(automations)} cannot watch a fit of Lightning's", advice=WATCHED_BY))
        values = {"batch_size": batch_size, "size": size, "tokens": tokens}
        drawn = LoopSamples.of(dataset, collate_fn, values, resize, lengths)
        self._axes = drawn.growth.axes
        self._budget_bytes = parse_budget(memory_budget)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._draws = build_loader(drawn, seed, num_workers, device)
        self.loader = EpochLoader(self._draws, drawn.structure.rebuild)
        self._automation = LoopController.of(settings or {}, self._axes)
        self._journal = DecisionJournal(Controls(self._draws, None), [self._automation])
        self._meter: MemoryMeter | None = None
        self._steps = 0
        self._trained_plan: Plan | None = None
        self._began_at = 0.0
        self._optimizer_steps = False

    @property
    def plan(self) -> Plan:
        """The plan that is asked for now."""
        return self._draws.plan

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Say what a resume of Lightning's lacks."""
        del trainer, pl_module, checkpoint
        logger.warning(
            "checkpoints of Lightning hold neither the place in the stream of samples nor random generators: samples "
            "come from the beginning of the stream, and what the model draws (dropout) is another than without a break"
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the budget in force, with optimizer state allocated.

        Raises:
            InputError: several processes train.
        """
        if trainer.world_size > 1:
            raise InputError("GrowingBatches steers one process; take one device")
        if self._meter is not None:  # a fit after a fit: what was held before the first one still counts
            return
        self._meter = MemoryMeter(pl_module.device)
        make_optimizer_state(trainer.optimizers)
        facts = RunFacts(self._axes, self.plan)
        self._automation.check(facts)
        self._automation.on_run_start(facts)
        if self._budget_bytes is not None:
            if pl_module.device.type == "cpu":
                warn_of_environment()
                budget.calm_allocator()
            self._meter.set_budget(self._budget_bytes)
            limit_private_memory(None)  # it holds within steps
        elif self._meter.limit_bytes is None:
            logger.warning("no memory limit is known on this device: batches stay as they begin; set memory_budget")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin to measure a step."""
        del trainer, batch, batch_idx
        if self._meter is None or not self.loader.under_way:
            raise InputError("pass the loader of GrowingBatches to fit: trainer.fit(module, growing.loader)")
        plan = self.loader.under_way[0].plan
        if self._trained_plan not in (None, plan):
            release_memory(pl_module.device)
            self._meter.cap_at_available()
        self._trained_plan = plan
        self._began_at = time.perf_counter()
        self._meter.start_window()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Note that weights change from here on."""
        del trainer, pl_module, optimizer
        self._optimizer_steps = True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take in the peak of a step, and have batches follow what is decided."""
        del trainer, pl_module, outputs, batch, batch_idx
        self._optimizer_steps = False
        reading = self._end_window()
        self._steps += 1
        record = self._record(self.loader.under_way.popleft(), reading)
        decisions = self._journal.ask(lambda automation: automation.on_step_end(record))
        self._decide(decisions, record.plan)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Where memory ran out, leave a smaller plan behind; ``fit`` ends all the same."""
        del trainer, pl_module
        limit_private_memory(None)
        if not is_out_of_memory(exception) or not self.loader.under_way or self._meter is None:
            return
        failed = self.loader.under_way.popleft()
        if self._optimizer_steps:
            self._optimizer_steps = False
            logger.warning("%s", HALF_STEPPED)
            return
        message = in_words(str(exception))
        event = OutOfMemory(self._steps + 1, failed.plan, failed.shape, "fit", message, 0, self._meter.limit_bytes)
        self._decide(self._journal.ask(lambda automation: automation.on_out_of_memory(event)), failed.plan)
        logger.warning("out of memory under %s ends this fit; one that is called anew has %s", failed.plan, self.plan)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the budget off this process."""
        del trainer, pl_module, stage
        limit_private_memory(None)

    def _decide(self, decisions: Sequence[Any], left: Plan) -> None:
        for decision in self._journal.decide(decisions, left):
            if isinstance(decision, PlanChange):
                logger.info("step %d: now %s: %s", self._steps, decision.plan, decision.reason)
        self._journal.take()

    def _end_window(self) -> PeakReading | None:
        reading = self._meter.end_window() if self._meter is not None else None
        limit_private_memory(None)
        return reading

    def _record(self, batch: Batch, reading: PeakReading | None) -> StepRecord:
        return StepRecord(
            step=self._steps,
            plan=batch.plan,
            drawn=batch.drawn,
            shape=batch.shape,
            first_sample=batch.first_sample,
            losses={},
            learning_rates={},
            grad_norms={},
            data_seconds=0.0,
            step_seconds=time.perf_counter() - self._began_at,
            units=batch.units,
            peak=reading,
            draw_samples=batch.draw_samples,
        )
