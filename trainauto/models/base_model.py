"""The contract between a model and the engine: a model says what to minimise, the engine says how."""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.batch import Batch
from trainauto.core.errors import CheckpointError, NetworkMismatchError, nearest
from trainauto.core.objectives import MicroBatch, Objective
from trainauto.core.records import ValidationRecord
from trainauto.core.run_events import Picture
from trainauto.models.activation_checkpointing import (
    ActivationCheckpointingError,
    Blocks,
    Part,
    blocks_of,
    parts_of,
    parts_on,
    switch_on,
)
from trainauto.models.compiled_network import Compilation
from trainauto.models.parallel import Networks, Optimizers, has_shards, is_sharded, load_shards, save_shards
from trainauto.models.weights import load_weights, save_weights
from trainauto.optim.ema import Averaging, Ema
from trainauto.optim.optimizers import settings_of
from trainauto.optim.schedule_free import ScheduleFreeAverage, take_settings

logger = logging.getLogger(__name__)

NUMBERS_COMPARED = 1024
"""Of each frozen weight, by which a resume tells other ones: all of a large model would take a minute to read."""


LONG_AGO = 2**40
"""Steps that an average has followed which has left its beginning behind."""


class ModelValidator(Protocol):
    """What a model is validated by."""

    def run_model(self, model: Any, step: int, group: Any) -> tuple[ValidationRecord, list[Picture]] | None:
        """Validate a model after ``step``; ``None`` if it was stopped."""


