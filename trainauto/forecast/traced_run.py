"""The run of an option file on fake tensors."""

import logging
from collections.abc import Callable, Mapping
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
from trainauto.memory.tracing.fake_tensors import as_fake
from trainauto.memory.tracing.libraries import card_libraries
from trainauto.memory.tracing.trace import TraceError
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel, bucketed, sharded_in_trace
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.resource_options import DistributedOptions
from trainauto.options.run_options import FileOptions

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
    """The training that an option file describes, on fake tensors."""

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
            TraceError: the run compiles its network, or its model cannot be built on fake tensors.
            InputError: options cannot be used.
        """
        options = loaded.options
        if options.use_compile:
            raise TraceError("use_compile is set: what a compiled network keeps is the compiler's decision")
        precision = choose_precision(loaded)
        channels = 0
        parallel = overlaps_in_trace(options.distributed, world_size)

        def build(mode: FakeTensorMode) -> BaseModel:
            nonlocal channels
            network = fake_network(lambda: build_network(loaded, pretrained=False), mode)
            channels = channels_of(network)
            return build_model(loaded, network, precision, pretrained=False, parallel=parallel)

        clips = options.settings.max_norm is not None
        return cls(
            build,
            lambda plan: empty_batch(plan, crops_of(options, channels)),
            clips=clips,
            libraries=card_libraries() if like_cuda or precision.device.type == "cuda" else None,
            sums_after=sums_after(options.distributed, world_size),
        )


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
