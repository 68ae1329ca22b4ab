"""Super-resolution with a generator and a discriminator."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn

from trainauto.core.objectives import LossTerms, MicroBatch
from trainauto.models.registry import MODELS
from trainauto.optim.precision import Precision
from trainauto.tasks.sr.losses import GANLoss
from trainauto.tasks.sr.models.sr_model import MakeOptimizer, SRModel


@MODELS.register("SRGANModel")
class SRGANModel(SRModel):
    """A generator that also learns from a discriminator, which learns to tell its images from real ones.

    One step is two passes: the generator's (terms ``l_g_gan``, and ``l_g_`` with the name of each other loss), then the
    discriminator's (``l_d_real``, ``l_d_fake``) on the images that the generator made before it stepped. Averages
    follow the generator alone, and it alone is compiled.

    Args:
        network_g: maps (N, C, h, w) in [0, 1] to (N, C, h * scale, w * scale).
        losses: loss terms by the name to log them under: one :class:`GANLoss`; each other maps (output, reference) to a
            scalar.
        make_optimizer: builds the generator's optimizer for the parameters it is given.
        precision: number format, and the device.
        network_d: maps (N, C, H, W) to judgements, N first.
        make_optimizer_d: builds the discriminator's optimizer.
        ema_decay: decay of the moving average of the generator's weights; 0 keeps none.
        channels_last: keep images as NHWC in memory.
        compile_network: run the generator through ``torch.compile`` with dynamic shapes.

    Raises:
        ValueError: not exactly one of the losses is a :class:`GANLoss`.
    """

    def __init__(
        self,
        network_g: nn.Module,
        losses: Mapping[str, nn.Module],
        make_optimizer: MakeOptimizer,
        precision: Precision,
        *,
        network_d: nn.Module,
        make_optimizer_d: MakeOptimizer,
        ema_decay: float = 0.0,
        channels_last: bool = False,
        compile_network: bool = False,
    ) -> None:
        judging = [loss for loss in losses.values() if isinstance(loss, GANLoss)]
        if len(judging) != 1:
            raise ValueError(f"SRGANModel takes exactly one GANLoss among its losses, not {len(judging)}")
        super().__init__(
            network_g,
            {f"l_g_{name}": loss for name, loss in losses.items() if not isinstance(loss, GANLoss)},
            make_optimizer,
            precision,
            ema_decay=ema_decay,
            channels_last=channels_last,
            compile_network=compile_network,
        )
        self._gan_loss = judging[0].to(self.device)
        self._judge = self.networks["net_d"] = self._on_device(network_d)
        self.optimizers["d"] = make_optimizer_d(p for p in self._judge.parameters() if p.requires_grad)
        self._passes = (
            self._new_pass("g", self._loss, self._network, self._judge),
            self._new_pass("d", self._loss_d, self._judge),
        )

    def _loss(self, micro_batch: MicroBatch) -> LossTerms:
        with self._precision.autocast():
            lq = self._image(micro_batch["lq"])
            output = self._forward(lq)
            terms = self._differences(output, lq, micro_batch)
            with _untrained(self._judge):
                terms["l_g_gan"] = self._gan_loss(self._judge(output), target_is_real=True)
        micro_batch["sr"] = output.detach()
        return terms

    def _loss_d(self, micro_batch: MicroBatch) -> LossTerms:
        with self._precision.autocast():
            real, made = self._judge(self._image(micro_batch["gt"])), self._judge(micro_batch["sr"])
            return {
                "l_d_real": self._gan_loss(real, target_is_real=True, is_disc=True),
                "l_d_fake": self._gan_loss(made, target_is_real=False, is_disc=True),
            }


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