class BaseModel(ABC):
    """Networks, their optimizers and averages, and the passes that train them.

    Attributes:
        device: where everything lives.
        networks: trained networks by name (``net_g``), as they are saved: neither compiled nor wrapped.
        optimizers: by the name of the pass that steps them.
        averages: moving averages by the name of the network they follow.
        less_memory: what to do where nothing fits, in words.
        smaller_batches: how smaller batches are allowed where they are not; empty where that goes without saying.
        checkpointing_advice: how gradient checkpointing is switched on, as the beginning of a sentence.
        finite_numbers: what to do where a loss or a gradient is not finite.
        frozen_from: what weights that are not trained are loaded from again at a resume; empty where checkpoints hold
            them.
    """

    less_memory = "Take a smaller network, use_amp, or more memory (memory: budget:). The last checkpoint stands."
    smaller_batches = ""
    checkpointing_advice = "`memory: allow_gradient_checkpointing: true` would continue with gradient checkpointing"
    finite_numbers = (
        "Try a lower rate, train.grad_clip, or float32 (use_amp: false); look at the files if they are unusual."
    )

    frozen_from: str = ""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.networks: dict[str, nn.Module] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.averages: dict[str, Ema] = {}
        self._frozen_digests: dict[str, str] = {}

    @abstractmethod
    def objectives(self) -> Sequence[Objective]:
        """Return what one step minimises, in order. The same objects every step: they hold loss-scaling state."""

    def objectives_at(self, step: int | None) -> Sequence[Objective]:
        """Return those that a step minimises, in order, all of them by default.

        Args:
            step: its 1-based number; ``None`` for one that stands for all, as where memory is foreseen.
        """
        del step
        return self.objectives()

    def begin_step(self, step: int | None) -> None:
        """Be about to run a step; its number is given as in :meth:`objectives_at`. Nothing, by default."""
        del step

    def takes_full_memory(self, step: int | None) -> bool:
        """Whether a step takes what others of its plan take; one may leave out what few steps do. True, by default."""
        del step
        return True

    def words_for(self, objective: str) -> str:
        """Return what a person calls an objective, or what else of a step ran out of memory."""
        return f"the pass of network_{objective}" if objective in self.optimizers else f"the pass '{objective}'"

    def compilation(self) -> Compilation | None:
        """Return what ``torch.compile`` has done so far; ``None`` where nothing is compiled."""
        return None

    @property
    def checkpoints_gradients(self) -> bool:
        """Whether all blocks that can run again in the backward pass, so that they keep their inputs only."""
        try:
            return set(self.parts_to_checkpoint()) <= set(self.checkpointed_parts())
        except ActivationCheckpointingError:
            return False

    def blocks_to_checkpoint(self) -> dict[str, Blocks]:
        """Return which blocks of which networks gradient checkpointing would run again.

        Raises:
            ActivationCheckpointingError: no network has repeated blocks, or they are compiled.
        """
        if self.compilation() is not None:
            raise ActivationCheckpointingError("with use_compile, what a network keeps is the compiler's own decision")
        blocks, reasons = {}, []
        for name, network in self.networks.items():
            try:
                blocks[name] = blocks_of(network)
            except ActivationCheckpointingError as error:
                reasons.append(f"{name}: {error}")
        if not blocks:
            raise ActivationCheckpointingError("; ".join(reasons))
        return blocks

    def parts_to_checkpoint(self) -> dict[str, Part]:
        """Return what can run again by itself, by names like ``net_g.body.0``; errors as above."""
        return {
            f"{name}.{part}": found
            for name in self.blocks_to_checkpoint()
            for part, found in parts_of(self.networks[name]).items()
        }

    def checkpointed_parts(self) -> list[str]:
        """Return the names of those that run again; errors as above."""
        return [f"{name}.{part}" for name in self.blocks_to_checkpoint() for part in parts_on(self.networks[name])]

    def checkpoint_gradients(self, only: Sequence[str] | None = None) -> dict[str, Blocks]:
        """Have these blocks run again from now on; see :mod:`trainauto.models.activation_checkpointing`.

        Args:
            only: names of some of :meth:`parts_to_checkpoint`; ``None`` for all.

        Raises:
            ActivationCheckpointingError: as :meth:`blocks_to_checkpoint`, or there is no such part; nothing has changed
                then.
        """
        blocks, parts = self.blocks_to_checkpoint(), self.parts_to_checkpoint()
        if unknown := [name for name in only or () if name not in parts]:
            raise ActivationCheckpointingError(f"no block is called '{unknown[0]}'. {nearest(unknown[0], parts)}")
        for name in blocks:
            own = [part.removeprefix(f"{name}.") for part in only or () if part.startswith(f"{name}.")]
            switch_on(self.networks[name], None if only is None else own)
        return blocks

    @property
    def is_sharded(self) -> bool:
        """Whether weights are spread over the ranks, so that running, saving and loading are done by all of them."""
        return any(is_sharded(network) for network in self.networks.values())

    def feed_data(self, batch: Batch) -> MicroBatch:
        """Move a batch to the device, still uint8; :meth:`passes` convert the micro-batch they work on."""
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.tensors.items()}

    def placed(self) -> list[nn.Module]:
        """Return networks and averages, and the losses that a model names, in the order in which they were moved."""
        modules = []
        for name, network in self.networks.items():
            modules += [network, *([self.averages[name].network] if name in self.averages else ())]
        return modules

    def keep_average(self, name: str, decay: float, averaging: Averaging, optimizer: str) -> None:
        """Keep the average of a network where there is to be one: ``decay`` is above 0, or its optimizer has one."""
        if averaging.of_optimizer:
            self.averages[name] = ScheduleFreeAverage(self.networks[name], lambda: self.optimizers[optimizer])
        elif decay:
            self.averages[name] = Ema(self.networks[name], decay, averaging)

    def after_step(self, average_share: float = 1.0) -> None:
        """Follow the weights once all passes have stepped; to averages it was ``average_share`` steps."""
        for name, average in self.averages.items():
            average.update(self.networks[name], average_share)
            average.return_if_due(self.networks[name])

    def validation(
        self, validator: ModelValidator, step: int, group: Any = None
    ) -> tuple[ValidationRecord, list[Picture]] | None:
        """Run one validation set, together with the other processes of a group; ``None`` if it was stopped."""
        return validator.run_model(self, step, group)

    def left_out_of_checkpoints(self, name: str) -> set[str]:
        """Return which weights of a network checkpoints do not hold: where ``frozen_from`` has them, those frozen."""
        if not self.frozen_from or self.is_sharded:
            return set()
        network = self.networks[name]
        weights = network.named_parameters(remove_duplicate=False)
        frozen = {weight for weight, parameter in weights if not parameter.requires_grad}
        # Weights in 4 bits have further entries below their own name.
        return {key for key in network.state_dict() if any(prefix in frozen for prefix in _prefixes(key))}

    def kept_state(self, name: str) -> dict[str, Tensor]:
        """Return what checkpoints hold of a network: weights and buffers, as they stand."""
        left_out = self.left_out_of_checkpoints(name)
        return {key: tensor for key, tensor in self.networks[name].state_dict().items() if key not in left_out}

    def save(self, folder: Path) -> None:
        """Write what is kept of every network and average as safetensors, e.g. ``net_g.safetensors``.

        Where they are spread over the ranks, every rank must ask; the first writes them whole, and each its own part.
        """
        if self.is_sharded:
            save_shards(*self._parts(), folder)
        for name, network in self.networks.items():
            save_weights(network, folder / f"{name}.safetensors", self.left_out_of_checkpoints(name))
        for name, average in self.averages.items():
            save_weights(average.network, folder / f"{name}_ema.safetensors", self.left_out_of_checkpoints(name))

    def load(self, folder: Path) -> None:
        """Read back what :meth:`save` wrote. A checkpoint without averages starts them from the weights.

        Raises:
            NetworkMismatchError: a file is missing or does not fit the network.
            CheckpointError: a file is damaged.
        """
        if has_shards(folder):
            load_shards(*self._parts(), folder)
            return
        if self.is_sharded:
            advice = "continue without it, or begin a new run from its weights"
            raise CheckpointError(f"{folder} was written without fully_shard: {advice}")
        for name, network in self.networks.items():
            left_out = self.left_out_of_checkpoints(name)
            if network.state_dict().keys() - left_out:
                load_weights(network, folder / f"{name}.safetensors", left_out)
        for name, average in self.averages.items():
            file = folder / f"{name}_ema.safetensors"
            file = file if file.exists() else folder / f"{name}.safetensors"
            load_weights(average.network, file, self.left_out_of_checkpoints(name))

    def _parts(self) -> tuple[Networks, Optimizers]:
        """Return what is saved in parts where weights are spread over the ranks."""
        averages = {f"{name}_ema": average.network for name, average in self.averages.items()}
        only = next(iter(self.networks.values()))
        # Not by their weights: where a network has just been run, these are whole.
        steps = {
            name: (self.networks.get(f"net_{name}", only), optimizer) for name, optimizer in self.optimizers.items()
        }
        return {**self.networks, **averages}, steps

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs besides the weights: optimizers (where they are whole) and loss scaling."""
        scalers = {
            objective.name: objective.scaler.state_dict()
            for objective in self.objectives()
            if objective.scaler is not None
        }
        optimizers = {} if self.is_sharded else self.optimizers
        return {
            "optimizers": {name: optimizer.state_dict() for name, optimizer in optimizers.items()},
            "optimizer_kinds": {name: _kind(optimizer) for name, optimizer in self.optimizers.items()},
            "scalers": scalers,
            "averaged_steps": {name: average.updates for name, average in self.averages.items()},
            "frozen": {name: self._frozen_digest(name) for name in self.networks if self.left_out_of_checkpoints(name)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back :meth:`state_dict`. What the option file sets (rates, betas, decay) stays as it sets it.

        Raises:
            NetworkMismatchError: an optimizer stepped other weights.
            CheckpointError: weights that the checkpoint does not hold are others now.
        """
        self._check_frozen(state.get("frozen", {}))
        for name, optimizer in self.optimizers.items():
            if name not in state["optimizers"]:
                continue  # it was spread over ranks, and came with the weights
            before = state["optimizer_kinds"].get(name)
            if before != _kind(optimizer):
                logger.warning("optimizer '%s' was %s and is %s now: it starts afresh", name, before, _kind(optimizer))
                if str(before).endswith("ScheduleFree") and not _kind(optimizer).endswith("ScheduleFree"):
                    logger.warning("training goes on from the weights in training, not from the average of %s", before)
                continue
            settings = settings_of(optimizer)
            try:
                optimizer.load_state_dict(state["optimizers"][name])
            except ValueError as error:
                raise NetworkMismatchError(
                    f"the checkpoint's optimizer '{name}' steps other weights: {error}"
                ) from error
            take_settings(optimizer, settings)
        for name, average in self.averages.items():
            average.updates = state.get("averaged_steps", {}).get(name, LONG_AGO)  # one of before knew no beginning
        for objective in self.objectives():
            if objective.scaler is not None and objective.name in state["scalers"]:
                objective.scaler.load_state_dict(state["scalers"][objective.name])

    def _check_frozen(self, digests: Mapping[str, str]) -> None:
        """Compare weights that checkpoints do not hold with those of the run; one that held them all goes on so.

        Raises:
            CheckpointError: they are others.
        """
        if not digests:
            self.frozen_from = ""
        for name, digest in digests.items():
            if self.frozen_from and digest != self._frozen_digest(name):
                raise CheckpointError(
                    f"{self.frozen_from} holds other weights than those that the checkpoint was trained beside\n"
                    "  Put them back as they were, or leave --auto_resume out: a run of its own begins."
                )

    def _frozen_digest(self, name: str) -> str:
        """Return what tells the frozen weights of a network from others: some numbers of each tensor, and its shape.

        They do not change, so that they are read once.
        """
        if name not in self._frozen_digests:
            digest, state = hashlib.sha256(), self.networks[name].state_dict()
            for weight in sorted(self.left_out_of_checkpoints(name)):
                flat = state[weight].detach().reshape(-1)
                some = flat[:: max(1, len(flat) // NUMBERS_COMPARED)].float().cpu()
                digest.update(f"{weight} {tuple(state[weight].shape)}".encode() + some.numpy().tobytes())
            self._frozen_digests[name] = digest.hexdigest()
        return self._frozen_digests[name]


def _prefixes(name: str) -> Iterator[str]:
    """Yield a name and those of everything that it lies in: ``a.b.c``, ``a.b``, ``a``."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _kind(optimizer: Optimizer) -> str:
    """Name what decides which state an optimizer keeps; rates and betas do not."""
    amsgrad = optimizer.defaults.get("amsgrad")
    return f"{type(optimizer).__name__} with amsgrad" if amsgrad else type(optimizer).__name__
