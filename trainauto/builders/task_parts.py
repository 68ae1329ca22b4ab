"""What each task has of its own in a run: network, samples and validation. The rest of a run is the same for all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainauto.builders.kept_sets import KeptSets
from trainauto.builders.schedules import build_schedule
from trainauto.core.plan import Axis, Plan
from trainauto.core.records import Progress
from trainauto.core.run_events import LengthUnit
from trainauto.core.sharding import SINGLE_PROCESS, SampleSharding
from trainauto.data import DatasetScan, DynamicDataLoader, DynamicDataset
from trainauto.data.batcher import FIXED_COUNT, Batcher
from trainauto.data.sampler import ShuffledStream
from trainauto.distributed.communicator import Communicator
from trainauto.engine.checkpointing_fallback import CheckpointingFallback
from trainauto.engine.training import LastResort
from trainauto.engine.validation_set import ValidationSet
from trainauto.models.base_model import BaseModel
from trainauto.models.parallel import Parallel, is_sharded, whole_weights
from trainauto.models.weights import save_weights
from trainauto.optim.precision import Precision
from trainauto.optim.schedules import RateSchedule
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions
from trainauto.reporting.sinks import Sink
from trainauto.reporting.tensorboard import TensorBoard
from trainauto.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class PartsRequest:
    """How the parts of a run are to be built, beside its option file.

    Attributes:
        precision: number format, and the device.
        ranks: who trains it together; all of them build their parts at the same time.
        pretrained: load the weights that the run starts from.
        check_samples: raises where the training set is not the expected one.
        earlier: the run that is resumed; ``None`` for a new one.
        sets: the files of its data sets.
    """

    precision: Precision
    ranks: Communicator
    pretrained: bool
    check_samples: Callable[[DynamicDataset], None]
    earlier: RunDirectory | None = None
    sets: KeptSets | None = None


class TaskParts(ABC):
    """What a run of one task consists of that is there before its directory is.

    Attributes:
        loaded: its option file.
        network: what is trained.
        network_words: it in words, for the log.
        train_set: what is trained on.
        datasets: all sets, the training set first.
        scans: of all sets, by name.
        smallest_px: smallest sample of the training set, px of the input; ``None`` where samples have no sides.
        length: of the run, and what it is counted in.
        length_key: option that says it, where that is not the usual one of its unit.
        validates_every: steps between validations; 0 without any.
        validates_epochs: whether it is validated at the end of each pass over the samples.
        validates_end: whether it is validated where it ends, whatever ended it.
        best_metric: decides which checkpoint is the best.
        metrics: what each validation set is measured by.
        rate_scaling: how rates follow the samples of a step, see :class:`~trainauto.optim.batch_scaling.BatchScaling`.
        rates_follow_plans: whether what counts is the samples that a plan has on average.
        writes_epochs: whether :meth:`at_epoch_end` writes weights, for which they are gathered where ranks share them.
        whole_weights: of the finished network, by name, while the first rank is to write them and they are spread over
            the ranks; ``None`` where the network itself has them.
    """

    loaded: LoadedOptions[Any]
    network: nn.Module
    network_words: str
    train_set: DynamicDataset
    datasets: Sequence[DynamicDataset]
    scans: Mapping[str, DatasetScan]
    smallest_px: int | None = None
    length: tuple[int, LengthUnit]
    length_key: str = ""
    validates_every: int
    validates_epochs: bool = False
    validates_end: bool = False
    best_metric: str | None
    metrics: Sequence[str] = ()
    rate_scaling: str = "none"
    rates_follow_plans: bool = False
    writes_epochs: bool = False
    whole_weights: Mapping[str, Tensor] | None = None

    @property
    def options(self) -> FileOptions:
        """The options of the file."""
        options: FileOptions = self.loaded.options
        return options

    @abstractmethod
    def axes(self) -> tuple[Axis, ...]:
        """Return the knobs of the plan, in the order in which they grow.

        Raises:
            InputError: the option file's first plan is none of theirs.
        """

    @abstractmethod
    def first_plan(self) -> Plan:
        """Return the plan of the option file."""

    @abstractmethod
    def build_model(self, precision: Precision, *, pretrained: bool, parallel: Parallel | None = None) -> BaseModel:
        """Return what trains the network.

        Raises:
            InputError: losses, optimizers or weights cannot be used.
        """

    def build_loader(
        self, plan: Plan, precision: Precision, sharding: SampleSharding = SINGLE_PROCESS, rank: int = 0
    ) -> DynamicDataLoader:
        """Return the loader of a rank's part of the training set."""
        workers, lookahead = self.options.loading
        stream, batcher = self.draws(sharding)
        return DynamicDataLoader(
            self.train_set,
            plan,
            seed=self.options.manual_seed,
            num_workers=workers,
            lookahead=lookahead,
            pin_memory=precision.device.type == "cuda",
            sharding=sharding,
            rank=rank,
            stream=stream,
            new_batcher=lambda _order, _sharding: batcher,
        )

    def draws(self, sharding: SampleSharding) -> tuple[ShuffledStream | None, Batcher]:
        """Return the order of the samples, ``None`` for one shuffled by the seed, and how many samples a draw holds.

        Args:
            sharding: how those of a draw are divided among ranks.
        """
        del sharding
        return None, FIXED_COUNT

    def build_schedule(self, model: BaseModel, sharding: SampleSharding = SINGLE_PROCESS) -> RateSchedule:
        """Return how rates go, from those that the optimizers of the model have now.

        Args:
            model: what it trains.
            sharding: how the samples of a step are divided among ranks, where a warm-up counts steps by them.

        Raises:
            InputError: there is no such schedule.
        """
        del sharding
        return build_schedule(self.loaded, model, *self.length)

    def automations(self) -> LoadedOptions[Any]:
        """Return the option file with the automations that every run of this task has, as far as it is silent."""
        return self.loaded

    @abstractmethod
    def build_validators(
        self, directory: RunDirectory, device: torch.device, *, in_step: bool = False
    ) -> Sequence[ValidationSet]:
        """Return what validates; ``in_step``: ranks run the network together."""

    def sinks(self, directory: RunDirectory, curves: TensorBoard | None) -> Sequence[Sink]:
        """Return what is told of the run beside the sinks of every run; the first rank asks for it.

        Args:
            directory: of the run.
            curves: its TensorBoard curves; ``None`` where it has none.
        """
        del directory, curves
        return ()

    def trace_facts(self) -> Mapping[str, Any]:
        """Return what the process that traces cannot know by the option file alone, as plain values."""
        return {}

    def last_resort(self, *, checkpointing_may_help: bool) -> LastResort:
        """Return what is left where not even the smallest plan fits.

        Args:
            checkpointing_may_help: ``False`` where traces say that gradient checkpointing leaves too little.
        """
        return CheckpointingFallback(allowed=self.options.memory.may_checkpoint, may_help=checkpointing_may_help)

    def measured(self) -> tuple[str, ...]:
        """Return what validations will measure, such as ``val/psnr``, in their order."""
        sets = self.datasets[1:] if self.validates_every else ()
        return tuple(f"{dataset.name}/{metric}" for dataset in sets for metric in self.metrics)

    def facts(self) -> Sequence[tuple[str, str]]:
        """Return lines of the start that only runs of this task have."""
        return ()

    def at_epoch_end(self, directory: RunDirectory, epoch: int, progress: Progress) -> None:
        """Do what is done once that many passes over the training samples are whole; the first rank does it.

        Where a step goes over several ends, it is asked for the last alone. A resume asks again where a kill came
        before a checkpoint knew of it, and so does a run that has gone back to an earlier checkpoint.
        """
        del directory, epoch, progress

    @contextmanager
    def gathered_weights(self) -> Iterator[None]:
        """Have the weights of the finished network be whole on the first rank; every rank must ask."""
        network = self.finished_network()
        self.whole_weights = whole_weights(network) if is_sharded(network) else None
        try:
            yield
        finally:
            self.whole_weights = None

    def finished_network(self) -> nn.Module:
        """Return what was trained, for other programs: averaged weights, where there are some."""
        return self.network

    def write_network(self, network: nn.Module, folder: Path) -> str:
        """Write a network into a folder for other programs; return how it is loaded, the folder being ``{}``.

        Args:
            network: see :meth:`finished_network`, or one made of it.
            folder: is there, and empty.
        """
        save_weights(network, folder / "model.safetensors", whole=self.whole_weights)
        return "safetensors.torch.load_file('{}/model.safetensors')"

    def finish(self, directory: RunDirectory, progress: Progress) -> Sequence[tuple[str, str]]:
        """Do what is done when a run has ended, with whatever length, but without an error; return lines of its end."""
        del directory, progress
        return ()

    def keep(self, directory: RunDirectory) -> None:
        """Keep in the run directory what a resume needs beside options and weights, which are kept for every run."""
        del directory
