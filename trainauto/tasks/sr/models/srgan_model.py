"""Super-resolution with a generator and a discriminator."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainauto.core.objectives import LossTerms, MicroBatch, Objective
from trainauto.models.registry import MODELS
from trainauto.optim.ema import PLAIN, Averaging
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.losses import GANLoss
from trainauto.tasks.sr.losses.term import LossTerm
from trainauto.tasks.sr.models.sr_model import MakeOptimizer, SRModel

GAN_TERM = "l_g_gan"
"""What the generator learns from the discriminator, as it is logged."""


@MODELS.register("SRGANModel")
class SRGANModel(SRModel):
    """A generator that also learns from a discriminator, which learns to tell its images from real ones.

    One step is two passes: the generator's (terms ``l_g_gan``, and ``l_g_`` with the name of each other loss), then the
    discriminator's (``l_d_real``, ``l_d_fake``) on the images that the generator made before it stepped. Averages
    follow the generator alone, and it alone is compiled.

    In steps in which the generator is not to step, as in BasicSR, its pass is left out: it makes images for the
    discriminator, without gradients. Schedules and averages count those steps too.

    Args:
        network_g: maps (N, C, h, w) in [0, 1] to (N, C, h * scale, w * scale).
        losses: loss terms by the name to log them under: one :class:`GANLoss`; each other maps (output, reference) to a
            scalar.
        make_optimizer: builds the generator's optimizer for the parameters it is given.
        precision: number format, and the device.
        network_d: maps (N, C, H, W) to judgements, N first.
        make_optimizer_d: builds the discriminator's optimizer.
        net_d_iters: the generator steps in those steps of a run whose 1-based number is a multiple of this.
        net_d_init_iters: the generator does not step in the first so many steps of a run.
        ema_decay: decay of the moving average of the generator's weights; 0 keeps none.
        averaging: how that begins.
        channels_last: keep images as NHWC in memory.
        compile_network: run the generator through ``torch.compile`` with dynamic shapes; a text is its ``mode``.
        terms: as of :class:`SRModel`. The target of the :class:`GANLoss` is what the discriminator takes for real; its
            schedule is that of the generator's term alone.

    Raises:
        ValueError: not exactly one of the losses is a :class:`GANLoss`, or numbers of steps are out of their range.
    """

    couples_judgements: ClassVar[bool] = False
    """Whether a judgement counts in comparison with those of other samples, so that batches run whole."""

    def __init__(
        self,
        network_g: nn.Module,
        losses: Mapping[str, nn.Module],
        make_optimizer: MakeOptimizer,
        precision: Precision,
        *,
        network_d: nn.Module,
        make_optimizer_d: MakeOptimizer,
        net_d_iters: int = 1,
        net_d_init_iters: int = 0,
        ema_decay: float = 0.0,
        averaging: Averaging = PLAIN,
        channels_last: bool = False,
        compile_network: bool | str = False,
        terms: Mapping[str, LossTerm] | None = None,
    ) -> None:
        judging = [name for name, loss in losses.items() if isinstance(loss, GANLoss)]
        if len(judging) != 1:
            raise ValueError(f"{type(self).__name__} takes exactly one GANLoss among its losses, not {len(judging)}")
        if net_d_iters < 1 or net_d_init_iters < 0:
            raise ValueError("net_d_iters must be at least 1, and net_d_init_iters at least 0")
        super().__init__(
            network_g,
            {f"l_g_{name}": loss for name, loss in losses.items() if not isinstance(loss, GANLoss)},
            make_optimizer,
            precision,
            ema_decay=ema_decay,
            averaging=averaging,
            channels_last=channels_last,
            compile_network=compile_network,
            terms={GAN_TERM if name in judging else f"l_g_{name}": term for name, term in (terms or {}).items()},
        )
        self._gan_loss = losses[judging[0]].to(self.device)
        self._judge = self.networks["net_d"] = self._on_device(network_d)
        self.optimizers["d"] = make_optimizer_d(p for p in self._judge.parameters() if p.requires_grad)
        self._net_d_iters, self._net_d_init_iters = net_d_iters, net_d_init_iters
        makes_images = [self._network] if net_d_iters > 1 or net_d_init_iters else []
        passes = (
            self._new_pass("g", self._loss, self._network, self._judge),
            self._new_pass("d", self._loss_d, self._judge, *makes_images),
        )
        self._passes = tuple(replace(one, splittable=False) for one in passes) if self.couples_judgements else passes

    def objectives_at(self, step: int | None) -> Sequence[Objective]:
        """Return both passes, or that of the discriminator alone where the generator does not step."""
        if step is None or (step > self._net_d_init_iters and not step % self._net_d_iters):
            return self._passes
        return self._passes[1:]

    def _loss(self, micro_batch: MicroBatch) -> LossTerms:
        with self._precision.autocast():
            lq = self._image(micro_batch["lq"])
            output = self._forward(lq)
            terms = self._differences(output, lq, micro_batch)
            with _untrained(self._judge):
                terms |= self._weighed(GAN_TERM, self._gan_loss, self._generator_term(output, micro_batch))
        micro_batch["sr"] = output.detach()
        return terms

    def _loss_d(self, micro_batch: MicroBatch) -> LossTerms:
        with self._precision.autocast():
            made = micro_batch["sr"] if "sr" in micro_batch else self._made(micro_batch)
            return self._discriminator_terms(self._judge(self._real(micro_batch)), self._judge(made))

    def _real(self, micro_batch: MicroBatch) -> Tensor:
        """Return the images that the discriminator is to take for real."""
        return self._image(micro_batch[self._term(GAN_TERM).target])

    def _generator_term(self, output: Tensor, micro_batch: MicroBatch) -> Tensor:
        """Return what the generator learns from the discriminator about ``output``."""
        del micro_batch
        term: Tensor = self._gan_loss(self._judge(output), target_is_real=True)
        return term

    def _discriminator_terms(self, real: Tensor, made: Tensor) -> LossTerms:
        """Return what the discriminator learns from its judgements of real and of made images."""
        return {
            "l_d_real": self._gan_loss(real, target_is_real=True, is_disc=True),
            "l_d_fake": self._gan_loss(made, target_is_real=False, is_disc=True),
        }

    @torch.no_grad()
    def _made(self, micro_batch: MicroBatch) -> Tensor:
        """Return images that the generator makes and does not learn from."""
        return self._forward(self._image(micro_batch["lq"]))


@contextmanager
def _untrained(network: nn.Module) -> Iterator[None]:
    """Have what is computed inside lead gradients through a network, and none to its weights."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
