"""The run of an option file on fake tensors."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from trainauto.builders.data import crops_of
from trainauto.builders.image_model import build_model, build_network, channels_of
from trainauto.builders.precision import choose_precision
from trainauto.core.batch import Batch
from trainauto.core.plan import Plan
from trainauto.engine.traced_training import FakeTraining, empty_batch
from trainauto.forecast.task import ready_task
from trainauto.memory.cost.ratio_prior import Kernels
from trainauto.memory.tracing.fake_tensors import as_fake, fake_world
from trainauto.memory.tracing.host_reads import AnsweredReads
from trainauto.memory.tracing.kept_bytes import KeptBytes
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.trace import Trace, TraceError
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel, bucketed, sharded_in_trace
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import DistributedOptions
from trainauto.options.run_options import FileOptions
from trainauto.tasks.sr.models.sr_model import SRModel

logger = logging.getLogger(__name__)


def fake_run(
    loaded: LoadedOptions[FileOptions],
    *,
    like_cuda: bool = False,
    world_size: int = 1,
    known: Mapping[str, Any] | None = None,
) -> FakeTraining:
    """Build the run of an option file on fake tensors, whatever its task; arguments and errors as of `Task.fake`."""
    return ready_task(loaded).fake(loaded, like_cuda=like_cuda, world_size=world_size, known=known or {})


def overlaps_in_trace(chosen: DistributedOptions, world_size: int) -> Parallel | None:
    """Return what makes a network one of so many ranks in a trace, as ``ddp_overlap`` or ``fully_shard`` do."""
    if world_size > 1 and chosen.fully_shard:
        return sharded_in_trace(world_size)
    return Parallel(bucketed) if world_size > 1 and chosen.ddp_overlap else None


def sums_after(chosen: DistributedOptions, world_size: int) -> bool:
    """Whether so many ranks hold room for the sum of their gradients."""
    return world_size > 1 and not (chosen.ddp_overlap or chosen.fully_shard)


def fake_training(
    build: Callable[[FakeTensorMode], BaseModel],
    batch_of: Callable[[Plan], Batch],
    precision: Precision,
    *,
    clips: bool,
    like_cuda: bool,
    sums_after: bool = False,
    told: tuple[Tensor, ...] = (),
) -> FakeTraining:
    """Return training on fake tensors with what a card's libraries take, where it is on one.

    Args:
        build: makes the model on fake tensors.
        batch_of: makes the batch of a plan.
        precision: number format, and the device.
        clips: gradients are clipped.
        like_cuda: count what a card's libraries take, also where the run is not on one.
        sums_after: ranks sum their gradients after the backward pass, through a buffer that is held all the time.
        told: tensors whose values say sizes.
    """
    libraries = card_libraries() if like_cuda or precision.device.type == "cuda" else None
    return FakeTraining(build, batch_of, clips=clips, libraries=libraries, sums_after=sums_after, told=told)


class FakeRun(FakeTraining):
    """The training that an option file describes, on fake tensors; a network that it compiles is traced as it is."""

    _is_compiled = False

    @classmethod
    def of(cls, loaded: LoadedOptions, *, like_cuda: bool = False, world_size: int = 1) -> "FakeRun":
        """Build the run of an option file, whose plugins must have been imported.

        Where building the network needs data (its code computes with initial weights, say), it is built for real and
        then copied.

        Args:
            loaded: the option file.
            like_cuda: count what a card's libraries take, also where the run is not on one.
            world_size: how many train it together: more than one hold room for the sum of their gradients. What
                ``fully_shard`` leaves to other ranks is counted as if it were here.

        Raises:
            TraceError: its model cannot be built on fake tensors.
            InputError: options cannot be used.
        """
        is_compiled = loaded.options.use_compile
        options = loaded.options.model_copy(update={"use_compile": False})
        loaded = replace(loaded, options=options)
        precision = choose_precision(loaded)
        channels = 0
        parallel = overlaps_in_trace(options.distributed, world_size)

        def build(mode: FakeTensorMode) -> BaseModel:
            nonlocal channels
            network = fake_network(lambda: build_network(loaded, pretrained=False), mode)
            channels = channels_of(network)
            return build_model(loaded, network, precision, pretrained=False, parallel=parallel)

        clips = options.settings.max_norm is not None
        run = cls(
            build,
            lambda plan: empty_batch(plan, crops_of(options, channels)),
            clips=clips,
            libraries=card_libraries() if like_cuda or precision.device.type == "cuda" else None,
            sums_after=sums_after(options.distributed, world_size),
        )
        run._is_compiled = is_compiled
        return run

    def kernels(self, trace: Trace) -> Kernels:
        """Say of a trace what its bytes have to be judged by."""
        return "compiled" if self._is_compiled else super().kernels(trace)

    def kept(self, plan: Plan) -> KeptBytes:
        """Return what the network keeps between the passes of a step's largest micro-batch, compiled and not.

        Raises:
            TraceError: the network cannot be traced so.
        """
        of_one_pass = plan.with_batch_size(plan.forward_batch_size).with_micro_batches(1)
        with fake_world(self._mode), AnsweredReads():
            model = self._traced.model
            if not isinstance(model, SRModel):
                raise TraceError(f"{type(model).__name__} does not say which network it compiles")
            return model.kept_bytes(model.feed_data(self._batch_of(of_one_pass)))


def fake_network(build: Callable[[], nn.Module], mode: FakeTensorMode) -> nn.Module:
    """Return a network on fake tensors: built on them, or where its constructor reads values, built and then copied.

    Args:
        build: makes it.
        mode: of fake tensors, which is on.
    """
    try:
        return build()
    except Exception as error:
        logger.info("the network is built for real: on fake tensors its constructor fails (%s)", error)
    with unset_fake_temporarily():
        network = build()
    return as_fake(network, mode)
