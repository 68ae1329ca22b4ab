"""Super-resolution with one network."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainauto.core.objectives import WEIGHT, LossTerms, MicroBatch, Objective
from trainauto.memory.tracing.kept_bytes import KeptBytes, kept_bytes
from trainauto.models.base_model import BaseModel
from trainauto.models.compiled_network import Compilation, CompiledNetwork
from trainauto.models.parallel import Parallel
from trainauto.models.registry import MODELS
from trainauto.optim.ema import PLAIN, Averaging
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.data.geometry import largest_of
from trainauto.tasks.sr.losses.term import GT, WHOLE, LossTerm

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


@MODELS.register("SRModel")
class SRModel(BaseModel):
    """One network, any number of loss terms, one optimizer.

    Args:
        network_g: maps (N, C, h, w) in [0, 1] to (N, C, h * scale, w * scale).
        losses: loss terms by the name to log them under; each maps (output, reference) to a scalar, or to parts by
            name, which are logged as ``name_part``.
        make_optimizer: builds the optimizer for the parameters it is given.
        precision: number format, and the device.
        ema_decay: decay of the moving average of weights; 0 keeps none.
        averaging: how that begins.
        channels_last: keep images as NHWC in memory.
        compile_network: run the network through ``torch.compile``; a text is its ``mode``.
        parallel: makes the network one of several ranks; see :mod:`trainauto.models.parallel`.
        terms: how losses take part, by name, where they do not compare with ``gt`` in every step. What a scheduled one
            weighs is told as ``name_weight``.

    Raises:
        ValueError: a loss compares with the averaged network, and there is none.
    """

    def __init__(
        self,
        network_g: nn.Module,
        losses: Mapping[str, nn.Module],
        make_optimizer: MakeOptimizer,
        precision: Precision,
        *,
        ema_decay: float = 0.0,
        averaging: Averaging = PLAIN,
        channels_last: bool = False,
        compile_network: bool | str = False,
        parallel: Parallel | None = None,
        terms: Mapping[str, LossTerm] | None = None,
    ) -> None:
        super().__init__(precision.device)
        self._terms = dict(terms or {})
        self._shares: dict[str, float] = {}
        self.begin_step(None)
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._precision = precision
        self._network = self.networks["net_g"] = self._on_device(network_g)
        self.keep_average("net_g", ema_decay, averaging, "g")
        self._losses = {name: loss.to(self.device) for name, loss in losses.items()}
        self._needs_average = any(needs_average(loss) for loss in losses.values())
        if self._needs_average and not self.averages:
            name = next(name for name, loss in losses.items() if needs_average(loss))
            raise ValueError(f"loss '{name}' compares with the averaged network: it needs an ema_decay above 0")
        averages = [average.network for average in self.averages.values()]
        forward = parallel(self._network, averages) if parallel is not None else self._network
        # Compiled beside the plain network, so that saved names do not change.
        mode = compile_network if isinstance(compile_network, str) else None
        self._compiled = CompiledNetwork(forward, mode) if compile_network else None
        self._forward: Callable[[Tensor], Tensor] = self._compiled or forward
        self.optimizers["g"] = make_optimizer(p for p in self._network.parameters() if p.requires_grad)
        alone = self._new_pass("g", self._loss, self._network)
        self._passes: tuple[Objective, ...] = (replace(alone, without_sum=getattr(forward, "no_sync", None)),)

    def objectives(self) -> Sequence[Objective]:
        """Return the one pass."""
        return self._passes

    def placed(self) -> list[nn.Module]:
        """Return networks, averages and losses in the order in which they were moved to the device."""
        networks, generator = super().placed(), 1 + ("net_g" in self.averages)
        return [*networks[:generator], *self._losses.values(), *networks[generator:]]

    def begin_step(self, step: int | None) -> None:
        """Have scheduled losses weigh what they do in that step."""
        self._shares = {name: term.share(step) for name, term in self._terms.items() if term.is_scheduled}

    def compilation(self) -> Compilation | None:
        """Return what ``torch.compile`` has done of the network."""
        return None if self._compiled is None else self._compiled.compilation

    def kept_bytes(self, micro_batch: MicroBatch) -> KeptBytes:
        """Return what the network keeps between its passes, compiled and not, where the model is on fake tensors.

        Raises:
            TraceError: the network cannot be traced so.
        """
        with self._precision.autocast():
            return kept_bytes(self._network, self._image(micro_batch["lq"]))

    @torch.no_grad()
    def enlarge(self, lq: Tensor) -> Tensor:
        """Map images (N, C, h, w) in [0, 1] to (N, C, h * scale, w * scale), as a finished network would.

        By the averaged network where there is one, else by the network in evaluation mode; without gradients.
        """
        lq = lq.to(memory_format=self._format)
        with self._precision.autocast():
            if "net_g" in self.averages:
                return self._bounded(self.averages["net_g"].network(lq))
            self._network.eval()
            try:
                return self._bounded(self._network(lq))
            finally:
                self._network.train()

    def _loss(self, micro_batch: MicroBatch) -> LossTerms:
        with self._precision.autocast():
            lq = self._image(micro_batch["lq"])
            return self._differences(self._forward(lq), lq, micro_batch)

    def _differences(self, output: Tensor, lq: Tensor, micro_batch: MicroBatch) -> dict[str, Tensor]:
        """Return the terms that compare what was made of ``lq`` with its reference."""
        targets = {target: self._image(micro_batch[target]) for target in self._targets()}
        averaged = self._averaged(lq) if self._needs_average else None
        terms: dict[str, Tensor] = {}
        for name, loss in self._losses.items():
            target = targets[self._term(name).target]
            with _named(name):
                value = loss(output, target, averaged) if needs_average(loss) else loss(output, target)
            terms |= self._weighed(name, loss, value)
        return terms

    def _term(self, name: str) -> LossTerm:
        return self._terms.get(name, WHOLE)

    def _targets(self) -> list[str]:
        """Return the names of what outputs are compared with, each once."""
        return list(dict.fromkeys(self._term(name).target for name in self._losses)) or [GT]

    def _weighed(self, name: str, loss: nn.Module, value: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the terms of a loss, each as much as it counts in this step, and what a scheduled one weighs now."""
        parts = value if isinstance(value, Mapping) else {"": value}
        terms = {f"{name}_{part}" if part else name: term for part, term in parts.items()}
        if name not in self._shares:
            return terms
        share = self._shares[name]
        weight = torch.full((), share * getattr(loss, "loss_weight", 1.0), device=self.device)
        return {**{key: share * term for key, term in terms.items()}, f"{name}{WEIGHT}": weight}

    @torch.no_grad()
    def _averaged(self, lq: Tensor) -> Tensor:
        """Return what the averaged network makes of images."""
        made: Tensor = self.averages["net_g"].network(lq)
        return made

    def _image(self, pixels: Tensor) -> Tensor:
        """Return pixels of 8 or 16 bits as float32 from 0 to 1."""
        return pixels.to(torch.float32, memory_format=self._format).div_(largest_of(pixels))

    def _on_device(self, network: nn.Module) -> nn.Module:
        placed: nn.Module = network.to(self.device, memory_format=self._format)  # type: ignore[call-overload]
        return placed.train()

    def _new_pass(self, name: str, loss: Callable[[MicroBatch], LossTerms], *networks: nn.Module) -> Objective:
        """Return the pass of the optimizer of that name, whose loss runs ``networks`` in training mode."""
        modules = (module for network in networks for module in network.modules())
        splittable = not any(map(couples_samples, modules))
        splittable = splittable and not (name == "g" and any(map(couples_samples, self._losses.values())))
        return Objective(name, self.optimizers[name], loss, splittable=splittable, scaler=self._precision.new_scaler())

    @staticmethod
    def _bounded(image: Tensor) -> Tensor:
        return image.float().clamp_(0, 1)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Have an error inside a loss say which loss it is: a file may have several of one class."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in loss '{name}'")
        raise


def needs_average(loss: nn.Module) -> bool:
    """Return whether a loss, ours or of a plugin, also compares with what the averaged network makes."""
    return bool(getattr(loss, "needs_average", False))


def couples_samples(module: nn.Module) -> bool:
    """Return whether the samples of a batch depend on each other in a loss or a network, ours or of a plugin.

    Batch statistics do that in training.
    """
    return isinstance(module, nn.modules.batchnorm._BatchNorm) or bool(getattr(module, "couples_samples", False))
